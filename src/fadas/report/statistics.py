"""The statistics of a comparison: pure functions of numbers. Needs no matplotlib.

| question                                     | function             |
|----------------------------------------------|----------------------|
| how much do the seeds of a method vary?      | `describe`           |
| do two methods differ?                       | `compare_paired`     |
| is it more than chance, among many pairs?    | `adjust_holm`        |
| which methods are the best?                  | `find_best`          |
| when is a target reached, if not by all?     | `median_time`        |
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import combinations
from statistics import fmean, stdev

from fadas.core.metrics import Better

LEVEL = 0.05  # of the tests; intervals cover 1 - LEVEL
_SAME = 1e-12  # differences that vary by less than this share of the values do not vary at all: rounding


@dataclass(frozen=True)
class Sample:
    """The mean of a few numbers, and how sure it is.

    Attributes:
        count: How many numbers there are.
        mean: Their mean.
        std: Their sample standard deviation: squares are divided by count - 1. None for one number.
        low: The lower end of the 95 % confidence interval of the mean, by Student's t. None for one number.
        high: Its upper end.
    """

    count: int
    mean: float
    std: float | None = None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Difference:
    """How much better one method is than another, over the seeds that both have.

    Attributes:
        seeds: The number of common seeds.
        mean: The mean of the differences, first minus second. None without a common seed.
        low: The lower end of its 95 % confidence interval, by Student's t. None if there is no test.
        high: Its upper end.
        p: The p-value of the paired t-test. None if there is no test: fewer than two common seeds, or differences that
            do not vary.
        adjusted: The p-value after Holm's correction over all pairs of methods.
    """

    seeds: int
    mean: float | None = None
    low: float | None = None
    high: float | None = None
    p: float | None = None
    adjusted: float | None = None

    @property
    def is_significant(self) -> bool:
        """Whether the difference is significant at 5 % after the correction."""
        return self.adjusted is not None and self.adjusted < LEVEL


@dataclass(frozen=True)
class Ranking:
    """Which methods are the best, as far as the seeds can tell.

    Attributes:
        leaders: The method with the best mean, and all that do not differ from it significantly. Empty: not tested.
        tested: The number of pairs that were tested.
        differences: The difference of each pair of methods.
        reason: Why there are no leaders, if there are none.
        candidates: The methods that can be the best, the best mean first: all but the baselines.
    """

    leaders: list[str]
    tested: int
    differences: dict[tuple[str, str], Difference]
    reason: str | None = None
    candidates: tuple[str, ...] = ()

    @property
    def winner(self) -> str | None:
        """The method that is significantly better than every other."""
        return self.leaders[0] if len(self.leaders) == 1 else None

    @property
    def all_level(self) -> bool:
        """Whether no two methods differ significantly, baselines aside."""
        pairs = combinations(self.candidates, 2)
        return bool(self.leaders) and not any(self.difference(*pair).is_significant for pair in pairs)

    def difference(self, first: str, second: str) -> Difference:
        """Return the difference of two methods, first minus second."""
        if (first, second) in self.differences:
            return self.differences[first, second]
        one = self.differences[second, first]
        mean, low, high = (None if value is None else -value for value in (one.mean, one.high, one.low))
        return replace(one, mean=mean, low=low, high=high)


def describe(values: Iterable[float]) -> Sample:
    """Return the mean of some numbers with its standard deviation and 95 % confidence interval.

    Args:
        values: The numbers, one per seed. At least one.

    Example:
        >>> describe([0.5, 0.6, 0.7])
        Sample(count=3, mean=0.6, std=0.1, low=0.35, high=0.85)
    """
    known = list(values)
    try:
        mean = fmean(known)
        std = stdev(known) if len(known) > 1 else None
    except OverflowError:  # absurd values: no number can hold their squares
        return Sample(len(known), sum(value / len(known) for value in known))
    if std is None:
        return Sample(len(known), mean)
    margin = t_quantile(len(known) - 1) * std / math.sqrt(len(known))
    return Sample(len(known), mean, std, mean - margin, mean + margin)


def compare_paired(first: Mapping[int, float], second: Mapping[int, float]) -> Difference:
    """Compare two methods seed by seed, with a paired t-test.

    Runs of equal seed share the delays, the data and the initial model. What these contribute cancels.

    Args:
        first: The value of the first method, by seed.
        second: The value of the second method, by seed.

    Example:
        >>> compare_paired({1: 0.5, 2: 0.6, 3: 0.8}, {1: 0.4, 2: 0.5, 3: 0.6}).p
        0.057
    """
    from scipy.special import stdtr

    common = sorted(first.keys() & second.keys())
    differences = [first[seed] - second[seed] for seed in common]
    if len(common) < 2 or not all(map(math.isfinite, differences)):
        return Difference(len(common), differences[0] if len(common) == 1 else None)
    sample = describe(differences)
    if sample.std is None or not math.isfinite(sample.mean):
        return Difference(len(common))
    if sample.std <= _SAME * max(abs(values[seed]) for values in (first, second) for seed in common):
        return Difference(len(common), sample.mean)  # t would be infinite
    t = sample.mean / (sample.std / math.sqrt(sample.count))
    return Difference(len(common), sample.mean, sample.low, sample.high, float(2 * stdtr(sample.count - 1, -abs(t))))


def adjust_holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values after Holm's correction for several tests.

    If all that are below 5 % after it are called significant, the probability of any false one is at most 5 %.

    Args:
        p_values: The p-values of the tests.

    Example:
        >>> adjust_holm([0.01, 0.04, 0.03])
        [0.03, 0.06, 0.06]
    """
    adjusted, worst = [0.0] * len(p_values), 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        worst = max(worst, min(1.0, (len(p_values) - rank) * p_values[place]))
        adjusted[place] = worst
    return adjusted


