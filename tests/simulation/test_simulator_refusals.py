"""Simulations in which the server refuses updates."""

from dataclasses import replace

import pytest
import torch

from fadas import snapshot
from fadas.algorithms.presets import FADAS, FedAdam, FedAvg, FedBuff
from fadas.errors import Diverged
from fadas.simulation.delays import Delays, Large
from fadas.simulation.faults import Fault
from fadas.simulation.planner import plan
from fadas.simulation.simulator import simulate
from helpers.training import LOCAL, make_faulty_simulation, make_task


@pytest.mark.parametrize("executor", ["inline", "batched", "processes"])
@pytest.mark.parametrize("kind", ["nan", "inf"])
def test_run_continues_without_garbage_clients(executor, kind):
    task = make_task()
    simulation = make_faulty_simulation(task, executor=executor, faults=(Fault(kind, (1, 5)),))
    trained = []
    inner = simulation.executor.collect
    simulation.executor.collect = lambda job: trained.append(job.id) or inner(job)
    records = list(simulation)
    assert len(records) == 10
    assert records[-1].refused["not finite"] > 0
    assert all(job.client not in (1, 5) for record in records for job in record.jobs)
    assert torch.isfinite(simulation.server.model.params).all()
    assert len(trained) == len(set(trained)), "a job is trained once"
    assert [r.step for r in records] == list(range(1, 11))
    again = make_faulty_simulation(task, executor=executor, faults=(Fault(kind, (1, 5)),))
    assert [r.as_dict() for r in again] == [r.as_dict() for r in records]


def test_last_step_after_refusal_is_evaluated():
    """With a time limit, the plan's last step may never close if an earlier update is refused."""
    task, algorithm, cut = make_task(), FADAS(), 0
    for seed in range(12):
        p = plan(algorithm.schedule(4, 3), 8, Delays(Large(), faults=(Fault("nan", (0, 1)),)), time=30.0, seed=seed)
        simulation = simulate(p, task, algorithm, LOCAL, executor="inline", eval_every=1000)
        *_, last = simulation
        assert simulation.metrics == task.evaluate(simulation.module())
        assert last.metrics in (None, simulation.metrics)
        cut += last.metrics is None
        assert simulation.plan.steps == last.step
        assert simulation.plan.ended[-1] == last.jobs[-1].id, "a step that never closes is not played"
    assert 0 < cut < 12


def test_synchronous_rounds_survive_refusals():
    simulation = make_faulty_simulation(make_task(), FedAvg(), faults=(Fault("nan", (0, 1)),))
    records = list(simulation)
    assert len(records) == 10
    assert all(job.tau == 0 for record in records for job in record.jobs)


def test_all_clients_failing_raises_error():
    with pytest.raises(ValueError, match="no update arrived"):
        make_faulty_simulation(make_task(), faults=(Fault("fail"),))
    with pytest.raises(Diverged, match=r"the last 181 updates were all refused \(refused so far: not finite: 181\)"):
        list(make_faulty_simulation(make_task(), faults=(Fault("nan"),)))


HUGE = (Fault("noise", (0,), scale=1e25),)  # its square is not finite
ONE_BY_ONE = replace(FADAS(), buffer=1, refill="update")


@pytest.mark.parametrize("executor", ["inline", "batched"])
def test_updates_that_spoil_a_step_are_refused_and_run_goes_on(executor):
    simulation = make_faulty_simulation(make_task(), FADAS(), faults=HUGE, executor=executor, steps=20)
    records = list(simulation)
    assert [record.step for record in records] == list(range(1, 21))
    assert simulation.progress.retractions, "some of them were in the buffer already"
    assert simulation.progress.refusals, "some of them would have filled it"
    assert records[-1].refused["step not finite"] > 3
    assert all(job.client != 0 for record in records for job in record.jobs)
    assert simulation.plan.statistics()["updates"] == records[-1].updates == 60
    assert torch.isfinite(simulation.server.model.params).all()


@pytest.mark.parametrize("algorithm", [FADAS(), FedAdam(), ONE_BY_ONE], ids=["arrival", "round", "M=1"])
def test_run_with_undone_steps_resumes_with_same_bits(algorithm):
    def make():
        return make_faulty_simulation(make_task(), algorithm, faults=HUGE, steps=12)

    unbroken = make()
    records = [record.as_dict() for record in unbroken]
    assert records[-1]["refused"]["step not finite"] > 1
    for stop in range(1, len(records), 2):
        first, second = make(), make()
        kept = [record.as_dict() for _, record in zip(range(stop), first)]
        snapshot.restore(second, *snapshot.take(first))
        assert [*kept, *(record.as_dict() for record in second)] == records
        assert torch.equal(second.server.model.params, unbroken.server.model.params)


def test_run_in_which_most_updates_of_a_step_are_huge_diverges():
    simulation = make_faulty_simulation(make_task(), FedBuff(eta=1e10), faults=(Fault("noise", None, scale=1e30),))
    with pytest.raises(Diverged, match="step 1 gave a model that is not finite"):
        list(simulation)


def test_run_without_accepted_updates_at_time_limit_diverges():
    """Otherwise, the earlier accuracy would count as its result."""
    task, algorithm = make_task(), FADAS()
    for start, message in (
        (20.0, r"the last \d\d updates were all refused .* when its time was over"),
        (0.0, "and the time limit"),
    ):
        delays = Delays(Large(), faults=(Fault("nan", start=start),))
        p = plan(algorithm.schedule(4, 3), len(task.clients), delays, time=50.0, seed=2)
        records = []
        with pytest.raises(Diverged, match=message):
            records += simulate(p, task, algorithm, LOCAL, executor="inline")
        assert bool(records) is (start > 0)
