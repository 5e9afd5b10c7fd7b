"""The paper's tables and figures, reproduced.

| file              | what it holds                                                        |
|-------------------|----------------------------------------------------------------------|
| `paper.toml`      | the paper as data: tables, figures, published numbers                |
| `artefacts.py`    | `paper.toml` -> artefacts and their cells                            |
| `run_cells.py`    | run cells                                                            |
| `grid_search.py`  | search the paper's grids for better settings                         |
| `results.py`      | the JSON files that are kept of cells and searches                   |
| `agreement.py`    | does a measured entry agree with the published one?                  |
| `claims.py`       | does the order of lines in a figure hold?                            |
| `page.py`         | the outline of the reproduction page                                 |
| `page_tables.py`  | its tables                                                           |
| `page_figures.py` | its figures                                                          |
| `blocks.py`       | a page as blocks -> Markdown and HTML                                |
"""
