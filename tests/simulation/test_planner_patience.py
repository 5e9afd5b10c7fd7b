"""How long a plan waits for updates that do not come: exact bounds."""

import itertools
from dataclasses import dataclass

import numpy as np
import pytest

from fadas.core.ledger import Schedule
from fadas.simulation.delays import Delays, Uniform
from fadas.simulation.faults import Fault
from fadas.simulation.planner import ARRIVED, plan

ONE = Schedule(1, 1)
PATIENCE = 1000 + 100  # with one slot and no dropout


@dataclass(frozen=True)
class LateAtFirst:
    """The first jobs take two units of time, the others half of one."""

    late: int

    def bind(self, clients, rng):
        numbers = itertools.count()
        return lambda client, u: 2.0 if next(numbers) < self.late else 0.5


@dataclass(frozen=True)
class Fixed:
    """Every job takes one unit of time."""

    def bind(self, clients, rng):
        return lambda client, u: 1.0


def plan_late(late, **options):
    """A plan whose first jobs miss their deadline of one unit."""
    return plan(ONE, 4, Delays(LateAtFirst(late), deadline=1.0, **options), steps=1)


def plan_outage(end, start=0.0, steps=1):
    """A plan in which all jobs fail that begin before `end`, one per unit of time."""
    return plan(ONE, 4, Delays(Fixed(), faults=(Fault("fail", None, start, end),)), steps=steps)


def test_patience_is_a_number_of_jobs():
    assert len(plan_late(PATIENCE).ended) == PATIENCE + 1
    with pytest.raises(ValueError, match=r"no update arrived in 1,100 jobs: all clients are stopped by the deadline$"):
        plan_late(PATIENCE + 1)


@pytest.mark.parametrize(
    ("schedule", "dropout", "jobs"),
    [(Schedule(2, 1), 0.0, "1,200"), (Schedule(5, 5), 0.0, "1,500"), (Schedule(1, 1), 0.5, "2,100"),
     (Schedule(1, 1), 0.9, "10,100")],
)  # fmt: skip
def test_patience_grows_with_slots_and_dropout(schedule, dropout, jobs):
    delays = Delays(Uniform(), dropout=dropout, faults=(Fault("fail"),))
    with pytest.raises(ValueError, match=f"no update arrived in {jobs} jobs: all clients are stopped by "):
        plan(schedule, 6, delays, steps=1)


def test_temporary_failures_are_waited_for_and_then_patience_begins(monkeypatch):
    monkeypatch.setattr("fadas.simulation.planner._WAIT", 10)
    assert len(plan_outage(10.0 + PATIENCE).ended) == 10 + PATIENCE + 1
    with pytest.raises(ValueError, match=r"no update arrived in 1,110 jobs: .*; failures last until time 1111, too"):
        plan_outage(11.0 + PATIENCE)


def test_wait_begins_again_after_an_update(monkeypatch):
    monkeypatch.setattr("fadas.simulation.planner._WAIT", 10)
    assert plan_outage(3.0 + 10 + PATIENCE, start=3.0, steps=4).steps == 4
    with pytest.raises(ValueError, match="no update arrived in 1,110 jobs"):
        plan_outage(3.0 + 11 + PATIENCE, start=3.0, steps=4)


def test_job_that_starts_at_the_end_of_an_outage_is_not_waited_for():
    """Another client's failures end at time 5: the jobs that start at 0, 1, 2, 3 and 4 are waited for."""
    other = (Fault("fail", (), 0.0, 5.0),)
    assert len(plan_late(5 + PATIENCE, faults=other).ended) == 5 + PATIENCE + 1
    with pytest.raises(ValueError, match=r"no update arrived in 1,105 jobs: .* by the deadline or \[faults\]$"):
        plan_late(6 + PATIENCE, faults=other)


def test_message_names_the_end_of_failures_only_while_they_last(monkeypatch):
    """The last job that is waited for starts at 1,105: when the failures are over, or not yet."""
    monkeypatch.setattr("fadas.simulation.planner._WAIT", 5)
    with pytest.raises(ValueError, match=r"by the deadline or \[faults\]$"):
        plan_late(10**6, faults=(Fault("fail", (), 0.0, 1105.0),))
    with pytest.raises(ValueError, match=r"failures last until time 1105\.5, too long after 1106 to wait"):
        plan_late(10**6, faults=(Fault("fail", (), 0.0, 1105.5),))


def test_job_that_takes_exactly_the_deadline_arrives():
    p = plan(ONE, 4, Delays(Fixed(), deadline=1.0), steps=3)
    assert (p.outcome[p.ended] == ARRIVED).all()


def test_number_of_jobs_is_bounded(monkeypatch):
    monkeypatch.setattr("fadas.simulation.planner._MOST", 10)
    assert plan(ONE, 4, Fixed(), time=10.0).steps == 10
    with pytest.raises(ValueError, match=r"a plan holds at most 10 jobs, and the time limit \(11.0\) allows more"):
        plan(ONE, 4, Fixed(), time=11.0)
    assert plan(Schedule(2, 2), 4, Fixed(), steps=5).steps == 5
    with pytest.raises(ValueError, match="a plan holds at most 10 updates, got 12"):
        plan(Schedule(2, 2), 4, Fixed(), steps=6)


@pytest.mark.parametrize("refill", ["arrival", "update", "round", "released"])
def test_endings_stop_at_the_last_step_within_the_time(refill):
    """Updates that arrive in time for no step are left out."""
    left = 0
    for seed in range(8):
        p = plan(Schedule(4, 3, refill), 8, Delays(Uniform(1, 3), dropout=0.2), time=20.0, seed=seed)
        assert p.ended[-1] == p.arrivals[-1, -1]
        assert p.time[-1] == p.end[p.ended[-1]] <= 20.0
        left += int(((p.end <= 20.0) & (p.outcome == ARRIVED)).sum()) - 3 * p.steps
    assert left > 0


def test_dropped_jobs_end_at_a_uniform_moment():
    """The moment is a share of the duration, uniform in (0, 1) whatever the dropout is."""
    p = plan(Schedule(50, 10), 100, Delays(Fixed(), dropout=0.4), steps=2000, seed=1)
    shares = (p.end - p.start)[p.outcome == 1]
    assert len(shares) > 10_000
    assert (shares.min(), shares.max()) == (pytest.approx(0, abs=0.01), pytest.approx(1, abs=0.01))
    assert shares.mean() == pytest.approx(0.5, abs=0.01)
    assert np.quantile(shares, [0.25, 0.75]).tolist() == pytest.approx([0.25, 0.75], abs=0.015)


def test_plan_starts_at_time_zero_with_seed_zero():
    p = plan(ONE, 4, Fixed(), steps=3)
    assert p.seed == 0
    assert p.start[0] == 0.0
    assert p.time.tolist() == [1.0, 2.0, 3.0]
    assert p.limits == (3, None)
    assert plan(ONE, 4, Fixed(), time=3.5).limits == (None, 3.5)
