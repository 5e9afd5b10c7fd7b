"""Executors, and the choice of one."""

import warnings
from collections.abc import Callable

import torch

from fadas.executors.auto import auto
from fadas.executors.base import Executor
from fadas.executors.batched import SMALL, Batched, load
from fadas.executors.cuda import Cuda
from fadas.executors.inline import Inline
from fadas.executors.processes import Processes, can_fork
from fadas.executors.ray import Ray
from fadas.executors.torch_settings import threads
from fadas.tasks.task import Task
from fadas.training.flat_module import FlatModule
from fadas.training.many_jobs import BatchTrainer
from fadas.training.preflight import draws
from fadas.training.sgd import LocalSGD

__all__ = ["EXECUTORS", "Batched", "Cuda", "Executor", "Inline", "Processes", "Ray", "auto"]


# Each is called as EXECUTORS[name](task, local, seed, device, **options).
EXECUTORS: dict[str, Callable[..., Executor]] = {
    "auto": auto,
    "inline": Inline,
    "batched": Batched,
    "processes": Processes,
    "cuda": Cuda,
    "ray": Ray,
}
