"""Executors train jobs, in any order and together, as long as an update is there when it is collected."""

import warnings
from collections.abc import Callable
from typing import Protocol

import torch

from fadas.batch import BatchTrainer
from fadas.client import LocalSGD
from fadas.executors.batched import Batched, is_small
from fadas.executors.cuda import Cuda
from fadas.executors.inline import Inline
from fadas.executors.processes import Processes, can_fork
from fadas.executors.ray import Ray
from fadas.ledger import Job
from fadas.model import FlatModule, Model, Update
from fadas.task import Task

__all__ = ["EXECUTORS", "Batched", "Cuda", "Executor", "Inline", "Processes", "Ray", "auto"]


class Executor(Protocol):
    device: str  # where models are

    def submit(self, job: Job, start: Model, due: int) -> None:
        """This job trains from `start` and will be collected, those with a smaller `due` first."""
        ...

    def collect(self, job: Job) -> Update:
        """The update of a submitted job, which is then forgotten."""
        ...

    def evaluate(self, model: Model) -> dict[str, float]:
        """The task's metrics of a global model."""
        ...

    def close(self) -> None: ...


def auto(task: Task, local: LocalSGD, seed: int, device: str = "cpu", compile: bool = False) -> Executor:
    """The one that suits task and device: cuda on a GPU; batched for small networks; else a process per core.

    It chooses by the task, never by the clock, so the same run gives the same numbers again: processes train with one
    thread each, as a machine with a single core does in-process. `compile` is for GPUs: it pays when a run is long.
    """
    if torch.device(device).type == "cuda":
        for compiled in sorted({compile, False}, reverse=True):
            try:
                return Cuda(task, local, seed, device, compile=compiled)
            except RuntimeError as error:  # e.g. because the host looks at a value
                what = "compiled" if compiled else "captured"
                warnings.warn(f"the local steps cannot be {what}, which is slower: {error}", stacklevel=2)
        return Inline(task, local, seed, device, "bf16")
    if torch.device(device).type != "cpu":
        return Inline(task, local, seed, device)
    if is_small(task, local) and BatchTrainer(FlatModule(task.module(seed)), task, local, seed).stacked:
        return Batched(task, local, seed)
    if torch.get_num_threads() > 1 and can_fork():
        return Processes(task, local, seed)
    return Inline(task, local, seed)


# Each is called as EXECUTORS[name](task, local, seed, device, **options).
EXECUTORS: dict[str, Callable[..., Executor]] = {
    "auto": auto,
    "inline": Inline,
    "batched": Batched,
    "processes": Processes,
    "cuda": Cuda,
    "ray": Ray,
}
