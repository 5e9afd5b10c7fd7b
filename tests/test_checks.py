"""The server's checks: each reason, and that a refusal changes nothing but a counter and frees the slot."""

import copy
from dataclasses import replace

import pytest
import torch

from fadas.algorithms.presets import FADAS, FedAdagrad, FedAdam, FedAvg, FedBuff, FedYogi
from fadas.core.ledger import Job, Ledger, Schedule
from fadas.core.model import Model
from fadas.core.server import Server
from fadas.core.update_checks import Checks
from fadas.errors import Diverged
from fadas.simulation.delays import Delays, Large
from fadas.simulation.faults import Fault
from fadas.simulation.planner import ARRIVED, REFUSED, plan, replan
from fadas.simulation.simulator import simulate
from helpers.training import LOCAL, make_faulty_simulation, make_task
from helpers.updates import NOT_FINITE, make_server, make_update


def state_of(server):
    return (
        server.state,
        [u.job for u in server.buffer],
        server.ledger.version,
        list(server.ledger.buffer),
    )


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"delta": torch.ones(4)}, "wrong shape"),
        ({"delta": torch.ones(5, 1)}, "wrong shape"),
        ({"buffers": torch.ones(3)}, "wrong shape"),
        ({"delta": torch.ones(5).double()}, "wrong dtype"),
        ({"delta": torch.ones(5, dtype=torch.int32)}, "wrong dtype"),
        ({"buffers": torch.ones(2).half()}, "wrong dtype"),
        ({"delta": NOT_FINITE}, "not finite"),
        ({"delta": torch.full((5,), float("inf"))}, "not finite"),
        ({"delta": torch.tensor([float("inf"), -float("inf"), 0, 0, 0])}, "not finite"),
        ({"buffers": torch.tensor([0.0, float("nan")])}, "not finite"),
        ({"delta": torch.full((5,), 10.0)}, "norm above bound"),
        ({"delta": torch.full((5,), 1e30)}, "norm above bound"),
        ({"examples": 0}, "no examples"),
        ({"examples": -4}, "no examples"),
    ],
)
def test_a_refused_update_changes_nothing_but_a_counter_and_frees_its_slot(changes, reason):
    server, jobs = make_server(Checks(norm=5.0))
    server.receive(make_update(jobs[0], server.model))
    before = state_of(server)
    received = server.receive(make_update(jobs[1], server.model, **changes))
    assert received.refused == reason
    assert received.step is None
    assert state_of(server) == before
    assert server.refused == {reason: 1}
    assert jobs[1].id not in server.ledger.running
    assert jobs[1].id not in server.base
    (new,) = received.jobs
    assert server.base[new.id] is server.model
    assert len(server.ledger.running) == 4


def test_jobs_that_are_not_running():
    server, jobs = make_server()
    server.receive(make_update(jobs[0], server.model))
    server.drop(jobs[1])
    server.drop(jobs[2], "expired")
    server.receive(make_update(jobs[3], server.model, delta=NOT_FINITE))
    running = dict(server.ledger.running)
    impostor = Job(next(iter(running)), 9 - next(iter(running.values())).client, 0)
    for job, reason in (
        (Job(99, 0, 0), "unknown job"),
        (impostor, "unknown job"),
        (jobs[0], "already reported"),
        (jobs[1], "dropped"),
        (jobs[2], "expired"),
        (jobs[3], "not finite"),
    ):
        received = server.receive(make_update(job, server.model))
        assert (received.jobs, received.step, received.refused) == ([], None, reason)
    assert server.ledger.running == running
    assert len(server.buffer) == 1


def test_clipping_instead_of_refusing():
    server, jobs = make_server(Checks(norm=5.0, excess="clip"), buffer=1)
    delta = torch.tensor([3.0, 4, 0, 0, 12])
    received = server.receive(make_update(jobs[0], server.model, delta=delta))
    assert received.step
    assert not received.refused
    server, jobs = make_server(Checks(norm=5.0, excess="clip"))
    server.receive(make_update(jobs[0], server.model, delta=delta))
    torch.testing.assert_close(server.buffer[0].delta, delta * 5 / 13)
    server.receive(make_update(jobs[1], server.model, delta=delta / 100))
    assert torch.equal(server.buffer[1].delta, delta / 100)
    assert server.receive(make_update(jobs[2], server.model, delta=torch.full((5,), 3e38))).refused


