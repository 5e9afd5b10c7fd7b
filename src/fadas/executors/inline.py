"""One job at a time, in this process, when it is needed."""

import torch

from fadas.core.ledger import Job
from fadas.core.model import Model, Update
from fadas.executors.base import Executor
from fadas.executors.torch_settings import Precision, use_precision
from fadas.executors.torch_settings import torch_threads as use_threads
from fadas.tasks.task import Task
from fadas.training.flat_module import FlatModule
from fadas.training.one_job import train_job
from fadas.training.sgd import LocalSGD


class Inline(Executor):
    """Trains a job when it is collected: the reference that every other executor must agree with.

    It trains with one thread, as workers do: the number of threads may change the last bits.
    """

    def __init__(
        self,
        task: Task,
        local: LocalSGD,
        seed: int,
        device: str = "cpu",
        precision: Precision = "fp32",
        threads: int | None = None,
    ) -> None:
        self.task, self.local, self.seed, self.device = task, local, seed, device
        self.evaluation = FlatModule(task.module(seed), device)
        self._autocast, self._threads = use_precision(precision, device), threads or 1
        self._pending: dict[int, Model] = {}

    def submit(self, job: Job, start: Model, due: int) -> None:
        self._pending[job.id] = start

    def collect(self, job: Job) -> Update:
        start = self._pending.pop(job.id)
        with use_threads(self._threads):
            return train_job(self.evaluation, self.task, self.local, self.seed, job, start, self._autocast)

    def evaluate(self, model: Model) -> dict[str, float]:
        self.evaluation.load(model)
        with torch.autocast(torch.device(self.evaluation.device).type, torch.bfloat16, enabled=self._autocast):
            return self.task.evaluate(self.evaluation.module)

    def close(self) -> None:
        self._pending.clear()
