"""What is told of a run, step by step: the lines of metrics.jsonl, of simulations and deployments alike."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

LATEST = 1e100  # no time is later: what is beyond can hardly be drawn


@dataclass(frozen=True)
class JobRecord:
    """A job that reached a server step: who trained when, and how stale the result was."""

    id: int
    client: int
    tau: int
    start: float
    end: float


@dataclass(frozen=True)
class Record:
    """One server step: a line of metrics.jsonl, but for `wall`."""

    step: int  # the version that the step produced: 1 after the first
    time: float  # virtual; in a deployment, seconds
    wall: float  # seconds since the simulation began
    updates: int  # client updates so far
    eta: float
    jobs: tuple[JobRecord, ...]
    train_loss: float
    dropped: int  # jobs so far that ended without an update, by reason
    expired: int
    refused: dict[str, int]  # updates so far that the server did not take, by reason
    privacy: dict[str, float] | None = None  # epsilon and delta spent so far, where differential privacy is used
    metrics: dict[str, float] | None = None  # on the test data, when evaluated

    def as_dict(self) -> dict[str, Any]:
        """All but the time it took: what is written down is the same whenever and wherever it is computed."""
        return {key: value for key, value in asdict(self).items() if key != "wall"}


TAUS = ("tau_max", "tau_avg", "tau_med")


def tau_statistics(step_maxima: Iterable[int]) -> dict[str, float]:
    """The paper's delay statistics: maximum, mean and median over the steps of each step's largest tau."""
    taus = list(step_maxima) or [0]
    return dict(zip(TAUS, (max(taus), sum(taus) / len(taus), float(median(taus))), strict=True))
