"""Tasks: a model, the clients' data and a loss.

| file            | what it holds                                                             |
|-----------------|---------------------------------------------------------------------------|
| `task.py`       | `Task`, and the default loss                                              |
| `metrics.py`    | ready metrics: accuracy, F1, AUC, RMSE, perplexity                        |
| `subsets.py`    | clients' data over one data set, in memory or on disk                     |
| `digits.py`     | handwritten digits                                                        |
| `cifar.py`      | CIFAR-10 and CIFAR-100                                                    |
| `glue.py`       | RTE, MRPC and SST-2                                                       |
| `files.py`      | the user's data in files                                                  |
| `names.py`      | names of functions of Python's standard library                           |
| `functions.py`  | the functions of Python's standard library, as sets of words              |
| `networks.py`   | networks for 32x32 images                                                 |
| `encoders.py`   | pre-trained text encoders with LoRA                                       |
| `partition.py`  | how a data set is split among clients                                     |
| `weights.py`    | weights to start from                                                     |
| `downloads.py`  | data sets as archives: download, check, unpack                            |

A task is a function that returns a `Task`. It takes `clients` and, for sweeps, `validation`: the share of training data
to hold out. To add one, write such a function and enter it in `TASKS` below.
"""

from collections.abc import Callable
from functools import partial

from fadas.tasks.cifar import cifar
from fadas.tasks.digits import digits
from fadas.tasks.files import files
from fadas.tasks.glue import glue
from fadas.tasks.names import names
from fadas.tasks.task import Task

__all__ = ["TASKS"]

TASKS: dict[str, Callable[..., Task]] = {
    "digits": digits,
    "names": names,
    "cifar10": partial(cifar, "cifar10"),
    "cifar100": partial(cifar, "cifar100"),
    "rte": partial(glue, "rte"),
    "mrpc": partial(glue, "mrpc"),
    "sst2": partial(glue, "sst2"),
    "files": files,
}
