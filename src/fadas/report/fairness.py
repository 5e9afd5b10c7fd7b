"""How evenly clients are served and take part: statistics of one value per client. Pure functions, no files."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from fadas.core.metrics import Metric

Tiers = Mapping[str, Sequence[int]]  # name -> clients, from the fastest tier to the slowest
THIRDS = ("fastest third", "middle third", "slowest third")
UNSEEN = "never arrived"


@dataclass(frozen=True)
class Spread:
    """The distribution of a metric over clients.

    Attributes:
        clients: The number of clients with a value.
        mean: The mean over these clients. Each client counts once, however many test examples it has.
        worst_decile: The mean over the worst tenth of them, rounded up.
        jain: Jain's index, see `jain_index`. None: it is not defined for this metric.
    """

    clients: int
    mean: float
    worst_decile: float
    jain: float | None


def measure_spread(values: Iterable[float | None], metric: Metric) -> Spread | None:
    """Return the distribution of a metric over clients. None if no client has a value.

    Args:
        values: One value per client. None: undefined. Such clients do not count.
        metric: The metric, which says what the worst values are.

    Example:
        >>> measure_spread([0.5, 1.0, None], Metric("accuracy"))
        Spread(clients=2, mean=0.75, worst_decile=0.5, jain=0.9)
    """
    known = [value for value in values if value is not None and math.isfinite(value)]
    if not known:
        return None
    jain = jain_index(known) if metric.better == "higher" else None
    return Spread(len(known), fmean(known), worst_decile(known, metric), jain)


def worst_decile(values: Sequence[float], metric: Metric) -> float:
    """Return the mean of the worst tenth of some values, rounded up to whole values.

    Args:
        values: At least one value.
        metric: The metric. If lower is better, the worst values are the largest.

    Example:
        >>> worst_decile([1.0] * 10 + [5.0], Metric("rmse"))
        3.0
    """
    ranked = sorted(values, reverse=metric.better == "lower")
    return fmean(ranked[: math.ceil(len(ranked) / 10)])


def jain_index(values: Sequence[float]) -> float | None:
    """Return Jain's index of fairness, (sum x)^2 / (n sum x^2): 1 if all are equal, 1/n if one has everything.

    It is meant for shares of a good: values where higher is better, none of them negative. For errors and losses it
    would call a model fair whose clients are all equally badly served.

    Args:
        values: One value per client.

    Returns:
        The index. None if a value is negative, or all are zero.

    Example:
        >>> jain_index([1.0, 1.0, 0.0, 0.0])
        0.5
    """
    squares = math.fsum(value * value for value in values)
    if min(values) < 0 or not squares:
        return None
    return min(1.0, math.fsum(values) ** 2 / (len(values) * squares))


def mean_by_tier(values: Sequence[float | None], tiers: Tiers) -> dict[str, float | None]:
    """Return the mean over the clients of each tier. None for a tier without a value.

    Args:
        values: One value per client. None: undefined. Such clients do not count.
        tiers: The clients of each tier.

    Example:
        >>> mean_by_tier([0.9, 0.7, 0.4], {"small": [0, 1], "large": [2]})
        {'small': 0.8, 'large': 0.4}
    """
    means: dict[str, float | None] = {}
    for name, members in tiers.items():
        known = [value for client in members if client < len(values) and (value := values[client]) is not None]
        means[name] = fmean(known) if known else None
    return means


def divide_by_duration(durations: Mapping[int, float], clients: int) -> dict[str, list[int]]:
    """Return thirds of the clients by the mean duration of their jobs, for delays without tiers.

    Args:
        durations: The mean duration of the jobs of each client that was seen.
        clients: The number of clients. Those that were not seen are a tier of their own, the last one.

    Returns:
        The clients of each third. Nothing if fewer than three clients were seen.

    Example:
        >>> divide_by_duration({0: 5.0, 1: 1.0, 2: 3.0}, clients=4)
        {'fastest third': [1], 'middle third': [2], 'slowest third': [0], 'never arrived': [3]}
    """
    ranked = sorted(durations, key=lambda client: (durations[client], client))
    if len(ranked) < 3:
        return {}
    cuts = [round(k * len(ranked) / 3) for k in range(4)]
    tiers = {name: sorted(ranked[cuts[k] : cuts[k + 1]]) for k, name in enumerate(THIRDS)}
    unseen = [client for client in range(clients) if client not in durations]
    return {**tiers, UNSEEN: unseen} if unseen else tiers


@dataclass(frozen=True)
class Participation:
    """How often clients took part, against uniform arrivals: each update comes from any client with equal probability.

    Attributes:
        clients: The number of clients.
        expected: The number of updates that each client is expected to have contributed.
        least: The smallest number of updates of a client, relative to `expected`.
        most: The largest number of updates of a client, relative to `expected`.
        distance: The total variation distance between the clients' shares of the updates and equal shares: the share
            of updates that would have to come from other clients. 0: uniform.
        chance: The distance to expect of as many uniform arrivals. A larger distance is no accident.
    """

    clients: int
    expected: float
    least: float
    most: float
    distance: float
    chance: float


def measure_participation(counts: Sequence[int]) -> Participation | None:
    """Return how often clients took part, against uniform arrivals. None if there are no updates.

    Args:
        counts: The number of updates of each client, also of those with none.

    Example:
        >>> measure_participation([6, 2, 0, 0]).distance
        0.5
    """
    updates, clients = sum(counts), len(counts)
    if not updates:
        return None
    expected = updates / clients
    distance = math.fsum(abs(count - expected) for count in counts) / (2 * updates)
    chance = expected_distance(updates, clients)
    return Participation(clients, expected, min(counts) / expected, max(counts) / expected, distance, chance)


def expected_distance(updates: int, clients: int) -> float:
    """Return the expected total variation distance from equal shares, if each update comes from a uniform client.

    De Moivre's formula gives the mean absolute deviation of a binomial number exactly: 2 k (1 - p) P(X = k), where k is
    the smallest whole number above its mean.

    Args:
        updates: The number of updates.
        clients: The number of clients.

    Example:
        >>> expected_distance(updates=1, clients=2)
        0.5
    """
    if clients == 1:
        return 0.0
    share = 1 / clients
    above = updates // clients + 1
    ways = math.lgamma(updates + 1) - math.lgamma(above + 1) - math.lgamma(updates - above + 1)
    exactly = math.exp(ways + above * math.log(share) + (updates - above) * math.log1p(-share))
    return clients * above * (1 - share) * exactly / updates
