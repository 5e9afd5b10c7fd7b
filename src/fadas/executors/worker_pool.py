"""The base class of executors with workers: a queue of jobs, ordered by when they are due."""

import heapq
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Generic, TypeVar

from torch import Tensor

from fadas.core.ledger import Job
from fadas.core.model import Model, Update, Vectors
from fadas.executors.base import Executor
from fadas.tasks.task import Task, evaluate_clients
from fadas.training.flat_module import FlatModule
from fadas.training.sgd import LocalSGD

Slot = TypeVar("Slot")  # a worker's place for one job. A worker has several, so that its next job is always at hand.


def pack_vectors(update: Update) -> dict[str, Tensor]:
    """Return what an update holds beside its delta, under names that tell what is returned and what is kept."""
    returned = {f"returned.{name}": vector for name, vector in update.vectors.items()}
    return returned | {f"kept.{name}": vector for name, vector in update.kept.items()}


def unpack_vectors(packed: Vectors) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return the vectors that a client returns, and those that it keeps."""
    named = [(*name.split(".", 1), vector) for name, vector in packed.items()]
    returned, kept = ({name: v for part, name, v in named if part == what} for what in ("returned", "kept"))
    return returned, kept


class Pool(Executor, Generic[Slot]):
    """Hands jobs to workers. A subclass implements `_send` and `_receive`, and fills the list `_free`.

    Args:
        task: Model, data and loss.
        local: What a client does with a job.
        seed: The run's seed.
    """

    device = "cpu"

    def __init__(self, task: Task, local: LocalSGD, seed: int) -> None:
        self.task, self.local, self.seed = task, local, seed
        self._flat = FlatModule(task.module(seed))  # for evaluation, in this process
        self._queue: list[tuple[int, Job, Model]] = []
        self._free: list[Slot] = []
        self._done: dict[int, Update] = {}

    def use(self, local: LocalSGD) -> None:
        """Train in this way from now on. Workers start with the first job."""
        self.local = local

    def submit(self, job: Job, start: Model, due: int) -> None:
        """Queue a job, and hand it to a worker as soon as one has a free slot."""
        heapq.heappush(self._queue, (due, job, start))
        self._dispatch()

    def collect(self, job: Job) -> Update:
        """Wait for the update of a submitted job, and return it."""
        while job.id not in self._done:
            for slot, update in self._receive():
                self._done[update.job.id] = update
                self._free.append(slot)
            self._dispatch()
        return self._done.pop(job.id)

    def _dispatch(self) -> None:
        """Hand the first jobs of the queue to the free slots."""
        while self._queue and self._free:
            _, job, start = heapq.heappop(self._queue)
            self._send(self._free.pop(0), job, start)

    @abstractmethod
    def _send(self, slot: Slot, job: Job, start: Model) -> None:
        """Hand a job to a slot's worker."""
        ...

    @abstractmethod
    def _receive(self) -> Iterator[tuple[Slot, Update]]:
        """Wait until at least one job is done. Yield the slots that are free now, and the updates."""
        ...

    def evaluate(self, model: Model) -> dict[str, float]:
        """Return the task's metrics of a model, computed in this process."""
        self._flat.load(model)
        return self.task.evaluate(self._flat.module)

    def evaluate_clients(self, model: Model, clients: Sequence[int] | None = None) -> dict[str, list[float]]:
        """Return the metrics of a model on each client's own test data, computed in this process."""
        self._flat.load(model)
        return evaluate_clients(self.task, self._flat.module, clients=clients)

    def close(self) -> None:
        """Forget all jobs and updates."""
        self._queue.clear()
        self._done.clear()
