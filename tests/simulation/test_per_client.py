"""The limit of one client's updates per step, planned and simulated."""

from collections import Counter
from dataclasses import replace

import pytest
import torch

from fadas import snapshot
from fadas.algorithms.presets import FADAS, FedAdam
from fadas.simulation.delays import Delays, Mild
from fadas.simulation.faults import Fault
from fadas.simulation.planner import plan
from fadas.simulation.simulator import simulate
from helpers.training import LOCAL, make_task

BAD = (Fault("nan", (1,)), Fault("noise", (2,), scale=1e25))


class OneFast:
    """Client 0 is twenty times as fast as the others."""

    def bind(self, clients, rng):
        return lambda client, u: (1 + u) / (20 if client == 0 else 1)


def make(refill, excess, per_client=1, faults=(), clients=8):
    algorithm = replace(FADAS() if refill != "round" else FedAdam(), refill=refill)
    schedule = replace(algorithm.schedule(8, 4), buffer=4, per_client=per_client, excess=excess)
    delays = Delays(OneFast(), faults=faults)
    p = plan(schedule, clients, delays, steps=12, seed=3)
    return p, simulate(p, make_task(clients=clients), algorithm, LOCAL, executor="inline")


@pytest.mark.parametrize("excess", ["wait", "replace"])
@pytest.mark.parametrize("refill", ["arrival", "update", "round", "released"])
def test_simulation_follows_plan_and_limit(refill, excess):
    p, simulation = make(refill, excess)
    records = list(simulation)
    for record, ids in zip(records, p.arrivals, strict=True):
        assert [job.id for job in record.jobs] == ids.tolist()
        assert max(Counter(job.client for job in record.jobs).values()) == 1
    assert p.statistics()["updates"] == 48
    assert not simulation.progress.refusals
    if excess == "replace" and refill in ("arrival", "update"):
        assert records[-1].refused["replaced"] > 12
        ages = [max(j.id for j in r.jobs) - next(j.id for j in r.jobs if j.client == 0) for r in records[1:]]
        assert max(ages) < 12, "of the fast client, the latest update counts"


def test_without_limit_fast_client_fills_buffer():
    p, _ = make("arrival", "wait", per_client=0)
    assert max(max(Counter(p.client[ids].tolist()).values()) for ids in p.arrivals) == 4


def test_two_updates_per_client_are_allowed_by_limit_of_two():
    p, _ = make("arrival", "wait", per_client=2)
    assert max(max(Counter(p.client[ids].tolist()).values()) for ids in p.arrivals) == 2


@pytest.mark.parametrize("faults", [(), BAD], ids=["no faults", "faults"])
@pytest.mark.parametrize("excess", ["wait", "replace"])
@pytest.mark.parametrize("refill", ["arrival", "update", "round", "released"])
def test_limited_run_resumes_with_same_bits(refill, excess, faults):
    _, unbroken = make(refill, excess, faults=faults)
    records = [record.as_dict() for record in unbroken]
    assert len(records) == 12
    for stop in (1, 5) if faults else (4, 8):
        (_, first), (_, second) = make(refill, excess, faults=faults), make(refill, excess, faults=faults)
        kept = [record.as_dict() for _, record in zip(range(stop), first)]
        snapshot.restore(second, *snapshot.take(first))
        assert [*kept, *(record.as_dict() for record in second)] == records
        assert torch.equal(second.server.model.params, unbroken.server.model.params)


def test_plan_without_limit_is_unchanged():
    one, other = (plan(replace(FADAS().schedule(4, 2), per_client=k), 8, Mild(), steps=50) for k in (None, 0))
    assert (one.ended == other.ended).all()
    assert (one.arrivals.ravel() == one.ended[one.outcome[one.ended] == 0]).all()


@pytest.mark.parametrize("refill", ["arrival", "update"])
def test_run_that_stops_while_an_update_waits_resumes_with_same_bits(refill):
    (_, unbroken), (_, first), (_, second) = (make(refill, "wait", clients=9) for _ in range(3))
    expected, inner = [record.as_dict() for record in unbroken], first.server.receive
    first.server.receive = lambda update: (inner(update), first.server.waiting and first.stop())[0]
    records = [record.as_dict() for record in first]
    assert first.server.waiting
    snapshot.restore(second, *snapshot.take(first))
    assert records + [record.as_dict() for record in second] == expected
    assert torch.equal(second.server.model.params, unbroken.server.model.params)
