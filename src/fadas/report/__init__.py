"""Reports on finished runs. Nothing here trains or imports torch.

| file             | what it holds                                                             |
|------------------|---------------------------------------------------------------------------|
| `comparison.py`  | the table that compares methods                                           |
| `figures.py`     | the figures; `FIGURES`, at the foot, lists them                           |
| `run_figures.py` | the figures of one run, for sinks                                         |
| `clients.py`     | tables and figures of clients: how well served, how often they took part  |
| `fairness.py`    | statistics of one value per client                                        |
| `timeline.py`    | the figure of the clients' timeline                                       |
| `html.py`        | report.html: the table, the figures, the settings                         |
"""
