"""Search for the best settings of algorithms.

| file              | what it holds                                                            |
|-------------------|--------------------------------------------------------------------------|
| `grids.py`        | the values to try: lists, ranges, samples, and what lies beyond an edge  |
| `points.py`       | the runs of a grid                                                       |
| `ranking.py`      | points from best to worst, and the edges on which the best one lies      |
| `halving.py`      | successive halving over points                                           |
| `search.py`       | a search that extends its grids                                          |
| `apply.py`        | writes the best values into an experiment file                           |
| `from_python.py`  | `fadas.sweep`                                                            |
| `point_runner.py` | runs the points of `fadas.sweep`                                         |
"""
