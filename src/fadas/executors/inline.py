"""The inline executor: one job at a time, in this process."""

from collections.abc import Sequence
from typing import Literal

import torch

from fadas.core.ledger import Job
from fadas.core.model import Model, Update
from fadas.executors.base import Executor, choose_format
from fadas.executors.torch_settings import Precision, torch_threads as use_threads, use_precision
from fadas.tasks.task import Task, evaluate_clients
from fadas.training.flat_module import FlatModule, MemoryFormat
from fadas.training.one_job import train_job
from fadas.training.sgd import LocalSGD
from fadas.validate import MOST_THREADS, at_least, at_most


class Inline(Executor):
    """Trains one job at a time, in this process, when its update is needed.

    This executor is the reference. All others must agree with it.

    Args:
        task: Model, data and loss.
        local: What a client does with a job.
        seed: The run's seed.
        device: Where to train: "cpu", "cuda", "cuda:1", ...
        precision: "fp32", "tf32" (CUDA only) or "bf16".
        threads: The number of torch threads that train. None: one, as in workers. The number of threads may change
            the last bits of the results.
        memory_format: How images lie in memory: "contiguous" or "channels-last". "auto": channels-last on a CPU for
            networks with ordinary 2d convolutions, which train faster so. The results differ by rounding.

    Example:
        >>> executor = Inline(task, LocalSGD(), seed=0)
        >>> executor.submit(job, start, due=0)
        >>> update = executor.collect(job)
    """

    is_fallback = True

    def __init__(
        self,
        task: Task,
        local: LocalSGD,
        seed: int,
        device: str = "cpu",
        precision: Precision = "fp32",
        threads: int | None = None,
        memory_format: Literal["auto", MemoryFormat] = "auto",
    ) -> None:
        at_least(1, threads=threads)
        at_most(MOST_THREADS, threads=threads)
        self.task, self.local, self.seed, self.device = task, local, seed, device
        self.evaluation = FlatModule(task.module(seed), device)
        self.memory_format = choose_format(memory_format, self.evaluation)
        self._autocast, self._threads = use_precision(precision, device), threads or 1
        self._pending: dict[int, Model] = {}

    def use(self, local: LocalSGD) -> None:
        """Train in this way from now on."""
        self.local = local

    def submit(self, job: Job, start: Model, due: int) -> None:
        """Remember a job until it is collected."""
        self._pending[job.id] = start

    def collect(self, job: Job) -> Update:
        """Train a submitted job and return its update."""
        start = self._pending.pop(job.id)
        self.evaluation.memory_format = self.memory_format
        with use_threads(self._threads):
            return train_job(self.evaluation, self.task, self.local, self.seed, job, start, self._autocast)

    def evaluate(self, model: Model) -> dict[str, float]:
        """Return the task's metrics of a model."""
        self.evaluation.load(model)
        with torch.autocast(torch.device(self.evaluation.device).type, torch.bfloat16, enabled=self._autocast):
            return self.task.evaluate(self.evaluation.module)

    def evaluate_clients(self, model: Model, clients: Sequence[int] | None = None) -> dict[str, list[float]]:
        """Return the metrics of a model on each client's own test data."""
        self.evaluation.load(model)
        with torch.autocast(torch.device(self.evaluation.device).type, torch.bfloat16, enabled=self._autocast):
            return evaluate_clients(self.task, self.evaluation.module, clients=clients)

    def close(self) -> None:
        """Forget the jobs that have not been collected."""
        self._pending.clear()
