"""The simulator against a live server and against itself."""

import weakref

import pytest

import fadas
from fadas.algorithms.algorithm import Algorithm
from fadas.algorithms.optimizers import AMSGrad
from fadas.algorithms.presets import ALGORITHMS, FADAS, FedBuff
from fadas.algorithms.step_sizes import Constant
from fadas.core.ledger import Schedule
from fadas.core.server import Server
from fadas.executors import Inline
from fadas.simulation.delays import Delays, Large, Uniform
from fadas.simulation.planner import ARRIVED, plan
from fadas.simulation.simulator import simulate
from fadas.training.flat_module import FlatModule
from fadas.training.job_state import start_of_job
from fadas.training.one_job import train_job
from fadas.training.sgd import LocalSGD
from helpers.training import LOCAL, assert_same_model, local_for, make_plan, make_task, run_simulation

FEDERATED = [name for name in ALGORITHMS if ALGORITHMS[name]().baseline is None]  # the others: test_baselines.py


@pytest.mark.parametrize("name", FEDERATED)
def test_simulator_agrees_with_live_server(name):
    task, algorithm = make_task(batchnorm=True, sizes=(4, 17, 30, 8)), ALGORITHMS[name]()
    p = make_plan(algorithm, len(task.clients))
    _, simulated = run_simulation(p, task, algorithm, local_for(algorithm))
    local, kept = algorithm.local_training(local_for(algorithm)), {}

    flat = FlatModule(task.module(p.seed))
    server = Server(algorithm, p.ledger(), flat.read())
    waiting = {job.id: job for job in server.start()}
    for id in p.ended.tolist():
        job = waiting.pop(id)
        if p.outcome[id] == ARRIVED:
            start = start_of_job(server.base[id], kept.get(job.client, {}))
            update = train_job(flat, task, local, p.seed, job, start)
            kept[job.client] = update.kept
            jobs = server.receive(update).jobs
        else:
            jobs = server.drop(job)
        waiting |= {job.id: job for job in jobs}
    assert server.state.version == p.steps
    assert_same_model(server.model, simulated)


class NewestFirst(Inline):
    """Trains all pending jobs when one is needed, the newest first."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.done = {}

    def collect(self, job):
        if job.id not in self.done:
            for id in sorted(self._pending, reverse=True):
                self.done[id] = super().collect(self.plan.job(id))
        return self.done.pop(job.id)


@pytest.mark.parametrize("batchnorm", [False, True])
def test_order_of_execution_does_not_matter(batchnorm):
    task = make_task(batchnorm=batchnorm, sizes=(4, 17, 30, 8))
    p = make_plan(FADAS(), len(task.clients))
    eager = NewestFirst(task, LOCAL, p.seed)
    eager.plan = p
    records, model = run_simulation(p, task, FADAS())
    other_records, other = run_simulation(p, task, FADAS(), executor=eager)
    assert_same_model(model, other)
    assert [r.metrics for r in records] == [r.metrics for r in other_records]


def test_records_describe_plan_and_losses(task):
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


def test_evaluation_sees_model_of_step(task):
    p = make_plan(FADAS(), len(task.clients), steps=3)
    simulation = simulate(p, task, FADAS(eta=0.5), LOCAL)
    for record in simulation:
        module = task.module()
        module.load_state_dict(simulation.state_dict())
        assert record.metrics == task.evaluate(module)


def test_jobs_without_step_are_not_trained(task):
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


def test_training_learns_and_stops_at_target(task):
    algorithm = Algorithm(optimizer=AMSGrad(), step_size=Constant(0.03))
    p = make_plan(algorithm, len(task.clients), steps=200)
    records, _ = run_simulation(p, task, algorithm, target=0.8)
    assert records[-1].metrics["accuracy"] >= 0.8
    assert all(r.metrics["accuracy"] < 0.8 for r in records[:-1])
    assert len(records) < 200


def test_state_dict_loads_into_module(task):
    p = make_plan(FADAS(), len(task.clients))
    simulation = simulate(p, task, FADAS(), LOCAL)
    records = list(simulation)
    module = task.module()
    module.load_state_dict(simulation.state_dict())
    assert task.evaluate(module) == records[-1].metrics


def test_version_is_freed_with_last_job():
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


def test_mistakes_are_refused(task):
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
    """The digits with fixed seeds. The timeline is exact; the result is that of the day this was written."""
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
