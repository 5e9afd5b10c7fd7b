"""Records of server steps: the lines of metrics.jsonl, in simulations and deployments."""

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from itertools import accumulate
from typing import Any

LATEST = 1e100  # times and rates are below this number, so that figures can draw them
TAUS = ("tau_max", "tau_avg", "tau_med")


@dataclass(frozen=True)
class JobRecord:
    """A job whose update reached a server step.

    Args:
        id: The job's number.
        client: The client that trained.
        tau: The delay of its update, in server versions.
        start: When the job started.
        end: When its update arrived.
    """

    id: int
    client: int
    tau: int
    start: float
    end: float


@dataclass(frozen=True)
class Record:
    """What is recorded of one server step: a line of metrics.jsonl, without `wall`.

    The first line is the record of the initial model: step 0, with an evaluation and no jobs. A simulation does not
    yield it, see `Simulation.initial`.

    Args:
        step: The version that the step produced: 1 after the first step.
        time: When the step was taken: virtual time, or seconds in a deployment.
        wall: Seconds since the run began.
        updates: Client updates so far.
        eta: The step size that was used.
        jobs: The jobs whose updates were in the step.
        train_loss: Their mean training loss.
        dropped: Jobs so far that ended without an update.
        expired: Jobs so far that missed their deadline.
        refused: Updates so far that the server refused, by reason.
        privacy: Epsilon and delta spent so far, with differential privacy.
        metrics: Measured on the test data, if the model was evaluated after this step.

    Example:
        >>> for record in fadas.simulate(plan, task, algorithm, local):
        ...     print(record.step, record.eta, max(job.tau for job in record.jobs))
    """

    step: int
    time: float
    wall: float
    updates: int
    eta: float
    jobs: tuple[JobRecord, ...]
    train_loss: float
    dropped: int
    expired: int
    refused: dict[str, int]
    privacy: dict[str, float] | None = None
    metrics: dict[str, float] | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return all fields except `wall`, so that a repeated run writes the same line."""
        return {key: value for key, value in asdict(self).items() if key != "wall"}


def initial_record(metrics: dict[str, float]) -> Record:
    """Return the record of the initial model.

    Args:
        metrics: What was measured on the test data.
    """
    return Record(0, 0.0, 0.0, 0, 0.0, (), math.nan, 0, 0, {}, None, metrics)


@dataclass(frozen=True)
class ClientsRecord:
    """An evaluation of one model on each client's own test data: a line of clients.jsonl.

    Args:
        step: The version of the model: 1 after the first server step.
        updates: Client updates so far.
        time: When the step was taken.
        metrics: For each metric one value per client. None: undefined, for example without test data.

    Example:
        >>> ClientsRecord(step=5, updates=10, time=3.2, metrics={"accuracy": [0.5, 1.0, None]})
    """

    step: int
    updates: int
    time: float
    metrics: dict[str, list[float | None]]

    @property
    def clients(self) -> int:
        """The number of clients."""
        return len(next(iter(self.metrics.values()), ()))

    def as_dict(self) -> dict[str, Any]:
        """Return the fields."""
        return asdict(self)


def clients_record(step: int, updates: int, time: float, measured: Mapping[str, Iterable[float]]) -> ClientsRecord:
    """Return the record of an evaluation. Values that are not finite count as undefined."""
    metrics = {name: [value if math.isfinite(value) else None for value in row] for name, row in measured.items()}
    return ClientsRecord(step, updates, time, metrics)


def tau_statistics(step_maxima: Iterable[int]) -> dict[str, float]:
    """Return the paper's delay statistics: maximum, mean and median over the steps of each step's largest tau."""
    return counted_tau_statistics(Counter(step_maxima))


def counted_tau_statistics(step_maxima: Mapping[int, int]) -> dict[str, float]:
    """Return the same statistics from counts: tau -> how many steps have this largest tau."""
    counts = step_maxima or {0: 1}
    taus = sorted(counts)
    ends = list(accumulate(counts[tau] for tau in taus))  # how many steps have at most this tau
    steps = ends[-1]
    middle = [taus[bisect_right(ends, place)] for place in ((steps - 1) // 2, steps // 2)]  # equal if `steps` is odd
    average = sum(tau * counts[tau] for tau in taus) / steps
    return dict(zip(TAUS, (taus[-1], average, sum(middle) / 2), strict=True))
