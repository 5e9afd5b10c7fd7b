"""The paper's tables and figures, reproduced.

| file              | what it holds                                                        |
|-------------------|----------------------------------------------------------------------|
| `paper.toml`      | the paper as data: tables, figures, published numbers                |
| `artefacts.py`    | `paper.toml` -> artefacts and their cells                            |
| `run_cells.py`    | train the cells that have no result yet                              |
| `grid_search.py`  | search the paper's grids for better settings                         |
| `results.py`      | the JSON file kept for each cell and each search                     |
| `agreement.py`    | does a measured entry agree with the published one?                  |
| `claims.py`       | are the lines of a figure ordered as the paper says?                 |
| `page.py`         | the outline of the reproduction page                                 |
| `page_tables.py`  | its tables                                                           |
| `page_figures.py` | its figures                                                          |
| `blocks.py`       | a page as blocks -> Markdown and HTML                                |
"""
