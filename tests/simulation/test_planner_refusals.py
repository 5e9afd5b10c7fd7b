"""Planning again after a refusal that was not in the plan."""

import pytest

from fadas.core.ledger import Schedule
from fadas.simulation.delays import Delays, Large
from fadas.simulation.planner import ARRIVED, REFUSED, plan, replan


def play_plan(p, refuse):
    """Play a plan through a ledger. Refuse the arrivals at some positions and plan again each time."""
    ledger = p.ledger()
    ledger.start()
    position = 0
    while position < len(p.ended):
        job = p.job(int(p.ended[position]))
        if position in refuse:
            p = replan(p, position, ledger, ledger.drop(job))
        elif p.outcome[job.id] == ARRIVED:
            ledger.arrive(job)
        else:
            ledger.drop(job)
        position += 1
    return p, ledger


@pytest.mark.parametrize("refill", ["arrival", "update", "round", "released"])
@pytest.mark.parametrize("limit", [{"steps": 30}, {"time": 60.0}, {"updates": 100}])
def test_replan_keeps_past_and_gives_consistent_future(refill, limit):
    delays = Delays(Large(), dropout=0.1, deadline=60.0)
    p = plan(Schedule(6, 3, refill), 12, delays, **limit, seed=5)
    arrived = [k for k, id in enumerate(p.ended) if p.outcome[id] == ARRIVED]
    refuse = {arrived[4], arrived[5], arrived[20]}
    new, ledger = play_plan(p, refuse)
    assert ledger.version == new.steps
    first = min(refuse)
    assert new.ended[: first + 1].tolist() == p.ended[: first + 1].tolist()
    assert new.outcome[p.ended[first]] == REFUSED
    assert (new.outcome[new.ended] == REFUSED).sum() == 3
    assert new.arrivals.shape == (new.steps, 3)
    if "steps" in limit:
        assert new.steps == p.steps
        assert new.time[-1] >= p.time[-1]
    else:
        assert new.steps <= p.steps
    again, _ = play_plan(p, refuse)
    for name in ("client", "version", "start", "end", "outcome", "ended", "time"):
        assert getattr(again, name).tolist() == getattr(new, name).tolist()
    # durations depend on jobs, not on the moment of planning
    shared = min(len(p.client), len(new.client))
    same = p.client[:shared] == new.client[:shared]
    lengths = [(q.end - q.start)[:shared][same] for q in (p, new)]
    assert lengths[0] == pytest.approx(lengths[1])


@pytest.mark.parametrize("refill", ["arrival", "update"])
@pytest.mark.parametrize(("clients", "buffer"), [(12, 3), (12, 1)])
def test_plan_after_many_refusals_is_that_of_the_ledger(refill, clients, buffer, monkeypatch):
    """It is cut from a longer plan. The same with every plan played through the ledger."""
    delays = Delays(Large(), dropout=0.1, deadline=60.0)
    p = plan(Schedule(6, buffer, refill), clients, delays, updates=120, seed=5)
    refuse = {*range(20, 120, 3), *range(130, 190)} - {k for k, id in enumerate(p.ended) if p.outcome[id] != ARRIVED}
    refuse = {k for k in refuse if k < len(p.ended)}
    fast, _ = play_plan(p, refuse)
    assert fast.ahead is not None
    monkeypatch.setattr("fadas.simulation.planner.Lookahead.suits", lambda *arguments: False)
    slow, _ = play_plan(p, refuse)
    assert slow.ahead is None
    assert len(refuse) > 10
    for name in ("client", "version", "start", "end", "outcome", "ended", "time", "taken"):
        assert getattr(fast, name).tolist() == getattr(slow, name).tolist(), name
        assert getattr(fast, name).dtype == getattr(slow, name).dtype


def test_replan_beyond_block_of_random_numbers_draws_new_ones():
    p = plan(Schedule(50, 10), 200, Delays(Large(), dropout=0.1), steps=2000, seed=1)
    assert len(p.client) > 1 << 14
    position = next(k for k in range(17000, len(p.ended)) if p.outcome[p.ended[k]] == ARRIVED)
    new, ledger = play_plan(p, {position})
    assert ledger.version == new.steps == 2000
    later = new.start > p.end[p.ended[position]] + 200
    assert len(set((new.end - new.start)[later].round(6))) > 100
