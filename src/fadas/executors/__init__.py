"""Executors train jobs, in any order and together, as long as an update is there when it is collected."""

from collections.abc import Callable
from typing import Protocol

from fadas.executors.batched import Batched
from fadas.executors.cuda import Cuda
from fadas.executors.inline import Inline
from fadas.ledger import Job
from fadas.model import Model, Update

__all__ = ["EXECUTORS", "Batched", "Cuda", "Executor", "Inline"]


class Executor(Protocol):
    def submit(self, job: Job, start: Model) -> None:
        """This job will be collected some day; it trains from `start`."""
        ...

    def collect(self, job: Job) -> Update:
        """The update of a submitted job, which is then forgotten."""
        ...

    def evaluate(self, model: Model) -> dict[str, float]:
        """The task's metrics of a global model."""
        ...

    def close(self) -> None: ...


# Each is called as EXECUTORS[name](task, local, seed, device, **options).
EXECUTORS: dict[str, Callable[..., Executor]] = {"inline": Inline, "batched": Batched, "cuda": Cuda}
