"""Everything pending at once, in this process: for models so small that one job cannot fill the machine."""

import torch

from fadas.core.ledger import Job
from fadas.core.model import Model, Update
from fadas.executors.base import Executor
from fadas.executors.torch_settings import torch_threads
from fadas.tasks.task import Task
from fadas.training.flat_module import FlatModule
from fadas.training.many_jobs import BatchTrainer
from fadas.training.sgd import LocalSGD
from fadas.validate import at_least

SMALL = 2_000_000  # below this load, calling kernels takes longer than their arithmetic: a second thread only waits


def step_cost(task: Task, local: LocalSGD) -> tuple[int, int]:
    """The network's parameters, and parameters x batch: how much there is to a local step."""
    parameters = sum(p.numel() for p in task.module().parameters())
    return parameters, parameters * min(local.batch_size, max(task.sizes))


class Batched(Executor):
    """Waits until a job is needed, then trains all pending jobs together, at most `size` in one call."""

    def __init__(self, task: Task, local: LocalSGD, seed: int, device: str = "cpu", size: int = 64) -> None:
        at_least(1, size=size)
        self.size, self.device = size, device
        # One is enough for a small network: threads that were used once go on spinning, in the way of the others.
        self._threads = 1 if step_cost(task, local)[1] <= SMALL else torch.get_num_threads()
        with torch_threads(self._threads):
            self._trainer = BatchTrainer(FlatModule(task.module(seed), device), task, local, seed)
        self._pending: dict[int, tuple[Job, Model]] = {}
        self._done: dict[int, Update] = {}

    def preflight(self) -> None:
        with torch_threads(self._threads):
            self._trainer.check_batching()

    def submit(self, job: Job, start: Model, due: int) -> None:
        self._pending[job.id] = (job, start)

    def collect(self, job: Job) -> Update:
        if job.id not in self._done:
            self._train_pending()
        return self._done.pop(job.id)

    def _train_pending(self) -> None:
        work = [self._pending[id] for id in sorted(self._pending)]
        self._pending.clear()
        with torch_threads(self._threads):
            for group in self._trainer.groups(work):
                for first in range(0, len(group), self.size):
                    for update in self._trainer.train(group[first : first + self.size]):
                        self._done[update.job.id] = update

    def finished(self) -> list[Update]:
        """What is trained and not yet collected. In other company it might be rounded differently."""
        return list(self._done.values())

    def evaluate(self, model: Model) -> dict[str, float]:
        flat = self._trainer.flat
        flat.load(model)
        with torch_threads(self._threads):
            return self._trainer.task.evaluate(flat.module)

    def close(self) -> None:
        self._pending.clear()
        self._done.clear()
