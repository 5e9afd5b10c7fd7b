"""Reports on finished runs. Nothing here trains or imports torch.

| file            | what it holds                                                             |
|-----------------|---------------------------------------------------------------------------|
| `comparison.py` | the comparison of methods: final values, equal time and updates, targets  |
| `statistics.py` | means, intervals, paired tests, medians of times: pure functions          |
| `table.py`      | the comparison as a table of text; `columns_of` lists the columns         |
| `figures/`      | the figures, of runs or pandas frames; `FIGURES` lists them               |
| `clients.py`    | tables and figures of clients: how well served, how often they took part  |
| `fairness.py`   | statistics of one value per client                                        |
| `run_figures.py`| the figures of one run, for sinks                                         |
| `frames.py`     | runs, steps and jobs as pandas frames                                     |
| `export.py`     | CSV, LaTeX, Markdown, Parquet                                             |
| `looks.py`      | the colour and line style of each method                                  |
| `html.py`       | report.html                                                               |
| `page/`         | its parts: settings, tables, interactive curves                           |
| `text.py`       | text from outside, made safe to show                                      |
"""
