"""From an experiment file to runs.

| file                 | what it holds                                                                 |
|----------------------|-------------------------------------------------------------------------------|
| `experiment_file.py` | TOML -> tables, with profiles and overrides                                   |
| `settings.py`        | `RunConfig`, and the sections [run] and [schedule]                            |
| `resolve.py`         | tables -> `RunConfig`                                                         |
| `prepare.py`         | `RunConfig` -> task, plan, simulation                                         |
| `run.py`             | run a simulation and write its folder                                         |
| `queue.py`           | the order of runs; one that another process holds is retried once at the end  |
| `grids.py`           | the values to try: lists, ranges, samples, and what lies beyond an edge       |
| `sweep.py`           | the runs of a grid                                                            |
| `ranking.py`         | points from best to worst, and the edges on which the best one lies           |
| `halving.py`         | successive halving over these points                                          |
| `search.py`          | a search that extends its grids                                               |
| `apply.py`           | writes the best values into an experiment file                                |
| `python_sweep.py`    | `fadas.sweep`; `point_runner.py` runs its points                              |
| `parallel_runs.py`   | runs in several processes                                                     |
| `catalog/`           | a list of all settings, for the reference and for help                        |
| `provenance.py`      | hardware, versions and commit                                                 |
"""
