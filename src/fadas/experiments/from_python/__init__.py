"""What an experiment file can do, from Python.

| file          | what it holds                                                  |
|---------------|----------------------------------------------------------------|
| `describe.py` | objects -> plain values, the settings of a run                 |
| `simulate.py` | `fadas.simulate`, which can keep a run in a folder             |
| `compare.py`  | `fadas.compare`: methods and seeds in parallel, one result     |
"""
