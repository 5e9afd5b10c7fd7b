"""The choice of an executor."""

import warnings

import torch

from fadas.executors.base import Executor
from fadas.executors.batched import SMALL, Batched, step_cost
from fadas.executors.cuda import Cuda
from fadas.executors.inline import Inline
from fadas.executors.processes import Processes, can_fork
from fadas.executors.torch_settings import torch_threads
from fadas.tasks.task import Task
from fadas.training.flat_module import FlatModule
from fadas.training.many_jobs import BatchTrainer
from fadas.training.preflight import random_devices
from fadas.training.sgd import LocalSGD

_MEDIUM = 10_000_000  # up to this load a chain of layers trains faster stacked than in a process per core, ...

_FEW = 4  # ... of so many cores at most

_STACKED = 500_000  # parameters: stacks of more are slow to move and take memory


def auto(task: Task, local: LocalSGD, seed: int, device: str = "cpu", compile: bool = False) -> Executor:
    """The one that suits task and device: cuda on a GPU; batched for small networks; else a process per core.

    It chooses by task and machine, never by the clock, so the same run gives the same numbers again. `compile` is for
    GPUs: it pays when a run is long.
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
    cores, (parameters, size) = torch.get_num_threads(), step_cost(task, local)
    if parameters <= _STACKED and size <= (_MEDIUM if cores <= _FEW else SMALL):
        with torch_threads(1):  # more would only wait for each other
            flat = FlatModule(task.module(seed))
            stacks = BatchTrainer(flat, task, local, seed).stacked and not random_devices(flat, task)
        if stacks:
            return Batched(task, local, seed)
    if can_fork() and cores > 1:
        return Processes(task, local, seed)
    return Inline(task, local, seed, threads=1 if size <= SMALL else cores)