def find_best(values: Mapping[str, Mapping[int, float]], better: Better, baselines: Collection[str] = ()) -> Ranking:
    """Find the best methods, as far as the seeds can tell them apart.

    All pairs of methods are tested, and Holm's correction is over all pairs: which method has the best mean is seen in
    the same data, so a correction over its own pairs would be too weak.

    Args:
        values: For each method, its value by seed. Methods without values are left out.
        better: Which direction is better.
        baselines: Methods that are tested with the others, but are never the best: those with all data in one place
            would always win.

    Example:
        >>> find_best({"a": {1: 0.7, 2: 0.8, 3: 0.75}, "b": {1: 0.1, 2: 0.2, 3: 0.14}}, "higher").winner
        'a'
    """
    measured = {name: by_seed for name, by_seed in values.items() if by_seed}
    pairs = {(a, b): compare_paired(measured[a], measured[b]) for a, b in combinations(measured, 2)}
    tested = {pair: one for pair, one in pairs.items() if one.p is not None}
    adjusted = adjust_holm([one.p for one in tested.values() if one.p is not None])
    pairs |= {pair: replace(one, adjusted=p) for (pair, one), p in zip(tested.items(), adjusted, strict=True)}
    if reason := _why_untested(measured, pairs, len(tested)):
        return Ranking([], 0, pairs, reason)
    sign = 1 if better == "higher" else -1
    candidates = [name for name in measured if name not in baselines]
    ranked = sorted(candidates, key=lambda name: -sign * describe(measured[name].values()).mean)
    ranking = Ranking([], len(tested), pairs, None, tuple(ranked))
    if len(ranked) < 2:
        return replace(ranking, reason="there are no two methods beside the baselines")
    to_best = {name: ranking.difference(ranked[0], name) for name in ranked[1:]}
    if all(one.p is None for one in to_best.values()):
        return replace(ranking, reason=f"no test compares {ranked[0]}, which has the best mean, with another method")
    level = [name for name, one in to_best.items() if not one.is_significant]
    return replace(ranking, leaders=[ranked[0], *level])


def _why_untested(
    values: Mapping[str, Mapping[int, float]], pairs: Mapping[tuple[str, str], Difference], tested: int
) -> str | None:
    if tested:
        return None
    if len(values) < 2:
        return "there are no two methods to compare"
    if all(len(by_seed) == 1 for by_seed in values.values()):
        return "a test needs several seeds, and each method has one"
    if all(one.seeds < 2 for one in pairs.values()):
        return "a test needs several common seeds"
    return "the differences do not vary over the seeds"


def median_time(times: Sequence[float | None], ends: Sequence[float]) -> float | None:
    """Return the median time to a target, where some runs ended before they reached it.

    This is the Kaplan-Meier estimate. A run that did not reach the target counts as not there yet at its end.

    Args:
        times: When each run reached the target. None: it did not.
        ends: When each run ended.

    Returns:
        The median, or None if it is later than the runs can tell: less than half of them, or just half, got there.

    Example:
        >>> median_time([10, 30, None], ends=[50, 50, 50])
        30
    """
    events = sorted({time for time in times if time is not None})
    left = Fraction(1)  # the share of runs that are not there yet
    for place, time in enumerate(events):
        at_risk = sum((end if reached is None else reached) >= time for reached, end in zip(times, ends, strict=True))
        left *= 1 - Fraction(times.count(time), at_risk)
        if left < Fraction(1, 2):
            return time
        if left == Fraction(1, 2):  # any time up to the next event would be a median
            return (time + events[place + 1]) / 2 if place + 1 < len(events) else None
    return None


def t_quantile(freedom: int) -> float:
    """Return the quantile of Student's t that a two-sided 95 % interval needs.

    Args:
        freedom: The degrees of freedom: one less than the number of values.
    """
    from scipy.special import stdtrit

    return float(stdtrit(freedom, 1 - LEVEL / 2))
