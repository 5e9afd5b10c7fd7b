"""Simulation in virtual time.

| file                | what it holds                                                         |
|---------------------|-----------------------------------------------------------------------|
| `delays.py`         | delay models: how long a job takes; their registry, `DELAYS`          |
| `faults.py`         | clients that fail or report wrong updates                             |
| `faulty_updates.py` | what a wrong update holds                                             |
| `planner.py`        | the whole timeline of a run, before anything is trained               |
| `preflight.py`      | all checks before a run                                               |
| `simulator.py`      | the plan played through the server                                    |
| `snapshot.py`       | the state of a simulation, to continue it exactly                     |
"""
