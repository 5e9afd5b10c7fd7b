"""The statistics, against scipy and against cases worked out by hand."""

from itertools import combinations

import numpy as np
import pytest
from scipy import stats

from fadas.report.statistics import Difference, adjust_holm, compare_paired, describe, find_best, median_time

RANDOM = np.random.default_rng(7)
SAMPLES = [RANDOM.normal(0.6, 0.05, count) for count in (2, 3, 5, 30)]


@pytest.mark.parametrize("values", SAMPLES, ids=len)
def test_sample_has_standard_deviation_and_interval_of_scipy(values):
    sample = describe(values)
    low, high = stats.t.interval(0.95, len(values) - 1, values.mean(), stats.sem(values))
    assert (sample.count, sample.mean) == (len(values), pytest.approx(values.mean()))
    assert sample.std == pytest.approx(values.std(ddof=1))
    assert (sample.low, sample.high) == (pytest.approx(low), pytest.approx(high))


def test_sample_of_one_has_no_spread():
    assert (describe([0.5]).mean, describe([0.5]).std, describe([0.5]).low) == (0.5, None, None)


@pytest.mark.parametrize("first", SAMPLES, ids=len)
def test_paired_difference_is_that_of_scipy(first):
    second = first - RANDOM.normal(0.02, 0.02, len(first))
    found = compare_paired(dict(enumerate(first)), dict(enumerate(second)))
    test = stats.ttest_rel(first, second)
    assert found.p == pytest.approx(test.pvalue)
    assert (found.low, found.high) == pytest.approx(tuple(test.confidence_interval(0.95)))
    assert found.mean == pytest.approx((first - second).mean())


def test_pairs_are_formed_over_common_seeds():
    first, second = {1: 0.5, 2: 0.7, 3: 0.9}, {2: 0.6, 3: 0.75, 4: 0.0}
    found = compare_paired(first, second)
    assert (found.seeds, found.mean) == (2, pytest.approx(0.125))
    assert found.p == pytest.approx(stats.ttest_rel([0.7, 0.9], [0.6, 0.75]).pvalue)


def test_too_few_or_constant_differences_have_no_p_value():
    assert compare_paired({1: 0.5}, {2: 0.5}) == Difference(0)
    assert compare_paired({1: 0.5}, {1: 0.25}) == Difference(1, 0.25)
    alike = compare_paired({1: 0.3, 2: 0.4}, {1: 0.1, 2: 0.2})
    assert (alike.mean, alike.p, alike.is_significant) == (pytest.approx(0.2), None, False)


def test_holm_correction_of_published_example():
    """Holm's procedure, step by step: 4 x 0.005, 3 x 0.01, 2 x 0.03, then never less than before."""
    assert adjust_holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert adjust_holm([0.9, 0.6]) == [1.0, 1.0]
    assert adjust_holm([]) == []


@pytest.mark.parametrize("count", [2, 3, 10])
def test_holm_correction_is_closed_testing(count):
    """Another definition: the worst of Bonferroni's tests over all sets of hypotheses that hold this one."""
    p_values = RANDOM.uniform(0, 0.2, count).round(2).tolist()  # rounded, so that some are equal
    sets = [one for size in range(1, count + 1) for one in combinations(range(count), size)]
    worst = [
        max(min(1, len(one) * min(p_values[k] for k in one)) for one in sets if place in one) for place in range(count)
    ]
    assert adjust_holm(p_values) == pytest.approx(worst)


def by_seed(*values):
    return dict(enumerate(values))


def test_best_method_differs_from_every_other():
    a, b, c = by_seed(0.80, 0.81, 0.83, 0.80), by_seed(0.50, 0.52, 0.52, 0.50), by_seed(0.40, 0.43, 0.40, 0.41)
    ranking = find_best({"b": b, "a": a, "c": c}, "higher")
    assert (ranking.winner, ranking.tested) == ("a", 3)
    assert ranking.difference("a", "b").mean == pytest.approx(0.30)
    assert ranking.difference("b", "a").mean == pytest.approx(-0.30)
    assert ranking.difference("b", "a").low == pytest.approx(-ranking.difference("a", "b").high)
    assert find_best({"b": b, "a": a, "c": c}, "lower").winner == "c"


def test_methods_level_with_best_are_all_leaders():
    a, b, c = by_seed(0.80, 0.70, 0.75), by_seed(0.78, 0.73, 0.70), by_seed(0.10, 0.11, 0.12)
    ranking = find_best({"a": a, "c": c, "b": b}, "higher")
    assert (ranking.leaders, ranking.winner) == (["a", "b"], None)