def test_what_is_too_long_to_be_squared_is_clipped_too():
    server, jobs = make_server(Checks(norm=5.0, excess="clip"))
    server.receive(make_update(jobs[0], server.model, delta=torch.tensor([3e20, 4e20, 0, 0, 0])))
    torch.testing.assert_close(server.buffer[0].delta, torch.tensor([3.0, 4, 0, 0, 0]))


@pytest.mark.parametrize("algorithm", [FADAS(), FedAdam(), FedYogi(), FedAdagrad()], ids=repr)
def test_a_huge_update_does_not_stop_an_adaptive_optimizer_without_a_word(algorithm):
    """Its square is not finite, so the step would be zero there ever after."""
    server = Server(algorithm, Ledger(Schedule(1, 1), 3), Model(torch.zeros(5), torch.zeros(2)))
    (job,) = server.start()
    received = server.receive(make_update(job, server.model))
    with pytest.raises(Diverged, match="step 2 gave an optimizer's memory that is not finite"):
        server.receive(make_update(received.jobs[0], server.model, delta=torch.tensor([1e25, 1, 1, 1, 1])))


@pytest.mark.parametrize("statistics", [1.0, 0.2])
@pytest.mark.parametrize("mask", [float("-inf"), torch.finfo().min])
def test_a_mask_among_the_buffers_is_no_reason_to_refuse(mask, statistics):
    buffers = torch.tensor([mask, mask, mask, 1.0])
    algorithm = replace(FADAS(), statistics=statistics)
    server = Server(algorithm, Ledger(Schedule(2, 2), 3), Model(torch.zeros(5), buffers))
    for job in server.start():
        assert not server.receive(
            make_update(job, server.model, buffers=buffers + torch.tensor([0, 0, 0, 1.0]))
        ).refused
    assert server.model.buffers.tolist()[:3] == buffers.tolist()[:3]
    assert server.model.buffers[3] == pytest.approx(1 + statistics)
    for wrong in (float("inf"), float("nan")):
        (job, *_) = server.ledger.running.values()
        assert server.receive(
            make_update(job, server.model, buffers=buffers.new_tensor([mask, wrong, mask, 1.0]))
        ).refused


