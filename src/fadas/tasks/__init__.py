"""Tasks by name. A function makes each task from its settings. All of them have `clients` and `validation`."""

from collections.abc import Callable
from functools import partial

from fadas.tasks.cifar import cifar
from fadas.tasks.digits import digits
from fadas.tasks.files import files
from fadas.tasks.glue import glue
from fadas.tasks.task import Task

__all__ = ["TASKS"]

TASKS: dict[str, Callable[..., Task]] = {
    "digits": digits,
    "cifar10": partial(cifar, "cifar10"),
    "cifar100": partial(cifar, "cifar100"),
    "rte": partial(glue, "rte"),
    "mrpc": partial(glue, "mrpc"),
    "sst2": partial(glue, "sst2"),
    "files": files,
}
