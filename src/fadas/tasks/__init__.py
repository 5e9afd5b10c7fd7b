"""Tasks by name. A task is made by a function of its settings; `clients`, `validation` and `seed` are common to all."""

from collections.abc import Callable

from fadas.tasks.digits import digits
from fadas.tasks.task import Task, accuracy, cross_entropy

__all__ = ["TASKS", "Task", "accuracy", "cross_entropy"]

TASKS: dict[str, Callable[..., Task]] = {"digits": digits}
