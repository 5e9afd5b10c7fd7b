"""The simulator against a live server, against a naive implementation of the paper, and against itself."""

import copy
import weakref
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch.nn.utils import parameters_to_vector, vector_to_parameters

import fadas
from fadas.algorithms.algorithm import Algorithm
from fadas.algorithms.combine import Mixing
from fadas.algorithms.optimizers import AMSGrad
from fadas.algorithms.presets import ALGORITHMS, FADAS, FedAMS, FedAvg, FedBuff
from fadas.algorithms.step_sizes import Constant
from fadas.core.ledger import Ledger, Schedule
from fadas.core.model import Model, Update
from fadas.core.server import Server
from fadas.executors import EXECUTORS, Batched, Inline
from fadas.simulation.delays import DELAYS, Delays, Large, Uniform
from fadas.simulation.planner import ARRIVED, plan
from fadas.simulation.simulator import simulate
from fadas.training.flat_module import FlatModule
from fadas.training.one_job import train_job
from fadas.training.sgd import LocalSGD, epoch_rows
from helpers.training import LOCAL, assert_same_model, make_plan, make_task, run_simulation


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_live_server_driven_by_the_same_arrivals_gives_the_same_bits(name):
    task, algorithm = make_task(batchnorm=True, sizes=(4, 17, 30, 8)), ALGORITHMS[name]()
    p = make_plan(algorithm, len(task.clients))
    _, simulated = run_simulation(p, task, algorithm)

    flat = FlatModule(task.module(p.seed))
    server = Server(algorithm, p.ledger(), flat.read())
    waiting = {job.id: job for job in server.start()}
    for id in p.ended.tolist():
        job = waiting.pop(id)
        if p.outcome[id] == ARRIVED:
            update = train_job(flat, task, LOCAL, p.seed, job, server.base[id])
            jobs = server.receive(update).jobs
        else:
            jobs = server.drop(job)
        waiting |= {job.id: job for job in jobs}
    assert server.state.version == p.steps
    assert_same_model(server.model, simulated)


def test_fadas_da_against_a_naive_implementation_of_algorithm_1():
    """Whole modules, torch.optim on the clients, the recurrences of the paper on the server, no fadas arithmetic."""
    task, eta, tau_c = make_task(clients=10), 0.05, 2
    algorithm = fadas.FADAS_DA(eta=eta, tau_c=tau_c)
    p = make_plan(algorithm, len(task.clients), steps=30)
    records, model = run_simulation(p, task, algorithm)

    module = task.module(p.seed)
    x = parameters_to_vector(module.parameters()).detach()
    m, v, vhat = torch.zeros_like(x), torch.zeros_like(x), torch.zeros_like(x)
    versions = [x]
    for t in range(p.steps):
        total = torch.zeros_like(x)
        for id in p.arrivals[t]:
            job = p.job(int(id))
            client = copy.deepcopy(module)
            vector_to_parameters(versions[job.version].clone(), client.parameters())
            optimizer = torch.optim.SGD(client.parameters(), LOCAL.lr, weight_decay=LOCAL.weight_decay)
            inputs, targets = task.clients[job.client]
            (epoch,) = epoch_rows(task, LOCAL, p.seed, job, "cpu")[1]
            for index in epoch.split(LOCAL.batch_size):
                optimizer.zero_grad()
                F.cross_entropy(client(inputs[index]), targets[index]).backward()
                optimizer.step()
            total += parameters_to_vector(client.parameters()).detach() - versions[job.version]
        delta = total / len(p.arrivals[t])
        m = 0.9 * m + 0.1 * delta
        v = 0.99 * v + 0.01 * delta * delta
        vhat = torch.maximum(vhat, v)
        tau_max = max(t - p.job(int(id)).version for id in p.arrivals[t])
        eta_t = eta if tau_max <= tau_c else eta / tau_max
        assert records[t].eta == eta_t
        x = x + eta_t * m / (vhat.sqrt() + 1e-8)
        versions.append(x)
    assert any(record.eta < eta for record in records)
    torch.testing.assert_close(model.params, x, rtol=1e-4, atol=1e-5)


