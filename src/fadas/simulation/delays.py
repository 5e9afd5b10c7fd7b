"""Delay models: how long a job takes, in virtual time.

A model is bound once to a number of clients. Binding draws what is fixed for each client, and returns a function
(client, u) -> duration. Each job has its own u, a uniform random number in (0, 1). The function is the inverse of the
duration's distribution function.
"""

import csv
import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist
from typing import ClassVar, Protocol, runtime_checkable

import numpy as np

from fadas.simulation.faults import Fault
from fadas.validate import Range, check_range, fraction, positive

Duration = Callable[[int, float], float]


class DelayModel(Protocol):
    """What a delay model must have: a method that returns how long a client's job takes.

    Example:
        >>> @dataclass(frozen=True)
        ... class Fixed:
        ...     duration: float = 1.0
        ...
        ...     def bind(self, clients, rng):
        ...         return lambda client, u: self.duration
    """

    def bind(self, clients: int, rng: np.random.Generator) -> Duration:
        """Return the function (client, u) -> duration.

        Args:
            clients: The number of clients.
            rng: A generator for what is drawn once per client.
        """
        ...


@runtime_checkable
class TieredDelays(Protocol):
    """What a delay model has if its clients belong to tiers. Reports then compare the tiers.

    Attributes:
        tier_names: The names of the tiers, from the fastest to the slowest.

    Example:
        >>> class Halves:
        ...     tier_names = ("wired", "mobile")
        ...
        ...     def tiers(self, clients, rng):
        ...         return np.arange(clients) % 2
        ...
        ...     def bind(self, clients, rng):
        ...         slow = self.tiers(clients, rng)
        ...         return lambda client, u: 1.0 + 9.0 * slow[client] * u
    """

    tier_names: Sequence[str]

    def tiers(self, clients: int, rng: np.random.Generator) -> np.ndarray:
        """Return the index of each client's tier. `bind` must draw the tiers in the same way, before anything else.

        Args:
            clients: The number of clients.
            rng: A generator in the state that `bind` gets.
        """
        ...


_TIERS = ("small", "medium", "large")


@dataclass(frozen=True)
class Large:
    """The paper's large worst-case delays: most jobs take 1 to 5, those of a few clients 50 to 80.

    Each client belongs to one of three tiers. The duration of each job is uniform in the range of its client's tier.
    By default the tiers are random: a client draws from Dirichlet(3 gamma, 2 gamma, gamma), and its tier is the largest
    coordinate. With few clients a tier may be empty. Set `shares` to fix the sizes of the tiers.

    | gamma | small | medium | large |
    |-------|-------|--------|-------|
    | 0.1   | 51 %  | 33 %   | 16 %  |
    | 0.5   | 57 %  | 31 %   | 12 %  |
    | 1     | 64 %  | 28 %   | 8 %   |
    | 5     | 84 %  | 15 %   | 1 %   |

    Args:
        gamma: Concentration of the Dirichlet distribution. A smaller gamma puts more clients into the large tier.
        small: The range of durations of the small tier.
        medium: The range of the medium tier.
        large: The range of the large tier.
        shares: The shares of clients in the three tiers. None: draw the tiers.

    Example:
        >>> Large(shares=(0.6, 0.3, 0.1))
        >>> Large(gamma=0.5, small=(0.5, 1.0), medium=(2.0, 4.0), large=(20.0, 30.0))
    """

    gamma: float = 1.0
    small: Range = (1.0, 2.0)
    medium: Range = (3.0, 5.0)
    large: Range = (50.0, 80.0)
    shares: tuple[float, float, float] | None = None
    tier_names: ClassVar[Sequence[str]] = _TIERS

    def __post_init__(self) -> None:
        positive(gamma=self.gamma)
        for name in _TIERS:
            check_range(name, getattr(self, name))
        if self.shares is None:
            return
        if len(self.shares) != 3 or min(self.shares) < 0 or not math.isclose(sum(self.shares), 1, abs_tol=1e-6):
            raise ValueError(f"shares must be three numbers that add up to 1, got {list(self.shares)}")
        if self.gamma != 1:
            raise ValueError("gamma has no effect together with shares; set one of them")

    def tiers(self, clients: int, rng: np.random.Generator) -> np.ndarray:
        """Return 0, 1 or 2 for each client: small, medium or large."""
        if self.shares is not None:
            return rng.permutation(np.repeat(np.arange(3), _round_shares(self.shares, clients)))
        g = self.gamma
        return rng.dirichlet((3 * g, 2 * g, g), clients).argmax(1)

    def wanted_tiers(self) -> list[str]:
        """Return the names of the tiers whose share is not 0."""
        return [name for name, share in zip(_TIERS, self.shares or (1, 1, 1), strict=True) if share]

    def empty_tiers(self, clients: int, rng: np.random.Generator) -> list[str]:
        """Return the names of the tiers without a client."""
        counts = np.bincount(self.tiers(clients, rng), minlength=3)
        return [name for name, count in zip(_TIERS, counts, strict=True) if not count]

    def bind(self, clients: int, rng: np.random.Generator) -> Duration:
        """Draw the clients' tiers. Return the function (client, u) -> duration."""
        ranges = (self.small, self.medium, self.large)
        tier: list[int] = self.tiers(clients, rng).tolist()

        def duration(client: int, u: float) -> float:
            low, high = ranges[tier[client]]
            return low + (high - low) * u

        return duration


