"""What a client does with a job.

| file                | what it holds                                                                 |
|---------------------|-------------------------------------------------------------------------------|
| `sgd.py`            | `LocalSGD`, the base of local trainers, and the rows that a job trains on     |
| `optimizers.py`     | the other local optimizers: momentum, Adam, ... and steps of your own         |
| `schedules.py`      | learning rates that change with the server's version                          |
| `work.py`           | numbers of local steps that differ between clients or jobs                    |
| `job_state.py`      | the vectors of a job: what was sent, what the client keeps and returns        |
| `flat_module.py`    | `FlatModule`, a torch module as flat vectors                                  |
| `one_job.py`        | one job at a time: the reference                                              |
| `batched/`          | many jobs in one call, by `vmap` or as a stacked chain                        |
| `settings.py`       | local training from plain settings                                            |
| `preflight.py`      | checks before a run                                                           |

**A local step is written once**, as the method `step` of a local trainer. The plain SGD step, which most runs use, is
written again where it is faster: `_run_mapped` in `batched/many_jobs.py`, `Linear.learn` in `batched/layers.py`, and
`Bench` in `executors/cuda.py`. Tests compare each with `one_job.py`.
"""

from fadas.training.flat_module import FlatModule
from fadas.training.one_job import train_job
from fadas.training.optimizers import (
    LOCAL_TRAINERS,
    Adam,
    AdamW,
    AMSGrad,
    CustomStep,
    Momentum,
    Nesterov,
    TorchOptimizer,
)
from fadas.training.schedules import RATE_SCHEDULES, Cosine, InverseSqrt, RateSchedule, Steps
from fadas.training.settings import local_from_table
from fadas.training.sgd import LocalSGD
from fadas.training.work import STEP_LAWS, LogNormal, StepLaw, Table, Uniform

__all__ = [
    "LOCAL_TRAINERS",
    "RATE_SCHEDULES",
    "STEP_LAWS",
    "AMSGrad",
    "Adam",
    "AdamW",
    "Cosine",
    "CustomStep",
    "FlatModule",
    "InverseSqrt",
    "LocalSGD",
    "LogNormal",
    "Momentum",
    "Nesterov",
    "RateSchedule",
    "StepLaw",
    "Steps",
    "Table",
    "TorchOptimizer",
    "Uniform",
    "local_from_table",
    "train_job",
]
