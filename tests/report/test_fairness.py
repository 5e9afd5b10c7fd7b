"""Statistics of one value per client, against numbers computed by hand."""

import itertools
import math

import pytest

from fadas.core.metrics import Metric
from fadas.report.fairness import (
    divide_by_duration,
    expected_distance,
    jain_index,
    mean_by_tier,
    measure_participation,
    measure_spread,
    worst_decile,
)

ACCURACY, RMSE = Metric("accuracy"), Metric("rmse")


def test_spread_of_accuracies_by_hand():
    values = [0.1 * k for k in range(1, 11)] + [1.0] * 10  # mean (5.5 + 10) / 20; worst two: 0.1 and 0.2
    found = measure_spread(values, ACCURACY)
    assert found.clients == 20
    assert found.mean == pytest.approx(0.775)
    assert found.worst_decile == pytest.approx(0.15)
    assert found.jain == pytest.approx(15.5**2 / (20 * (3.85 + 10)))


def test_worst_of_an_error_is_the_largest():
    assert worst_decile([1.0, 2.0, 9.0], RMSE) == 9.0
    assert worst_decile([1.0, 2.0, 9.0], ACCURACY) == 1.0
    assert worst_decile([*range(20)], RMSE) == 18.5, "two of twenty"
    assert worst_decile([*range(21)], ACCURACY) == 1.0, "a tenth of 21 is rounded up to 3"


def test_spread_leaves_out_undefined_values():
    assert measure_spread([None, 0.5, float("nan"), 1.0], ACCURACY) == measure_spread([0.5, 1.0], ACCURACY)
    assert measure_spread([None], ACCURACY) is None
    assert measure_spread([], ACCURACY) is None


@pytest.mark.parametrize(
    ("values", "index"),
    [([1, 1, 1], 1.0), ([1, 0, 0, 0], 0.25), ([1, 2, 3], 36 / 42), ([1, -1], None), ([0, 0], None)],
)
def test_jain_index_by_hand(values, index):
    assert jain_index(values) == (None if index is None else pytest.approx(index))


def test_errors_have_no_jain_index():
    assert measure_spread([1.0, 2.0], RMSE).jain is None
    assert measure_spread([-0.5, 0.5], Metric("r2")).jain is None, "r2 may be negative"


def test_means_by_tier_by_hand():
    tiers = {"small": [0, 2], "medium": [3], "large": []}
    assert mean_by_tier([0.5, 9.0, 1.0, None], tiers) == {"small": 0.75, "medium": None, "large": None}
    assert mean_by_tier([0.5], {"small": [0, 7]}) == {"small": 0.5}, "of fewer values than clients"


def test_thirds_by_duration_by_hand():
    durations = {4: 1.0, 0: 2.0, 2: 2.0, 5: 70.0, 1: 3.0}
    thirds = divide_by_duration(durations, clients=7)
    assert thirds == {
        "fastest third": [0, 4],
        "middle third": [2],
        "slowest third": [1, 5],
        "never arrived": [3, 6],
    }
    assert [*divide_by_duration({0: 1.0, 1: 1.0, 2: 1.0}, clients=3).values()] == [[0], [1], [2]]
    assert divide_by_duration({0: 1.0, 1: 2.0}, clients=5) == {}


def test_participation_by_hand():
    found = measure_participation([6, 2, 0, 0])
    assert (found.clients, found.expected, found.least, found.most) == (4, 2.0, 0.0, 3.0)
    assert found.distance == 0.5, "four of eight updates would have to come from others"
    assert measure_participation([3, 3]).distance == 0.0
    assert measure_participation([0, 0]) is None


def test_expected_distance_equals_enumeration():
    """Every sequence of five arrivals from three clients is equally likely."""
    distances = []
    for arrivals in itertools.product(range(3), repeat=5):
        counts = [arrivals.count(client) for client in range(3)]
        distances.append(sum(abs(count - 5 / 3) for count in counts) / 10)
    assert expected_distance(5, 3) == pytest.approx(sum(distances) / 3**5)
    assert expected_distance(10, 1) == 0.0
    assert expected_distance(4, 2) == pytest.approx((2 * 0.5 + 8 * 0.25) / 16), "0:4, 1:3, 2:2, 3:1, 4:0"
    assert math.isfinite(expected_distance(10_000_000, 1_000))
