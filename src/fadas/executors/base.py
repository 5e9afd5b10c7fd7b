"""What an executor is."""

from abc import ABC, abstractmethod

from fadas.core.ledger import Job
from fadas.core.model import Model, Update


class Executor(ABC):
    """Trains jobs, in any order and together, as long as an update is there when it is collected."""

    device: str  # where models are

    @abstractmethod
    def submit(self, job: Job, start: Model, due: int) -> None:
        """This job trains from `start` and will be collected, those with a smaller `due` first."""

    @abstractmethod
    def collect(self, job: Job) -> Update:
        """The update of a submitted job, which is then forgotten."""

    @abstractmethod
    def evaluate(self, model: Model) -> dict[str, float]:
        """The task's metrics of a global model."""

    def finished(self) -> list[Update]:
        """Updates not collected yet that would be rounded differently if trained again: a checkpoint must keep them."""
        return []

    @abstractmethod
    def close(self) -> None:
        """Let go of workers, memory and whatever is under way."""
