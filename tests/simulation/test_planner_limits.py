"""Limits and durations that no plan can be made of."""

import math
from dataclasses import dataclass

import numpy as np
import pytest

from fadas.core.ledger import Schedule
from fadas.simulation.delays import Delays, Uniform
from fadas.simulation.planner import plan

SCHEDULE = Schedule(4, 2)


@dataclass(frozen=True)
class Fixed:
    """Every job takes this long."""

    duration: float

    def bind(self, clients, rng):
        return lambda client, u: self.duration


@pytest.mark.parametrize("time", [0.0, -1.0, math.inf, -math.inf, math.nan])
def test_impossible_end_is_refused(time):
    with pytest.raises(ValueError, match=f"time must be a positive number, got {time}"):
        plan(SCHEDULE, 8, Uniform(), time=time)


@pytest.mark.parametrize("duration", [0.0, -1.0, math.nan, math.inf, 1e100, 1e200])
def test_impossible_duration_is_refused(duration):
    with pytest.raises(ValueError, match=r"client \d at time 0.0: a duration must be positive and end before"):
        plan(SCHEDULE, 8, Fixed(duration), steps=3)


def test_duration_that_does_not_move_the_clock_is_refused():
    """At 2^53 a number grows by two or not at all."""
    assert plan(SCHEDULE, 8, Fixed(1.0), steps=3).steps == 3
    with pytest.raises(ValueError, match=r"at time 9007199254740992.0: a duration must be positive .*, got 1e-05"):
        plan(SCHEDULE, 8, Slowing(2.0**53, 1e-5), steps=30)


@dataclass(frozen=True)
class Slowing:
    """The first four jobs take one time, the others another."""

    first: float
    later: float

    def bind(self, clients, rng):
        durations = iter([self.first] * 4)
        return lambda client, u: next(durations, self.later)


def test_longest_duration_is_accepted():
    p = plan(SCHEDULE, 8, Fixed(4.9e99), steps=1)
    assert p.time[-1] == 4.9e99


@pytest.mark.parametrize(
    ("limits", "steps"),
    [
        ({"steps": 1}, 1),
        ({"updates": 2}, 1),
        ({"updates": 3}, 1),
        ({"updates": 4}, 2),
        ({"time": 1.0}, 2),  # four updates arrive at time 1
        ({"time": 0.999, "steps": 5}, None),
        ({"time": 3.0, "steps": 5}, 5),
        ({"time": 2.0, "steps": 9}, 4),
        ({"updates": 8, "steps": 9}, 4),
        ({"updates": 8, "steps": 3}, 3),
        ({"updates": 8, "steps": 4, "time": 1.5}, 2),
    ],
)
def test_first_limit_ends_plan(limits, steps):
    if steps is None:
        with pytest.raises(ValueError, match=r"the time limit \(0.999\) ends before the first server step"):
            plan(SCHEDULE, 8, Fixed(1.0), **limits)
    else:
        assert plan(SCHEDULE, 8, Fixed(1.0), **limits).steps == steps


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({}, "a plan needs a limit: steps, updates or time"),
        ({"steps": 0}, r"the limits \(steps=0, updates=None\) do not allow one step of 2 updates"),
        ({"updates": 1}, r"the limits \(steps=None, updates=1\) do not allow one step of 2 updates"),
        ({"updates": 0, "steps": 5}, r"the limits \(steps=5, updates=0\) do not allow one step of 2 updates"),
        ({"steps": 50_000_001}, "a plan holds at most 100,000,000 updates, got 100,000,002"),
        ({"updates": 10**12}, "a plan holds at most 100,000,000 updates, got 1,000,000,000,000"),
        ({"steps": 1, "seed": -1}, "seed must be at least 0, got -1"),
    ],
)
def test_impossible_limits_are_refused(limits, message):
    with pytest.raises(ValueError, match=message):
        plan(SCHEDULE, 8, Fixed(1.0), **limits)


def test_statistics_count_what_ends_within_the_steps():
    p = plan(Schedule(2, 2), 4, Delays(Uniform(1, 3), dropout=0.4, deadline=2.5), steps=50, seed=2)
    statistics = p.statistics()
    outcomes = p.outcome[p.ended]
    assert statistics["updates"] == 100 == (outcomes == 0).sum()
    assert statistics["dropped"] == (outcomes == 1).sum() > 0
    assert statistics["expired"] == (outcomes == 2).sum() > 0
    assert statistics["steps"] == 50
    assert statistics["virtual_time"] == p.time[-1] == p.end[p.ended[-1]]
    largest = p.tau.max(1)
    assert (statistics["tau_max"], statistics["tau_avg"]) == (largest.max(), pytest.approx(largest.mean()))
    assert statistics["tau_med"] == np.median(largest)
    assert p.outcome[p.ended[-1]] == 0, "the last one to end closes the last step"


def test_needed_and_due_follow_from_the_endings():
    p = plan(Schedule(4, 2), 8, Delays(Uniform(1, 3), dropout=0.3), steps=20, seed=3)
    needed = {int(id) for id in p.arrivals.ravel()}
    assert {k for k, value in enumerate(p.needed) if value} == needed
    assert [int(p.due[id]) for id in p.ended] == list(range(len(p.ended)))
    others = set(range(len(p.client))) - set(p.ended.tolist())
    assert others
    assert {int(p.due[id]) for id in others} == {len(p.ended)}
