"""What a client does with a job.

| file                | what it holds                                                                 |
|---------------------|-------------------------------------------------------------------------------|
| `sgd.py`            | `LocalSGD`, the settings of local training, and the rows that a job trains on |
| `flat_module.py`    | `FlatModule`, a torch module as flat vectors                                  |
| `one_job.py`        | one job at a time: the reference                                              |
| `many_jobs.py`      | many jobs in one call, by `vmap` or as a stacked chain                        |
| `stacked.py`        | chains of layers for many models at once                                      |
| `stacked_losses.py` | losses for these chains                                                       |
| `preflight.py`      | checks before a run                                                           |

**The local step is written four times.** Change all of them together: `one_job.py` (inline, processes, ray on CPUs,
Flower apps), `_run_mapped` in `many_jobs.py`, `Linear.learn` in `stacked.py`, and `Bench` in `executors/cuda.py`. Tests
compare each with `one_job.py`.
"""

from fadas.training.flat_module import FlatModule
from fadas.training.one_job import train_job
from fadas.training.sgd import LocalSGD

__all__ = ["FlatModule", "LocalSGD", "train_job"]
