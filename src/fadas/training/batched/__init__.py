"""Training of many jobs in one call, for small models.

| file                | what it holds                                                  |
|---------------------|----------------------------------------------------------------|
| `many_jobs.py`      | `BatchTrainer`: collates jobs, and trains them one way or the other |
| `stacked.py`        | chains of layers for many models at once                       |
| `stacked_losses.py` | losses for these chains                                        |
"""
