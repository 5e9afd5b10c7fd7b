"""The batched executor: all pending jobs at once, in this process."""

from collections.abc import Sequence

import torch

from fadas.core.ledger import Job
from fadas.core.model import Model, Update
from fadas.executors.base import Executor
from fadas.executors.torch_settings import torch_threads
from fadas.tasks.task import Task, evaluate_clients
from fadas.training.batched.many_jobs import BatchTrainer
from fadas.training.flat_module import FlatModule
from fadas.training.preflight import random_devices
from fadas.training.sgd import LocalSGD
from fadas.validate import at_least

SMALL = 2_000_000  # up to this step cost, kernel calls take longer than their arithmetic: more threads only wait


def step_cost(task: Task, local: LocalSGD) -> tuple[int, int]:
    """Return the cost of a local step: the number of parameters, and this number times the batch size."""
    parameters = sum(p.numel() for p in task.module().parameters())
    return parameters, parameters * min(local.batch_size, max(task.sizes))


class Batched(Executor):
    """Trains all pending jobs in one call when the first update is needed, for small models.

    A single job of a small model cannot use the whole machine. Many jobs in one call can.

    Args:
        task: Model, data and loss. Its clients' examples must have one shape.
        local: What a client does with a job.
        seed: The run's seed.
        device: Where to train: "cpu", "cuda", "cuda:1", ...
        size: The largest number of jobs in one call.

    Raises:
        Unsuitable: In `preflight`, if the model cannot be trained in batches with the same result as job by job.

    Example:
        >>> executor = Batched(task, LocalSGD(), seed=0, size=32)
        >>> executor.preflight()
        >>> executor.submit(job, start, due=0)
        >>> update = executor.collect(job)
    """

    def __init__(self, task: Task, local: LocalSGD, seed: int, device: str = "cpu", size: int = 64) -> None:
        at_least(1, size=size)
        self.size, self.device, self.local = size, device, local
        # A small network needs one thread. Other threads would keep spinning after use, and slow down the first one.
        self._threads = 1 if step_cost(task, local)[1] <= SMALL else torch.get_num_threads()
        with torch_threads(self._threads):
            self._trainer = BatchTrainer(FlatModule(task.module(seed), device), task, local, seed)
        self._pending: dict[int, tuple[Job, Model]] = {}
        self._done: dict[int, Update] = {}

    def use(self, local: LocalSGD) -> None:
        """Train in this way from now on."""
        old, self.local = self._trainer, local
        with torch_threads(self._threads):
            self._trainer = BatchTrainer(old.flat, old.task, local, old.seed)

    def preflight(self) -> None:
        """Refuse a model that cannot be trained in batches, or learns differently there."""
        with torch_threads(self._threads):
            self._trainer.check_batching()

    def can_stack(self) -> bool:
        """Return whether jobs can share a stacked module, which is the fastest way. A trial decides, once."""
        trainer = self._trainer
        with torch_threads(self._threads):
            return trainer.stacked is not None and not random_devices(trainer.flat, trainer.task)

    def submit(self, job: Job, start: Model, due: int) -> None:
        """Remember a job until an update is needed."""
        self._pending[job.id] = (job, start)

    def collect(self, job: Job) -> Update:
        """Return the update of a submitted job. Train all pending jobs if this one is still pending."""
        if job.id not in self._done:
            self._train_pending()
        return self._done.pop(job.id)

    def _train_pending(self) -> None:
        """Train all pending jobs, at most `size` in one call."""
        work = [self._pending[id] for id in sorted(self._pending)]
        self._pending.clear()
        with torch_threads(self._threads):
            for group in self._trainer.groups(work):
                for first in range(0, len(group), self.size):
                    for update in self._trainer.train(group[first : first + self.size]):
                        self._done[update.job.id] = update

    def finished(self) -> list[Update]:
        """Return the updates that are not collected yet. Beside other jobs they might be rounded differently."""
        return list(self._done.values())

    def evaluate(self, model: Model) -> dict[str, float]:
        """Return the task's metrics of a model."""
        flat = self._trainer.flat
        flat.load(model)
        with torch_threads(self._threads):
            return self._trainer.task.evaluate(flat.module)

    def evaluate_clients(self, model: Model, clients: Sequence[int] | None = None) -> dict[str, list[float]]:
        """Return the metrics of a model on each client's own test data."""
        flat = self._trainer.flat
        flat.load(model)
        with torch_threads(self._threads):
            return evaluate_clients(self._trainer.task, flat.module, clients=clients)

    def close(self) -> None:
        """Forget the jobs and updates that have not been collected."""
        self._pending.clear()
        self._done.clear()
