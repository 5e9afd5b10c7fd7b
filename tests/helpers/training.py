"""Small tasks, plans and simulations."""

import time
from collections.abc import Sequence

import pytest
import torch
from torch import nn

from fadas.algorithms.algorithm import Algorithm
from fadas.algorithms.companions import SharedMoments
from fadas.algorithms.presets import FADAS, FedBuff
from fadas.core.ledger import Job, Schedule
from fadas.core.model import Model
from fadas.core.records import Record
from fadas.executors import EXECUTORS
from fadas.simulation.delays import Delays, Large, Mild
from fadas.simulation.planner import Plan, plan
from fadas.simulation.simulator import Simulation, simulate
from fadas.tasks.task import Task, cross_entropy
from fadas.training.batched.many_jobs import BatchTrainer
from fadas.training.flat_module import FlatModule
from fadas.training.one_job import train_job
from fadas.training.optimizers import AMSGrad
from fadas.training.sgd import LocalSGD, epoch_rows

LOCAL = LocalSGD(lr=0.1, epochs=1, batch_size=6)
LOCAL_LONG = LocalSGD(lr=0.1, epochs=2, batch_size=7)
LOCAL_DECAY = LocalSGD(lr=0.1, epochs=2, batch_size=5, weight_decay=0.01)


def local_for(algorithm: Algorithm, local: LocalSGD = LOCAL) -> LocalSGD:
    """Local training that goes with an algorithm: most take SGD."""
    if isinstance(algorithm.companion, SharedMoments):
        return AMSGrad(0.01, local.epochs, local.batch_size, eps=1e-3)
    return local


def make_task(
    clients: int = 8,
    batchnorm: bool = False,
    seed: int = 0,
    sizes: tuple[int, ...] = (3, 17, 30, 8),
    dtype: torch.dtype = torch.float32,
) -> Task:
    """A small task with clients of unequal size, none a multiple of the batch size."""
    generator = torch.Generator().manual_seed(seed)

    def data(n: int):
        x = torch.randn(n, 6, generator=generator).to(dtype)
        return x, (x[:, 0] > x[:, 1]).long() + (x[:, 2] > 0).long()

    def model() -> nn.Module:
        middle = [nn.BatchNorm1d(5)] if batchnorm else []
        return nn.Sequential(nn.Linear(6, 5), *middle, nn.ReLU(), nn.Linear(5, 3)).to(dtype)

    return Task(model, [data(sizes[c % len(sizes)]) for c in range(clients)], test=data(50))


def make_plain_task(clients: int) -> Task:
    """A task that takes nothing but the number of clients, as users write their first one."""
    return make_task(clients)


def make_clientless_task() -> Task:
    return make_task()


def make_wide_task() -> Task:
    """Large enough that torch rounds differently with two threads than with one."""
    generator = torch.Generator().manual_seed(0)
    data = [(torch.randn(40, 64, generator=generator), torch.arange(40) % 10) for _ in range(8)]
    return Task(lambda: nn.Sequential(nn.Linear(64, 2048), nn.ReLU(), nn.Linear(2048, 10)), data, test=data[0])


def make_even_task(model, loss=cross_entropy, clients=None) -> Task:
    """Six clients with twelve examples each, unless other data are given."""
    source = torch.Generator().manual_seed(0)
    even = [(torch.randn(12, 6, generator=source), torch.arange(12) % 3) for _ in range(6)]
    return Task(model, clients or even, loss=loss)


def slow_cross_entropy(outputs, targets):
    time.sleep(0.02)
    return nn.functional.cross_entropy(outputs, targets)


def make_plan(
    algorithm: Algorithm, clients=8, steps=12, seed=3, dropout=0.1, schedule: Schedule | None = None, **delays
) -> Plan:
    """Long delays, five slots and a buffer of three, unless a schedule is given."""
    delays = Delays(Large(), dropout=dropout, **delays)
    return plan(schedule or algorithm.schedule(5, 3), clients, delays, steps=steps, seed=seed)


def run_simulation(
    plan: Plan, task: Task, algorithm: Algorithm, local: LocalSGD = LOCAL, **options
) -> tuple[list[Record], Model]:
    """The records and the last model of a simulation, with the inline executor unless another is given."""
    simulation = simulate(plan, task, algorithm, local, **{"executor": "inline", **options})
    return list(simulation), simulation.server.model


def final_model(executor, task: Task, local: LocalSGD = LOCAL_LONG) -> Model:
    """The model after ten steps of FADAS."""
    return run_simulation(make_plan(FADAS(), steps=10, dropout=0.0), task, FADAS(), local, executor=executor)[1]


def make_simulation(task: Task, algorithm: Algorithm, executor="inline", checks=None, **options) -> Simulation:
    """A simulation ready to run. `options` are those of `make_plan`."""
    p, local = make_plan(algorithm, len(task.clients), **options), local_for(algorithm)
    made = EXECUTORS[executor](task, local, p.seed, "cpu")
    return simulate(p, task, algorithm, local, executor=made, checks=checks)


def make_faulty_simulation(task: Task, algorithm: Algorithm | None = None, steps=10, **options) -> Simulation:
    """Four slots, a buffer of three, no dropout: what goes wrong comes from `faults` alone."""
    algorithm = algorithm or FADAS()
    schedule = algorithm.schedule(4, 3)
    return make_simulation(task, algorithm, schedule=schedule, steps=steps, seed=2, dropout=0.0, **options)


def train_briefly(task: Task) -> list[Record]:
    """Four steps of FedBuff, whatever the task's data are."""
    p = plan(FedBuff().schedule(2, 1), len(task.clients), Delays(Mild()), steps=4)
    records = list(simulate(p, task, FedBuff(), LocalSGD(lr=0.01, batch_size=4)))
    assert len(records) == 4
    return records


def list_batches(task: Task, local: LocalSGD, seed: int, job: Job) -> list[torch.Tensor]:
    """The rows of every batch of a job."""
    return [batch for rows in epoch_rows(task, local, seed, job, "cpu")[1] for batch in rows.split(local.batch_size)]


def measure_steps(records: Sequence[Record]) -> list[tuple]:
    """What the executors must agree on: step, training loss and metrics."""
    return [(record.step, record.train_loss, record.metrics) for record in records]


def assert_same_model(one: Model, other: Model) -> None:
    assert torch.equal(one.params, other.params)
    assert torch.equal(one.buffers, other.buffers)


def assert_batch_agrees(task: Task, local: LocalSGD, jobs: Sequence[Job], rtol=1e-4) -> BatchTrainer:
    """Train jobs together and one by one, and compare. Return the trainer."""
    flat = FlatModule(task.module())
    start = flat.read()
    trainer = BatchTrainer(FlatModule(task.module()), task, local, 5)
    work = {job.id: (job, start) for job in jobs}
    updates = [update for group in trainer.groups(list(work.values())) for update in trainer.train(group)]
    assert len(updates) == len(work)
    for update in updates:
        plain = train_job(flat, task, local, 5, *work[update.job.id])
        torch.testing.assert_close(update.delta, plain.delta, rtol=rtol, atol=1e-6)
        assert update.metrics["loss"] == pytest.approx(plain.metrics["loss"], rel=rtol)
    return trainer
