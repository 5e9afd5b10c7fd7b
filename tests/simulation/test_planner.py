"""Plans of virtual time."""

import heapq
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from fadas.core.ledger import Schedule
from fadas.simulation.delays import Delays, Large, Mild, Uniform
from fadas.simulation.faults import Fault
from fadas.simulation.planner import ARRIVED, DROPPED, EXPIRED, plan


@settings(max_examples=60)
@given(
    st.sampled_from(["arrival", "update", "round", "released"]),
    st.integers(1, 6),
    st.integers(0, 5),
    st.integers(1, 30),
    st.floats(0, 0.5),
    st.sampled_from([None, 60.0, 4.0]),
    st.integers(0, 100),
)
def test_plan_agrees_with_ledger(refill, buffer, extra, steps, dropout, deadline, seed):
    """Replaying the endings through a fresh ledger gives the plan's jobs, start times and steps."""
    schedule = Schedule(buffer + extra, buffer, refill)
    p = plan(schedule, 2 * schedule.concurrency, Delays(Large(), dropout, deadline), steps=steps, seed=seed)
    ledger, now, times = p.ledger(), 0.0, []
    for job in ledger.start():
        assert job == p.job(job.id)
    for id in p.ended.tolist():
        job = p.job(id)
        assert now <= p.end[id]
        now = p.end[id]
        if p.outcome[id] == ARRIVED:
            jobs, step = ledger.arrive(job)
            if step:
                times.append(now)
                assert p.tau[step.index].tolist() == step.delays
                assert p.arrivals[step.index].tolist() == [j.id for j in step.jobs]
        else:
            jobs = ledger.drop(job)
        for new in jobs:
            assert new == p.job(new.id)
            assert p.start[new.id] == now
    assert times == p.time.tolist()
    assert len(times) == steps == p.steps
    assert (p.end > p.start).all()


def test_large_delays_match_paper():
    """Large worst-case, 50 clients, M_c = 25, M = 5, T = 500: the paper saw tau_avg 10.89, tau_med 6, tau_max 127."""
    seen = [plan(Schedule(25, 5), 50, Delays(Large()), steps=500, seed=seed).statistics() for seed in range(20)]
    tau = {key: np.array([s[key] for s in seen]) for key in ("tau_avg", "tau_med", "tau_max")}
    assert abs(tau["tau_avg"].mean() - 10.89) < 1.5
    assert abs(tau["tau_med"].mean() - 6.0) < 2.5
    assert tau["tau_max"].min() - 10 <= 127 <= tau["tau_max"].max()


def test_mild_delays_stay_small():
    """Mild, 100 clients, M_c = 20, M = 10: no straggler, so the largest delay stays within a few versions."""
    seen = [plan(Schedule(20, 10), 100, Delays(Mild()), steps=500, seed=seed).statistics() for seed in range(20)]
    assert max(s["tau_max"] for s in seen) <= 16
    assert 2 < np.mean([s["tau_avg"] for s in seen]) < 8


def test_plan_agrees_with_independent_simulation():
    """A short event loop with the plan's durations and choices gives FedBuff's staleness."""
    p = plan(Schedule(4, 3, "arrival"), 9, Delays(Large()), steps=40, seed=5)
    length = p.end - p.start
    heap = [(length[i], i) for i in range(4)]
    heapq.heapify(heap)
    version, count, next_id, started = 0, 0, 4, dict.fromkeys(range(4), 0)
    taus = []
    while version < 40:
        now, i = heapq.heappop(heap)
        taus.append(version - started[i])
        started[next_id] = version
        heapq.heappush(heap, (now + length[next_id], next_id))
        next_id += 1
        count += 1
        if count % 3 == 0:
            version += 1
    assert taus == p.tau.ravel().tolist()


def test_synchronous_round_waits_for_slowest():
    p = plan(Schedule(5, 5, "round"), 20, Delays(Large()), steps=10, seed=0)
    assert p.tau.max() == 0
    length = p.end - p.start
    rounds = [length[ids].max() for ids in p.arrivals]
    assert p.time.tolist() == pytest.approx(np.cumsum(rounds).tolist())


def test_limits_end_plan():
    schedule, delays = Schedule(4, 2), Delays(Uniform(1, 2))
    assert plan(schedule, 8, delays, steps=7).steps == 7
    assert plan(schedule, 8, delays, updates=15).statistics()["updates"] == 14
    assert plan(schedule, 8, delays, steps=7, updates=6).steps == 3
    timed = plan(schedule, 8, delays, time=10.0)
    assert timed.time[-1] <= 10 < plan(schedule, 8, delays, steps=timed.steps + 1).time[-1]
    for bad in ({}, {"steps": 0}, {"updates": 1}, {"time": 0.5}, {"time": -1.0}, {"steps": 1, "seed": -1}):
        with pytest.raises(ValueError, match=r"limit|seed|time must be"):
            plan(schedule, 8, delays, **bad)


