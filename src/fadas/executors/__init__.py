"""Executors: where jobs are trained, and how many at a time."""

from collections.abc import Callable

from fadas.executors.auto import auto
from fadas.executors.base import Executor
from fadas.executors.batched import Batched
from fadas.executors.cuda import Cuda
from fadas.executors.inline import Inline
from fadas.executors.processes import Processes
from fadas.executors.ray import Ray

__all__ = ["EXECUTORS", "Batched", "Cuda", "Executor", "Inline", "Processes", "Ray", "auto"]


# An entry is called as EXECUTORS[name](task, local, seed, device, **options).
EXECUTORS: dict[str, Callable[..., Executor]] = {
    "auto": auto,
    "inline": Inline,
    "batched": Batched,
    "processes": Processes,
    "cuda": Cuda,
    "ray": Ray,
}