def _round_shares(shares: Sequence[float], clients: int) -> list[int]:
    """Return the number of clients for each share, by the method of largest remainders."""
    exact = [share * clients for share in shares]
    counts = [math.floor(value + 1e-9) for value in exact]
    by_remainder = sorted(range(len(shares)), key=lambda k: (counts[k] - exact[k], k))
    for k in by_remainder[: clients - sum(counts)]:
        counts[k] += 1
    return counts


@dataclass(frozen=True)
class Mild(Large):
    """The paper's mild delays: like the large ones, but jobs of the large tier take only 5 to 8.

    Args:
        gamma: Concentration of the Dirichlet distribution. A smaller gamma puts more clients into the large tier.
        small: The range of durations of the small tier.
        medium: The range of the medium tier.
        large: The range of the large tier.
        shares: The shares of clients in the three tiers. None: draw the tiers.

    Example:
        >>> Mild(shares=(0.6, 0.3, 0.1))
        >>> Mild(gamma=0.5, small=(0.5, 1.0), medium=(2.0, 4.0), large=(6.0, 9.0))
    """

    large: Range = (5.0, 8.0)


@dataclass(frozen=True)
class Uniform:
    """Uniformly distributed durations in [low, high].

    Args:
        low: The shortest duration.
        high: The longest duration.

    Example:
        >>> Uniform(low=0.5, high=3.0)
    """

    low: float = 1.0
    high: float = 2.0

    def __post_init__(self) -> None:
        check_range("low, high", (self.low, self.high))

    def bind(self, clients: int, rng: np.random.Generator) -> Duration:
        """Return the function (client, u) -> duration."""
        return lambda client, u: self.low + (self.high - self.low) * u


@dataclass(frozen=True)
class Lognormal:
    """Lognormally distributed durations.

    Args:
        median: The median duration.
        sigma: The standard deviation of the duration's logarithm.

    Example:
        >>> Lognormal(median=2.0, sigma=0.5)
    """

    median: float = 1.0
    sigma: float = 1.0

    def __post_init__(self) -> None:
        positive(median=self.median, sigma=self.sigma)

    def bind(self, clients: int, rng: np.random.Generator) -> Duration:
        """Return the function (client, u) -> duration."""
        quantile = NormalDist(math.log(self.median), self.sigma).inv_cdf
        return lambda client, u: math.exp(quantile(u))


@dataclass(frozen=True)
class Exponential:
    """Exponentially distributed durations, so that arrivals are memoryless.

    Args:
        mean: The mean duration.

    Example:
        >>> Exponential(mean=2.0)
    """

    mean: float = 1.0

    def __post_init__(self) -> None:
        positive(mean=self.mean)

    def bind(self, clients: int, rng: np.random.Generator) -> Duration:
        """Return the function (client, u) -> duration."""
        return lambda client, u: -self.mean * math.log1p(-u)


@dataclass(frozen=True)
class Pareto:
    """Pareto-distributed durations: most jobs are short, and a few take very long.

    Args:
        scale: The shortest duration.
        shape: The tail index. A smaller shape gives a heavier tail.

    Example:
        >>> Pareto(scale=2.0, shape=1.2)
    """

    scale: float = 1.0
    shape: float = 1.5

    def __post_init__(self) -> None:
        positive(scale=self.scale, shape=self.shape)

    def bind(self, clients: int, rng: np.random.Generator) -> Duration:
        """Return the function (client, u) -> duration."""
        return lambda client, u: self.scale * (1 - u) ** (-1 / self.shape)


