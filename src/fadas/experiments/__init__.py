"""From an experiment file to runs.

| file                 | what it holds                                                                 |
|----------------------|-------------------------------------------------------------------------------|
| `experiment_file.py` | TOML -> tables, with profiles and overrides                                   |
| `settings.py`        | `RunConfig`, and the sections [run] and [schedule]                            |
| `resolve.py`         | tables -> `RunConfig`                                                         |
| `prepare.py`         | `RunConfig` -> task, plan, simulation                                         |
| `run.py`             | run a simulation and write its folder                                         |
| `queue.py`           | the order of runs; one that another process holds is retried once at the end  |
| `sweeps/`            | grids, ranges, halving, `fadas.sweep`                                         |
| `parallel_runs.py`   | runs in several processes                                                     |
| `catalog/`           | a list of all settings, for the reference and for help                        |
| `provenance.py`      | hardware, versions and commit                                                 |
"""