def test_the_schedule_of_the_released_code():
    """The authors' loop, told again: M new clients a round, all but the last sent off with the round before's model,
    and everybody's delta taken against the newest one."""
    task = make_task(clients=12, batchnorm=True)
    algorithm, M = Algorithm(optimizer=AMSGrad(bias_correction=True), step_size=Constant(0.05)), 3
    p = make_plan(algorithm, len(task.clients), steps=15, dropout=0.0, schedule=Schedule(5, M, "released"))
    _, model = run_simulation(p, task, algorithm)

    flat = FlatModule(task.module(p.seed))
    x = last = flat.read()
    m, v, vhat = (torch.zeros_like(x.params) for _ in range(3))
    sent, trained, wanted = 0, {}, 5
    for t in range(p.steps):
        jobs = [p.job(id) for id in range(sent, sent + wanted)]
        for job in jobs:
            start = last if t and job != jobs[-1] else x
            update = train_job(flat, task, LOCAL, p.seed, job, start)
            trained[job.id] = (start.params + update.delta - x.params, update.buffers)
            assert job.version == t
        sent, wanted = sent + wanted, M
        deltas, buffers = zip(*(trained.pop(int(id)) for id in p.arrivals[t]))
        delta = torch.stack(deltas).mean(0)
        m, v = 0.9 * m + 0.1 * delta, 0.99 * v + 0.01 * delta**2
        vhat = torch.maximum(vhat, v)
        root = vhat.sqrt() / (1 - 0.99 ** (t + 1)) ** 0.5 + 1e-8
        last, x = x, Model(x.params + 0.05 / (1 - 0.9 ** (t + 1)) * m / root, torch.stack(buffers).mean(0))
    torch.testing.assert_close(model.params, x.params, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(model.buffers, x.buffers)


def test_a_late_client_s_model_is_its_own_whatever_its_delta_is_taken_against():
    """Mixing takes the mean of the trained models. Also after a drop, the last of a round's clients is up to date."""
    task, algorithm = make_task(), Algorithm(Mixing(), step_size=Constant(0.5))
    schedule = Schedule(5, 3, "released")
    server = Server(algorithm, Ledger(schedule, 8, seed=1), FlatModule(task.module(1)).read())
    jobs = server.start()
    server.drop(jobs.pop(0))
    for version in range(3):
        before = server.model
        jobs = sorted(server.ledger.running.values())[:3]
        trained = [torch.full_like(before.params, float(job.id)) for job in jobs]
        for job, params in zip(jobs, trained, strict=True):
            base = server.base[job.id]
            received = server.receive(Update(job, params - base.params, base.buffers, base.params, 1, {"loss": 0.0}))
        expected = before.params + 0.5 * (torch.stack(trained).mean(0) - before.params)
        torch.testing.assert_close(server.model.params, expected)
        assert server.state.version == version + 1
        assert [server.base[job.id] is before for job in received.jobs] == [True, True, False]
        assert [job.version for job in received.jobs] == [version + 1] * 3


def test_synchronous_fadas_is_fedams_and_fedbuff_refilled_per_round_is_fedavg(task):
    rounds = Schedule(4, 4, "round")
    for asynchronous, synchronous in ((FADAS(), FedAMS()), (FedBuff(), FedAvg())):
        p = make_plan(synchronous, len(task.clients), schedule=rounds)
        assert p.schedule == synchronous.schedule(4, 4)
        one, two = run_simulation(p, task, asynchronous)[1], run_simulation(p, task, synchronous)[1]
        assert torch.equal(one.params, two.params)


def test_fedavg_is_the_mean_of_the_clients_models(task):
    p = make_plan(FedAvg(), len(task.clients), steps=1, dropout=0.0)
    _, model = run_simulation(p, task, FedAvg())
    flat = FlatModule(task.module(p.seed))
    start = flat.read()
    jobs = [p.job(int(id)) for id in p.arrivals[0]]
    trained = [start.params + train_job(flat, task, LOCAL, p.seed, job, start).delta for job in jobs]
    torch.testing.assert_close(model.params, torch.stack(trained).mean(0))


class AnyOrder(Inline):
    """Trains everything pending as soon as anything is needed, the newest job first."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.done = {}

    def collect(self, job):
        if job.id not in self.done:
            for id in sorted(self._pending, reverse=True):
                self.done[id] = super().collect(self.plan.job(id))
        return self.done.pop(job.id)


@pytest.mark.parametrize("batchnorm", [False, True])
def test_the_order_of_execution_does_not_matter(batchnorm):
    task = make_task(batchnorm=batchnorm, sizes=(4, 17, 30, 8))
    p = make_plan(FADAS(), len(task.clients))
    eager = AnyOrder(task, LOCAL, p.seed)
    eager.plan = p
    records, model = run_simulation(p, task, FADAS())
    other_records, other = run_simulation(p, task, FADAS(), executor=eager)
    assert_same_model(model, other)
    assert [r.metrics for r in records] == [r.metrics for r in other_records]


@pytest.mark.parametrize("delays", DELAYS)
@pytest.mark.parametrize("name", EXECUTORS)
def test_every_executor_agrees_with_inline_for_every_algorithm_and_delay(name, delays, tmp_path):
    if name == "cuda" and not torch.cuda.is_available():
        pytest.skip("no GPU")
    if name == "processes" and torch.cuda.is_available():
        pytest.skip("there is a GPU")
    if name == "ray":
        pytest.skip("each run would start processes of its own: see test_ray.py")
    device = "cuda" if name == "cuda" else "cpu"
    precise = {"precision": "fp32"} if name == "cuda" else {}
    table = tmp_path / "t.csv"
    table.write_text("client,low,high\n" + "".join(f"{c},1,{c + 2}\n" for c in range(8)))
    model = DELAYS[delays](path=str(table)) if delays == "table" else DELAYS[delays]()
    for batchnorm in (False, True):
        task = make_task(batchnorm=batchnorm, sizes=(4, 17, 30, 8))
        for make in ALGORITHMS.values():
            algorithm = make()
            p = plan(algorithm.schedule(5, 3), 8, Delays(model, dropout=0.1), steps=4, seed=3)
            records, one = run_simulation(p, task, algorithm)
            make = partial(EXECUTORS[name], task, LOCAL, p.seed, device, **precise)
            others, two = run_simulation(p, task, algorithm, executor=make())
            torch.testing.assert_close(two.params.cpu(), one.params, rtol=1e-3, atol=1e-4)
            torch.testing.assert_close(two.buffers.cpu(), one.buffers, rtol=1e-3, atol=1e-5)
            assert [(r.step, r.time, r.jobs) for r in records] == [(r.step, r.time, r.jobs) for r in others]
    again = run_simulation(p, task, algorithm, executor=make())[1]
    assert torch.equal(again.params, two.params), "an executor must repeat itself exactly"


def test_batched_looks_ahead(task):
    """The jobs pending when the first is needed train in one call, whatever version they start from."""
    p = make_plan(FADAS(), len(task.clients), steps=20, dropout=0.0)
    executor = Batched(task, LOCAL, p.seed)
    calls, inner = [], executor._trainer.train
    executor._trainer.train = lambda work: calls.append(work) or inner(work)
    run_simulation(p, task, FADAS(), executor=executor)
    sizes = [len(work) for work in calls]
    assert sum(sizes) == 60, "every needed job is trained once, no other is"
    assert sizes[0] == sum(p.needed[:5])
    assert any(len({job.version for job, _ in work}) > 1 for work in calls)
    with pytest.raises(ValueError, match="size"):
        Batched(task, LOCAL, 0, size=0)


def test_records(task):
    p = make_plan(FADAS(), len(task.clients), steps=7)
    records, _ = run_simulation(p, task, FADAS(), eval_every=3)
    start = FlatModule(task.module(p.seed)).read()
    assert [r.step for r in records] == list(range(1, 8))
    assert [r.metrics is not None for r in records] == [False, False, True, False, False, True, True]
    assert [r.updates for r in records] == [3 * k for k in range(1, 8)]
    assert [r.time for r in records] == p.time.tolist()
    assert [[j.tau for j in r.jobs] for r in records] == p.tau.tolist()
    last = records[-1]
    assert {"accuracy", "loss"} == set(last.metrics)
    assert last.dropped == p.statistics()["dropped"]
    job = last.jobs[0]
    assert last.as_dict()["jobs"][0]["client"] == job.client
    assert (job.start, job.end) == (p.start[job.id], p.end[job.id])
    # the train loss of a step is the mean over its own jobs; jobs of the first step start from the initial model
    flat = FlatModule(task.module(p.seed))
    first = [train_job(flat, task, LOCAL, p.seed, p.job(j.id), start) for j in records[0].jobs]
    assert records[0].train_loss == pytest.approx(sum(u.metrics["loss"] for u in first) / 3)
    assert records[1].train_loss != records[0].train_loss


def test_evaluation_sees_the_model_that_the_step_made(task):
    p = make_plan(FADAS(), len(task.clients), steps=3)
    simulation = simulate(p, task, FADAS(eta=0.5), LOCAL)
    for record in simulation:
        module = task.module()
        module.load_state_dict(simulation.state_dict())
        assert record.metrics == task.evaluate(module)


def test_jobs_that_reach_no_step_are_not_trained_and_time_limits_simulate(task):
    p = plan(Schedule(6, 4), 8, Delays(Large(), dropout=0.2), time=20.0, seed=2)
    trained = []

    class Counting(Inline):
        def submit(self, job, start, due):
            trained.append(job.id)
            super().submit(job, start, due)

    records, _ = run_simulation(p, task, FADAS(), executor=Counting(task, LOCAL, p.seed))
    assert sorted(trained) == sorted(p.arrivals.ravel().tolist())
    assert len(trained) < len(p.client)
    assert records[-1].updates == p.statistics()["updates"] == 4 * p.steps
    assert records[-1].dropped == p.statistics()["dropped"] > 0


def test_training_learns_and_stops_at_the_target(task):
    algorithm = Algorithm(optimizer=AMSGrad(), step_size=Constant(0.03))
    p = make_plan(algorithm, len(task.clients), steps=200)
    records, _ = run_simulation(p, task, algorithm, target=0.8)
    assert records[-1].metrics["accuracy"] >= 0.8
    assert all(r.metrics["accuracy"] < 0.8 for r in records[:-1])
    assert len(records) < 200


def test_state_dict_loads(task):
    p = make_plan(FADAS(), len(task.clients))
    simulation = simulate(p, task, FADAS(), LOCAL)
    records = list(simulation)
    module = task.module()
    module.load_state_dict(simulation.state_dict())
    assert task.evaluate(module) == records[-1].metrics


def test_a_version_is_freed_with_the_last_job_that_started_from_it():
    task = make_task(clients=40, sizes=(4,))
    algorithm = FedBuff()
    p = plan(algorithm.schedule(6, 2), 40, Delays(Uniform(1, 2)), steps=60, seed=0)
    simulation = simulate(p, task, algorithm, LOCAL)
    seen: list[weakref.ref] = []
    for _ in simulation:
        seen.append(weakref.ref(simulation.server.model.params))
        alive = sum(ref() is not None for ref in seen)
        in_flight = {job.version for job in simulation.server.ledger.running.values()}
        assert alive <= len(in_flight | {simulation.server.state.version})


def test_mistakes(task):
    p = make_plan(FADAS(), len(task.clients))
    with pytest.raises(ValueError, match="the task has 9"):
        simulate(p, make_task(clients=9), FADAS(), LOCAL)
    with pytest.raises(ValueError, match="unknown executor"):
        simulate(p, task, FADAS(), LOCAL, executor="magic")
    with pytest.raises(ValueError, match="needs a CUDA device"):
        simulate(p, task, FADAS(), LOCAL, executor="cuda")
    with pytest.raises(ValueError, match="eval_every"):
        simulate(p, task, FADAS(), LOCAL, eval_every=0)


def test_golden_digits_run():
    """The demo's task with fixed seeds: the timeline to the digit, the result as it was when this was written."""
    from fadas.tasks import TASKS

    task = TASKS["digits"](clients=50, alpha=0.1, seed=1)
    algorithm = fadas.FADAS_DA(eta=0.003, tau_c=10)
    p = plan(algorithm.schedule(25, 5), 50, steps=100, seed=1)
    assert p.client[:10].tolist() == GOLDEN["clients"]
    assert p.statistics()["virtual_time"] == pytest.approx(GOLDEN["time"], abs=1e-9)
    simulation = simulate(p, task, algorithm, LocalSGD(lr=0.1, batch_size=10), eval_every=100)
    last = list(simulation)[-1]
    assert last.metrics["accuracy"] == pytest.approx(GOLDEN["accuracy"], abs=0.015)
    assert last.metrics["loss"] == pytest.approx(GOLDEN["loss"], rel=0.05)
    assert float(simulation.server.model.params.norm()) == pytest.approx(GOLDEN["norm"], rel=1e-3)


GOLDEN = {
    "clients": [41, 23, 27, 42, 38, 33, 2, 39, 45, 29],
    "time": 51.01682797229965,
    "accuracy": 0.871866295264624,
    "loss": 0.3924697407152929,
    "norm": 10.865074157714844,
}