@dataclass(frozen=True)
class DelayTable:
    """Durations from a CSV file, with a range for each client.

    The first line is `client,low,high`. Every client has one row, and its durations are uniform in [low, high].

    Args:
        path: The CSV file.
        digest: The expected SHA-256 digest of the file. A run's saved settings hold it, so that a changed file is
            noticed. None: any file.

    Example:
        >>> Path("delays.csv").write_text("client,low,high\\n0,1.0,2.0\\n1,50.0,80.0\\n")
        >>> DelayTable("delays.csv")
    """

    path: str
    digest: str | None = None

    def file_digest(self) -> str:
        """Return the file's SHA-256 digest.

        Raises:
            ValueError: The file cannot be read.
        """
        try:
            return hashlib.sha256(Path(self.path).read_bytes()).hexdigest()
        except OSError as error:
            raise ValueError(f"cannot read the delay table {self.path}: {error.strerror}") from None

    def bind(self, clients: int, rng: np.random.Generator) -> Duration:
        """Read the file. Return the function (client, u) -> duration.

        Raises:
            ValueError: The file cannot be read, is not a valid table, has changed, or lacks a client.
        """
        if self.digest not in (None, self.file_digest()):
            raise ValueError(
                f"the delay table {self.path} has changed since these settings were saved; restore the file, or use "
                "the original settings"
            )
        ranges = self._read_table()
        missing = next((c for c in range(clients) if c not in ranges), None)
        if missing is not None:
            raise ValueError(f"{self.path} has no row for client {missing} (there are {clients} clients)")

        def duration(client: int, u: float) -> float:
            low, high = ranges[client]
            return low + (high - low) * u

        return duration

    def _read_table(self) -> dict[int, Range]:
        ranges: dict[int, Range] = {}
        try:
            with Path(self.path).open(newline="", encoding="utf-8-sig") as file:
                reader = csv.DictReader(file, strict=True)
                if reader.fieldnames != ["client", "low", "high"]:
                    raise ValueError(f"{self.path}: the first line must be 'client,low,high'")
                for row in reader:
                    where = f"{self.path}, line {reader.line_num}"
                    try:
                        client, low, high = int(row["client"]), float(row["low"]), float(row["high"])
                    except (TypeError, ValueError):
                        raise ValueError(f"{where}: expected three numbers: client, low, high") from None
                    if client in ranges:
                        raise ValueError(f"{where}: client {client} appears twice")
                    check_range(f"{where}: low, high", (low, high))
                    ranges[client] = (low, high)
        except OSError as error:
            raise ValueError(f"cannot read the delay table {self.path}: {error.strerror}") from None
        except (csv.Error, UnicodeDecodeError) as error:
            raise ValueError(f"{self.path} is not a CSV file: {error}") from None
        return ranges


@dataclass(frozen=True)
class Delays:
    """How long jobs take, and what goes wrong: a delay model, with dropout, a deadline and faults.

    Args:
        model: How long jobs take.
        dropout: The probability that a job ends without an update, at a uniformly random moment of its duration.
            Another client gets its slot at once.
        deadline: A job that would take longer is cancelled after this time. Another client gets its slot. None: no
            deadline.
        scale_by_data: Multiply a client's durations by its number of examples, relative to the mean over the clients.
        faults: Clients that fail or report wrong updates.

    Example:
        >>> Delays(Large(shares=(0.6, 0.3, 0.1)), dropout=0.05, deadline=60.0)
    """

    model: DelayModel = Large()
    dropout: float = 0.0
    deadline: float | None = None
    scale_by_data: bool = False
    faults: tuple[Fault, ...] = ()

    def __post_init__(self) -> None:
        if isinstance(self.model, type) or not hasattr(self.model, "bind"):
            got = f"the class {self.model.__name__}; call it" if isinstance(self.model, type) else repr(self.model)
            raise ValueError(f"delays need a delay model such as fadas.Large(), got {got}")
        fraction(dropout=self.dropout)
        if self.deadline is not None:
            positive(deadline=self.deadline)

    def bind(self, clients: int, rng: np.random.Generator, sizes: Sequence[int] | None = None) -> Duration:
        """Return the function (client, u) -> duration, without dropout, deadline and faults.

        Args:
            clients: The number of clients.
            rng: A generator for what is drawn once per client.
            sizes: The number of examples of each client, for `scale_by_data`.
        """
        duration = self.model.bind(clients, rng)
        if not self.scale_by_data:
            return duration
        if sizes is None or len(sizes) != clients:
            raise ValueError(
                "scale_by_data needs the number of examples of each client: fadas.plan(..., sizes=task.sizes)"
            )
        mean = sum(sizes) / clients
        factor = [size / mean for size in sizes]
        return lambda client, u: factor[client] * duration(client, u)


Table = DelayTable  # its name in fadas 0.1


DELAYS: dict[str, Callable[..., DelayModel]] = {
    "large": Large,
    "mild": Mild,
    "uniform": Uniform,
    "lognormal": Lognormal,
    "exponential": Exponential,
    "pareto": Pareto,
    "table": DelayTable,
}
