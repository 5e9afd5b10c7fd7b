"""What executors with workers share: jobs wait in the order in which they are due, workers take them from the front."""

import heapq
from abc import abstractmethod
from collections.abc import Iterator
from typing import Generic, TypeVar

from fadas.core.ledger import Job
from fadas.core.model import Model, Update
from fadas.executors.base import Executor
from fadas.tasks.task import Task
from fadas.training.flat_module import FlatModule
from fadas.training.sgd import LocalSGD

Slot = TypeVar("Slot")  # a worker's place for one job; it has two, so that it need not wait for its next job


class Pool(Executor, Generic[Slot]):
    """Subclasses say how a job gets to a worker and how its update comes back."""

    device = "cpu"

    def __init__(self, task: Task, local: LocalSGD, seed: int) -> None:
        self.task, self.local, self.seed = task, local, seed
        self._flat = FlatModule(task.module(seed))  # for evaluation, in this process
        self._queue: list[tuple[int, Job, Model]] = []
        self._free: list[Slot] = []
        self._done: dict[int, Update] = {}

    def submit(self, job: Job, start: Model, due: int) -> None:
        heapq.heappush(self._queue, (due, job, start))
        self._dispatch()

    def collect(self, job: Job) -> Update:
        while job.id not in self._done:
            for slot, update in self._receive():
                self._done[update.job.id] = update
                self._free.append(slot)
            self._dispatch()
        return self._done.pop(job.id)

    def _dispatch(self) -> None:
        while self._queue and self._free:
            _, job, start = heapq.heappop(self._queue)
            self._send(self._free.pop(0), job, start)

    @abstractmethod
    def _send(self, slot: Slot, job: Job, start: Model) -> None: ...

    @abstractmethod
    def _receive(self) -> Iterator[tuple[Slot, Update]]:
        """Wait until at least one job is done."""
        ...

    def evaluate(self, model: Model) -> dict[str, float]:
        self._flat.load(model)
        return self.task.evaluate(self._flat.module)

    def close(self) -> None:
        self._queue.clear()
        self._done.clear()
