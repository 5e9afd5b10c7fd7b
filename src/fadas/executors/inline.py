"""One job at a time, in this process, when it is needed."""

from fadas.client import LocalSGD, train
from fadas.ledger import Job
from fadas.model import FlatModule, Model, Update
from fadas.task import Task


class Inline:
    """Trains a job when it is collected: the reference that every other executor must agree with."""

    def __init__(self, task: Task, local: LocalSGD, seed: int, device: str = "cpu") -> None:
        self.task, self.local, self.seed = task, local, seed
        self._flat = FlatModule(task.module(seed), device)
        self._pending: dict[int, Model] = {}

    def submit(self, job: Job, start: Model, due: int) -> None:
        self._pending[job.id] = start

    def collect(self, job: Job) -> Update:
        return train(self._flat, self.task, self.local, self.seed, job, self._pending.pop(job.id))

    def evaluate(self, model: Model) -> dict[str, float]:
        self._flat.load(model)
        return self.task.evaluate(self._flat.module)

    def close(self) -> None:
        self._pending.clear()