def test_dropout_and_deadline_are_counted_and_free_slot():
    p = plan(Schedule(10, 5), 40, Delays(Uniform(1, 9), dropout=0.3, deadline=6.0), steps=400, seed=1)
    ended = p.outcome[p.ended]
    stats = p.statistics()
    assert stats["dropped"] == (ended == DROPPED).sum() > 0
    assert stats["expired"] == (ended == EXPIRED).sum() > 0
    assert stats["dropped"] / len(ended) == pytest.approx(0.3, abs=0.03)
    # of the 70 % that do not drop out, 3/8 would take longer than 6 of [1, 9] and expire
    assert stats["expired"] / len(ended) == pytest.approx(0.7 * 3 / 8 + 0.3 * 0.06, abs=0.04)
    length = (p.end - p.start)[p.ended]
    assert length.max() == pytest.approx(6.0)
    assert np.allclose(length[ended == EXPIRED], 6.0)


def test_plan_without_any_arrival_is_refused():
    always = Fault("fail")
    for delays, reason in (
        (Delays(Uniform(5, 6), deadline=1.0), "the deadline"),
        (Delays(Uniform(5, 6), faults=(always,)), r"\[faults\]"),
        (Delays(Uniform(5, 6), dropout=0.1, faults=(always, Fault("flip"))), r"the dropout or \[faults\]"),
    ):
        with pytest.raises(ValueError, match=f"no update arrived in 1,... jobs: all clients are stopped by {reason}$"):
            plan(Schedule(2, 1), 4, delays, steps=1)


@pytest.mark.parametrize("refill", ["arrival", "update", "round", "released"])
def test_outage_of_all_clients_passes(refill):
    """The outage is longer than a run without progress may last. Clients come back one after the other."""
    faults = (Fault("fail", None, 10.0, 3000.0), Fault("fail", (0, 1), 10.0, 5000.0))
    p = plan(Schedule(4, 2, refill), 6, Delays(Uniform(1, 2), faults=faults), steps=50)
    during = (p.start >= 10) & (p.start < 3000)
    assert during.sum() > 5000
    assert (p.outcome[during] == DROPPED).all()
    assert (p.outcome[p.start >= 5000] == ARRIVED).all()
    assert p.time[0] < 10
    assert 3000 < p.time[p.time > 12][0] < 3005


def test_too_long_outage_is_refused(monkeypatch):
    monkeypatch.setattr("fadas.simulation.planner._WAIT", 10_000)
    endless = Delays(Uniform(1, 2), faults=(Fault("fail", None, 0.0, 1e12),))
    reason = (
        r"in 11,400 jobs: all clients are stopped by \[faults\]; failures last until time 1e\+12, too long after 4\d+"
    )
    with pytest.raises(ValueError, match=reason):
        plan(Schedule(4, 2), 6, endless, steps=50)


def test_single_failures_do_not_shorten_wait_for_outage(monkeypatch):
    monkeypatch.setattr("fadas.simulation.planner._WAIT", 10_000)
    single, all_of_them = Fault("fail", (0, 1, 2), 0.0, 1e12), Fault("fail", None, 10_000.0, 12_000.0)
    p = plan(Schedule(4, 2), 6, Delays(Uniform(1, 2), faults=(single, all_of_them)), time=13_000.0)
    assert (p.outcome[p.start < 10_000] == DROPPED).sum() > 10_000
    assert p.time[-1] > 12_000


def test_plan_depends_on_seed_only():
    one, two, other = (plan(Schedule(5, 2), 20, steps=50, seed=seed) for seed in (3, 3, 4))
    assert (one.client == two.client).all()
    assert (one.end == two.end).all()
    assert not np.array_equal(one.end, other.end)


def test_work_per_event_is_independent_of_clients():
    """The test counts the lines that Python executes while planning."""
    program = """
import sys
from fadas.simulation.delays import Delays, Uniform
from fadas.core.ledger import Schedule
from fadas.simulation.planner import plan
lines = 0
def count(frame, event, arg):
    global lines
    lines += 1
    return count
sys.settrace(count)
plan(Schedule(50, 10), int(sys.argv[1]), Delays(Uniform(1, 2)), updates=2000)
sys.settrace(None)
print(lines)
"""
    counts = [
        int(subprocess.run([sys.executable, "-c", program, n], capture_output=True, text=True, check=True).stdout)
        for n in ("100", "100000")
    ]
    assert counts[1] < 1.02 * counts[0]
