"""The choice of an executor."""

import warnings
from typing import ClassVar, Literal

import torch

from fadas.executors.base import Executor, device_name
from fadas.executors.batched import SMALL, Batched, step_cost
from fadas.executors.cuda import Cuda
from fadas.executors.inline import Inline
from fadas.executors.processes import Processes, can_fork
from fadas.executors.torch_settings import Precision
from fadas.tasks.task import Task
from fadas.training.flat_module import MemoryFormat
from fadas.training.sgd import LocalSGD

_MEDIUM = 10_000_000  # on few cores, a chain up to this step cost trains faster stacked than in a process per core
_FEW = 4  # cores: with more of them, only chains of a small step cost train faster stacked
_STACKED = 500_000  # parameters: stacks of larger networks are slow to move and take memory


class Auto:
    """Chooses the executor that suits task and device.

    | device | network                     | executor               |
    |--------|-----------------------------|------------------------|
    | cuda   | any that can be captured    | cuda                   |
    | cuda   | others                      | inline, in bf16        |
    | cpu    | a small chain of layers     | batched                |
    | cpu    | others                      | processes, one per core |

    The choice depends on task and machine, never on the clock, so the same run gives the same numbers again.

    Args:
        task: Model, data and loss.
        local: What a client does with a job.
        seed: The run's seed.
        device: Where to train: "cpu", "cuda", "cuda:1", ...
        compile: Compile the network, on a GPU. It pays when a run is long.
        memory_format: How images lie in memory, on a CPU. See `Inline`.

    Example:
        >>> executor = auto(task, LocalSGD(), seed=0)
    """

    shared_options: ClassVar[tuple[str, ...]] = Cuda.shared_options
    is_fallback: ClassVar[bool] = False

    def default_precision(self, device: str) -> Precision:
        """Return bf16 on a GPU, else fp32."""
        return Cuda.default_precision(device)

    def server_device(self, device: str) -> str:
        """Return the device where clients train."""
        return device

    def hardware(self, device: str) -> str:
        """Return the name of the device."""
        return device_name(device)

    def __call__(
        self,
        task: Task,
        local: LocalSGD,
        seed: int,
        device: str = "cpu",
        compile: bool = False,
        memory_format: Literal["auto", MemoryFormat] = "auto",
    ) -> Executor:
        """Choose an executor and make it."""
        if torch.device(device).type == "cuda":
            return _on_gpu(task, local, seed, device, compile)
        if torch.device(device).type != "cpu":
            return Inline(task, local, seed, device)
        cores, (parameters, cost) = torch.get_num_threads(), step_cost(task, local)
        if parameters <= _STACKED and cost <= (_MEDIUM if cores <= _FEW else SMALL):
            batched = Batched(task, local, seed)
            if batched.can_stack():
                return batched
        if can_fork() and cores > 1:
            return Processes(task, local, seed, memory_format=memory_format)
        return Inline(task, local, seed, threads=1 if cost <= SMALL else cores, memory_format=memory_format)


def _on_gpu(task: Task, local: LocalSGD, seed: int, device: str, compile: bool) -> Executor:
    for compiled in sorted({compile, False}, reverse=True):
        try:
            return Cuda(task, local, seed, device, compile=compiled)
        except RuntimeError as error:  # e.g. because the host looks at a value
            what = "compiled" if compiled else "captured"
            warnings.warn(f"the local steps cannot be {what}, which is slower: {error}", stacklevel=3)
    return Inline(task, local, seed, device, "bf16")


auto = Auto()
