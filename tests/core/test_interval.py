"""How often a run is evaluated."""

import itertools

import pytest

from fadas.core.interval import Interval, Position
from fadas.validate import InvalidValue


@pytest.mark.parametrize(
    ("value", "interval"),
    [
        (5, Interval(5, "steps")),
        ("1 step", Interval(1, "steps")),
        ("10 steps", Interval(10, "steps")),
        ("50 updates", Interval(50, "updates")),
        ("2.5 time", Interval(2.5, "time")),
        ("60 seconds", Interval(60, "time")),
        (Interval(3), Interval(3)),
    ],
)
def test_interval_is_a_number_of_steps_or_a_text(value, interval):
    assert Interval.parse(value) == interval


@pytest.mark.parametrize("value", [0, -1, 2.5, "50", "x updates", "2.5 updates", "0 time", "-1 steps", "nan time", ""])
def test_impossible_interval_is_refused(value):
    with pytest.raises(InvalidValue, match="eval_every must be"):
        Interval.parse(value)


def test_interval_is_due_when_a_multiple_is_passed():
    positions = [Position(step, 7 * step, 1.5 * step) for step in range(9)]
    pairs = list(itertools.pairwise(positions))
    assert [now.step for before, now in pairs if Interval(3).is_due(before, now)] == [3, 6]
    assert [now.updates for before, now in pairs if Interval(20, "updates").is_due(before, now)] == [21, 42]
    assert [now.time for before, now in pairs if Interval(4, "time").is_due(before, now)] == [4.5, 9.0, 12.0]


def test_count_is_the_number_of_multiples():
    end = Position(8, 56, 12.0)
    assert [Interval(3).count(end), Interval(20, "updates").count(end), Interval(5, "time").count(end)] == [2, 2, 2]