@pytest.mark.parametrize("bad", [{"norm": 0}, {"norm": -1.0}, {"norm": float("nan")}, {"excess": "hide"}])
def test_bad_settings(bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        Checks(**bad)


# A refusal was not in the plan: the future is planned anew.


def drive(p, refuse):
    """Play a plan through a ledger; refuse the arrivals at some positions, planning anew each time."""
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
def test_replanning_keeps_the_past_and_gives_a_consistent_future(refill, limit):
    delays = Delays(Large(), dropout=0.1, deadline=60.0)
    p = plan(Schedule(6, 3, refill), 12, delays, **limit, seed=5)
    arrived = [k for k, id in enumerate(p.ended) if p.outcome[id] == ARRIVED]
    refuse = {arrived[4], arrived[5], arrived[20]}
    new, ledger = drive(p, refuse)
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
    again, _ = drive(p, refuse)
    for name in ("client", "version", "start", "end", "outcome", "ended", "time"):
        assert getattr(again, name).tolist() == getattr(new, name).tolist()
    # durations belong to jobs, not to the moment of planning
    shared = min(len(p.client), len(new.client))
    same = p.client[:shared] == new.client[:shared]
    lengths = [(q.end - q.start)[:shared][same] for q in (p, new)]
    assert lengths[0] == pytest.approx(lengths[1])


def test_replanning_beyond_a_block_of_random_numbers():
    p = plan(Schedule(50, 10), 200, Delays(Large(), dropout=0.1), steps=2000, seed=1)
    assert len(p.client) > 1 << 14
    position = next(k for k in range(17000, len(p.ended)) if p.outcome[p.ended[k]] == ARRIVED)
    new, ledger = drive(p, {position})
    assert ledger.version == new.steps == 2000
    later = new.start > p.end[p.ended[position]] + 200
    assert len(set((new.end - new.start)[later].round(6))) > 100


@pytest.mark.parametrize("executor", ["inline", "batched", "processes"])
@pytest.mark.parametrize("kind", ["nan", "inf"])
def test_a_client_that_reports_garbage_is_refused_and_the_run_goes_on(executor, kind):
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


def test_a_step_that_a_refusal_makes_the_last_is_evaluated_too():
    """With a time limit the plan's last step may never close when an update before it is refused."""
    task, algorithm, cut = make_task(), FADAS(), 0
    for seed in range(12):
        p = plan(algorithm.schedule(4, 3), 8, Delays(Large(), faults=(Fault("nan", (0, 1)),)), time=30.0, seed=seed)
        simulation = simulate(p, task, algorithm, LOCAL, executor="inline", eval_every=1000)
        *_, last = simulation
        assert simulation.metrics == task.evaluate(simulation.module())
        assert last.metrics in (None, simulation.metrics)
        cut += last.metrics is None
        assert simulation.plan.steps == last.step
        assert simulation.plan.ended[-1] == last.jobs[-1].id, "nothing of a step that never closes is played"
    assert 0 < cut < 12


def test_synchronous_rounds_with_refusals():
    simulation = make_faulty_simulation(make_task(), FedAvg(), faults=(Fault("nan", (0, 1)),))
    records = list(simulation)
    assert len(records) == 10
    assert all(job.tau == 0 for record in records for job in record.jobs)


def test_faults_end_and_begin():
    task = make_task()
    only_early = list(make_faulty_simulation(task, faults=(Fault("fail", end=3.0),), steps=20))
    assert only_early[0].time > 3
    assert only_early[-1].dropped > 0
    assert list(make_faulty_simulation(task, faults=(Fault("nan", start=1e6),)))[-1].refused == {}


def test_all_clients_failing_is_an_error_not_a_hang():
    with pytest.raises(ValueError, match="no update arrived"):
        make_faulty_simulation(make_task(), faults=(Fault("fail"),))
    with pytest.raises(
        Diverged, match=r"none of the last 181 updates was accepted \(refused so far: not finite: 181\)"
    ):
        list(make_faulty_simulation(make_task(), faults=(Fault("nan"),)))


def test_a_model_that_is_not_finite_ends_the_run_at_that_step():
    """Updates in flight may still be sound, but no sum with them will be."""
    simulation, steps = (
        make_faulty_simulation(make_task(), FedBuff(eta=1e10), faults=(Fault("noise", (0,), scale=1e30),)),
        [],
    )
    with pytest.raises(Diverged) as error:
        steps += (record.step for record in simulation)
    assert steps == list(range(1, len(steps) + 1))
    assert str(error.value) == f"step {len(steps) + 1} gave a model that is not finite"
    assert not simulation.server.refused


def test_a_run_whose_time_is_over_before_patience_is_has_diverged_too():
    """Else the accuracy from before would pass for its result."""
    task, algorithm = make_task(), FADAS()
    for start, message in (
        (20.0, r"none of the last \d\d updates .* when its time was over"),
        (0.0, "and the time limit"),
    ):
        delays = Delays(Large(), faults=(Fault("nan", start=start),))
        p = plan(algorithm.schedule(4, 3), len(task.clients), delays, time=50.0, seed=2)
        records = []
        with pytest.raises(Diverged, match=message):
            records += simulate(p, task, algorithm, LOCAL, executor="inline")
        assert bool(records) is (start > 0)


def test_fewer_live_clients_than_slots():
    """Eight clients, four slots, one of the clients alive: the run goes on with that one."""
    records = list(make_faulty_simulation(make_task(), faults=(Fault("fail", tuple(range(1, 8))),)))
    assert {job.client for record in records for job in record.jobs} == {0}
    assert records[-1].dropped > 50


def test_noise_and_flips_are_seeded_and_as_stated():
    task = make_task()
    flipped = make_faulty_simulation(task, FedBuff(), faults=(Fault("flip", scale=2.0),), steps=1)
    honest = make_faulty_simulation(task, FedBuff(), steps=1)
    start = copy.deepcopy(honest.server.model.params)
    list(flipped), list(honest)
    torch.testing.assert_close(flipped.server.model.params - start, -2 * (honest.server.model.params - start))
    runs = [make_faulty_simulation(task, FedBuff(), faults=(Fault("noise", scale=3.0),), steps=1) for _ in range(2)]
    for run in runs:
        list(run)
    assert torch.equal(runs[0].server.model.params, runs[1].server.model.params)
    noise = runs[0].server.model.params - honest.server.model.params  # the mean of three
    assert float(noise.std()) == pytest.approx(3 / 3**0.5, rel=0.25)


@pytest.mark.parametrize(
    "bad",
    [{"kind": "rot"}, {"kind": "nan", "start": -1}, {"kind": "nan", "start": 5, "end": 5}]
    + [{"kind": "noise", "scale": 0}],
)
def test_bad_faults(bad):
    with pytest.raises(ValueError, match="must"):
        Fault(**bad)


def test_a_fault_of_a_client_that_does_not_exist():
    with pytest.raises(ValueError, match="names client 8, but there are 8"):
        make_faulty_simulation(make_task(), faults=(Fault("nan", (8,)),))