def test_one_seed_marks_nothing_and_says_why():
    ranking = find_best({"a": by_seed(0.9), "b": by_seed(0.1)}, "higher")
    assert (ranking.leaders, ranking.winner) == ([], None)
    assert ranking.reason == "a test needs several seeds, and each method has one"
    assert find_best({"a": by_seed(0.9, 0.8)}, "higher").reason == "there are no two methods to compare"
    assert "common seeds" in find_best({"a": {1: 0.9, 2: 0.8}, "b": {3: 0.9, 4: 0.8}}, "higher").reason
    assert "do not vary" in find_best({"a": by_seed(0.9, 0.9), "b": by_seed(0.8, 0.8)}, "higher").reason


def test_baselines_are_tested_but_never_the_best():
    values = {"a": by_seed(0.5, 0.61, 0.7), "top": by_seed(0.9, 1.0, 1.15), "b": by_seed(0.1, 0.2, 0.3)}
    ranking = find_best(values, "higher", baselines=["top"])
    assert (ranking.winner, ranking.candidates, ranking.tested) == ("a", ("a", "b"), 3)
    assert ranking.difference("b", "top").mean < -0.8
    alone = find_best(values, "higher", baselines=["top", "b"])
    assert (alone.leaders, alone.candidates, alone.tested) == ([], ("a",), 3)
    assert alone.reason == "there are no two methods beside the baselines"
    level = find_best({**values, "c": by_seed(0.7, 0.5, 0.6), "b": by_seed(0.5, 0.7, 0.6)}, "higher", ["top"])
    assert level.all_level


def test_best_mean_without_a_test_leads_nothing():
    values = {"a": by_seed(0.5, 0.61, 0.7), "b": by_seed(0.1, 0.2, 0.3), "one": by_seed(0.9)}
    ranking = find_best(values, "higher")
    assert (ranking.leaders, ranking.tested) == ([], 1)
    assert ranking.reason == "no test compares one, which has the best mean, with another method"


def test_methods_are_not_all_level_if_two_differ():
    """The best mean varies too much to differ from any other method."""
    a, b, c = by_seed(0.1, 0.9, 0.95, 0.5), by_seed(0.50, 0.51, 0.53, 0.50), by_seed(0.40, 0.42, 0.42, 0.40)
    ranking = find_best({"a": a, "b": b, "c": c}, "higher")
    assert ranking.difference("b", "c").is_significant
    assert (ranking.leaders, ranking.all_level, ranking.winner) == (["a", "b", "c"], False, None)


def test_correction_is_over_all_pairs():
    values = {name: dict(enumerate(RANDOM.normal(0.5, 0.1, 4))) for name in "abcde"}
    ranking = find_best(values, "higher")
    p_values = [stats.ttest_rel([*values[a].values()], [*values[b].values()]).pvalue for a, b in ranking.differences]
    assert ranking.tested == 10
    assert [one.adjusted for one in ranking.differences.values()] == pytest.approx(adjust_holm(p_values))


def test_median_time_counts_runs_that_never_got_there():
    assert median_time([10, 20, 30], [50, 50, 50]) == 20
    assert median_time([10, 30, None], [50, 50, 50]) == 30
    assert median_time([10, None, None], [50, 50, 50]) is None
    assert median_time([None], [50]) is None
    assert median_time([10], [50]) == 10
    assert median_time([10, 20], [50, 50]) == 15
    assert median_time([10, None], [50, 50]) is None
    assert median_time([10, 20, None, None], [50] * 4) is None


def test_median_time_of_runs_with_early_ends_is_that_of_scipy():
    """A run that ended early says nothing about later times, so the others decide."""
    for _ in range(50):
        times, ends = RANDOM.integers(1, 20, 9), RANDOM.integers(1, 30, 9)
        reached = times <= ends
        data = stats.CensoredData.right_censored(np.minimum(times, ends), ~reached)
        curve = stats.ecdf(data).sf
        below = [time for time, left in zip(curve.quantiles, curve.probabilities, strict=True) if left < 0.5 - 1e-9]
        half = [time for time, left in zip(curve.quantiles, curve.probabilities, strict=True) if abs(left - 0.5) < 1e-9]
        found = median_time([int(t) if r else None for t, r in zip(times, reached, strict=True)], ends.tolist())
        if not below:
            assert found is None
        elif half:
            assert found == (half[0] + below[0]) / 2, "any time between them is a median"
        else:
            assert found == below[0]


def test_absurd_values_have_no_spread_and_no_test():
    assert describe([1e308, -1e308]).mean == 0
    assert describe([1e308, 1e308, 1e308]).mean == pytest.approx(1e308)
    absurd = {1: 1e308, 2: 1e308, 3: -1e308}
    assert compare_paired(absurd, {1: -1e308, 2: 0.5, 3: 1e308}).p is None
    assert find_best({"a": absurd, "b": {1: 0.5, 2: 0.6, 3: 0.7}}, "higher").winner is None
