"""Jobs that end exactly at a bound, random numbers at the end of their range, and plans without a tier."""

import re
from dataclasses import dataclass

import pytest

import fadas
from fadas.core.ledger import Job, Ledger, Schedule
from fadas.errors import FadasWarning
from fadas.simulation import planner
from fadas.simulation.delays import Delays, Uniform
from fadas.simulation.faults import Fault
from fadas.simulation.planner import ARRIVED, DROPPED, EXPIRED, plan


@dataclass(frozen=True)
class Fixed:
    """Every job takes this long."""

    duration: float = 1.0

    def bind(self, clients, rng):
        return lambda client, u: self.duration


def test_job_that_ends_at_its_deadline_arrives():
    assert plan(Schedule(2, 1), 4, Delays(Fixed(), deadline=1.0), steps=5).statistics()["expired"] == 0
    with pytest.raises(ValueError, match=r"all clients are stopped by the deadline$"):
        plan(Schedule(2, 1), 4, Delays(Fixed(1.0 + 1e-9), deadline=1.0), steps=5)


class Numbers:
    """A generator whose numbers are all the same."""

    def __init__(self, number):
        self.number = number

    def random(self, count):
        return planner.np.full(count, self.number)


def dispatch_one(number, dropout, **options):
    """How a job ends, and when, if all random numbers are this one. Its duration is the number."""
    timeline = planner._Timeline(Delays(Uniform(1.0, 2.0), dropout=dropout, **options), 4, 0, None)
    timeline.duration = lambda client, u: u
    timeline.durations_rng = timeline.dropouts_rng = Numbers(number)
    timeline.dispatch([Job(0, 0, 0)], 0.0)
    return timeline.outcome[0], timeline.end[0]


def test_random_number_of_zero_gives_a_duration_above_zero():
    assert dispatch_one(0.0, 0.0) == (ARRIVED, 2.0**-54)


def test_dropout_is_below_its_probability():
    assert dispatch_one(0.25, 0.25) == (ARRIVED, 0.25)
    assert dispatch_one(0.125, 0.25) == (DROPPED, 0.125 * 0.5)
    assert dispatch_one(0.25, 0.25, deadline=0.125) == (EXPIRED, 0.125)
    assert dispatch_one(0.25, 0.0, faults=(Fault("fail"),)) == (DROPPED, 0.25)


def test_every_tier_without_clients_is_named_in_full():
    with pytest.warns(FadasWarning) as caught:
        fadas.plan(Schedule(1, 1), 1, fadas.Large(shares=(0.4, 0.3, 0.3)), steps=1)
    (text,) = {str(warning.message) for warning in caught}
    assert text == (
        "none of the 1 clients is in the delay tier 'medium' (3 to 5), 'large' (50 to 80): its share is less than one "
        "client"
    )


@pytest.mark.parametrize(
    ("delays", "causes"),
    [
        (Delays(Fixed(), deadline=0.5), "the deadline"),
        (Delays(Fixed(), dropout=0.1, deadline=0.05), "the deadline or the dropout"),
        (Delays(Fixed(), deadline=0.5, faults=(Fault("fail"),)), "the deadline or [faults]"),
        (Delays(Fixed(), deadline=0.5, faults=(Fault("nan"),)), "the deadline"),
    ],
)
def test_causes_of_a_standstill_are_named_in_full(delays, causes):
    with pytest.raises(ValueError, match=rf"jobs: all clients are stopped by {re.escape(causes)}$"):
        plan(Schedule(1, 1), 4, delays, steps=1)


def test_plan_has_documented_limits():
    """Without a schedule that fits, a plan within the limits is refused for another reason, and nothing is planned."""
    for steps, message in ((50_000_000, "exceeds the number of clients"), (50_000_001, "at most 100,000,000 updates")):
        with pytest.raises(ValueError, match=message):
            plan(Schedule(4, 2), 3, steps=steps)
    assert planner._WAIT == 1_000_000, "the documented number of jobs that may be lost while failures last"


def test_seed_zero_is_the_default():
    given, default = (plan(Schedule(4, 2), 8, Delays(Uniform()), steps=5, **seed) for seed in ({"seed": 0}, {}))
    assert given.end.tolist() == default.end.tolist()
    assert Ledger(Schedule(4, 2), 8).seed == 0


@pytest.mark.parametrize(
    ("end", "waited", "told"),
    [
        (10.0, 20, False),  # the jobs that start at 0, 0.5, ... 9.5
        (552.5, 5, False),  # the last job starts when the failures end
        (553.0, 5, True),
    ],
)
def test_outage_is_waited_for_to_its_exact_end(monkeypatch, end, waited, told):
    """Every job takes half a unit of time, and none arrives, during the outage or after it."""
    if waited == 5:
        monkeypatch.setattr(planner, "_WAIT", 5)
    delays = Delays(Fixed(), deadline=0.5, faults=(Fault("fail", None, 0.0, end),))
    after = rf"; failures last until time {end:g}, too long after 553 to wait" if told else ""
    with pytest.raises(ValueError, match=rf"^no update arrived in {1100 + waited:,} jobs: .* or \[faults\]{after}$"):
        plan(Schedule(1, 1), 4, delays, steps=1)
