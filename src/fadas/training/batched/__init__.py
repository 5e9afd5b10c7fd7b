"""Training of many jobs in one call, for small models.

| file                | what it holds                                                  |
|---------------------|----------------------------------------------------------------|
| `many_jobs.py`      | `BatchTrainer`, which collates and trains jobs                 |
| `stacked.py`        | chains of layers for many models at once                       |
| `layers.py`         | the layers of these chains                                     |
| `stacked_losses.py` | losses for these chains                                        |
"""
