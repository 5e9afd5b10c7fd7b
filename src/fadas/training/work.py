"""How many local steps a job takes, where clients differ: laws for `local.steps`."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal, Protocol

from fadas.core.ledger import Job
from fadas.errors import ConfigError
from fadas.rng import WORK, mix
from fadas.validate import MOST_BATCHES, InvalidValue, at_least, at_most, not_negative, one_of

Per = Literal["job", "client"]


class StepLaw(Protocol):
    """The number of local steps of a job. It depends on the arguments alone, so that runs repeat.

    Example:
        >>> def steps(job: Job, examples: int, seed: int) -> int:
        ...     return 5 if job.client < 10 else 20
        >>> LocalSGD(lr=0.1, steps=steps)
    """

    def __call__(self, job: Job, examples: int, seed: int) -> int:
        """Return how many batches the job trains, at least 1.

        Args:
            job: The job.
            examples: How many examples the client has.
            seed: The run's seed.
        """
        ...


@dataclass(frozen=True)
class Table:
    """A number of local steps for each client.

    Args:
        counts: The steps of client 0, client 1, ...

    Example:
        >>> Table([5, 5, 20, 50])
    """

    counts: tuple[int, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "counts", tuple(self.counts))
        if not self.counts:
            raise InvalidValue("counts", "must have an entry for each client")
        for count in self.counts:
            at_least(1, counts=count)
            at_most(MOST_BATCHES, counts=count)

    def __call__(self, job: Job, examples: int, seed: int) -> int:
        """Return the entry of the job's client."""
        if job.client >= len(self.counts):
            raise ConfigError(f"local.steps.counts has {len(self.counts)} entries, and none for client {job.client}")
        return self.counts[job.client]


@dataclass(frozen=True)
class Uniform:
    """A whole number from `low` to `high`, each with the same probability.

    Args:
        low: The smallest number of steps.
        high: The largest number of steps.
        per: "job": each job draws its own. "client": a client always takes the same number.

    Example:
        >>> Uniform(5, 50, per="client")
    """

    low: int
    high: int
    per: Per = "job"

    def __post_init__(self) -> None:
        at_least(1, low=self.low)
        at_least(self.low, high=self.high)
        at_most(MOST_BATCHES, high=self.high)
        one_of(("job", "client"), per=self.per)

    def __call__(self, job: Job, examples: int, seed: int) -> int:
        """Return the number of the job or of its client."""
        return self.low + int(_draw(job, seed, self.per) * (self.high - self.low + 1))


@dataclass(frozen=True)
class LogNormal:
    """A log-normal number of steps: most jobs take about `median`, a few take far more.

    Args:
        median: Half of the jobs take fewer steps.
        sigma: The standard deviation of the logarithm. 0: all jobs take `median` steps.
        per: "job": each job draws its own. "client": a client always takes the same number.
        most: The largest number of steps. None: ten times the median.

    Example:
        >>> LogNormal(median=10, sigma=1.0, per="client", most=200)
    """

    median: int
    sigma: float = 0.5
    per: Per = "job"
    most: int | None = None

    def __post_init__(self) -> None:
        at_least(1, median=self.median)
        at_least(self.median, most=self.most)
        at_most(MOST_BATCHES, median=self.median, most=self.most)
        not_negative(sigma=self.sigma)
        one_of(("job", "client"), per=self.per)

    def __call__(self, job: Job, examples: int, seed: int) -> int:
        """Return the number of the job or of its client."""
        most = min(self.most or 10 * self.median, MOST_BATCHES.most)
        power = self.sigma * NormalDist().inv_cdf(_draw(job, seed, self.per))
        return max(1, min(most, round(self.median * math.exp(min(power, math.log(most))))))


def _draw(job: Job, seed: int, per: Per) -> float:
    """Return a number between 0 and 1, both excluded, for the job or for its client."""
    purpose = (WORK, 0, job.client) if per == "client" else (WORK, 1, job.id)
    return ((mix(seed, *purpose) >> 12) + 0.5) / (1 << 52)


STEP_LAWS: Mapping[str, Callable[..., StepLaw]] = {"table": Table, "uniform": Uniform, "lognormal": LogNormal}
