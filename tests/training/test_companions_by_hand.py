"""What methods add to local training, against numbers computed by hand."""

from dataclasses import replace

import pytest
import torch
from torch import nn

import fadas
from fadas import training
from fadas.algorithms import (
    SCAFFOLD,
    AsyncSCAFFOLD,
    FedAvg,
    FedLALR,
    FedNova,
)
from fadas.core.ledger import Job
from fadas.simulation.simulator import simulate
from fadas.tasks.task import Task
from fadas.training.flat_module import FlatModule
from fadas.training.job_state import start_of_job
from fadas.training.one_job import train_job
from helpers.training import make_plan, make_simulation, make_task, run_simulation


def make_line_task(*targets: float) -> Task:
    """One parameter x, and clients whose loss is (x - target)^2 / 2: the gradient is x - target."""

    def model() -> nn.Module:
        line = nn.Linear(1, 1, bias=False)
        nn.init.zeros_(line.weight)
        return line

    clients = [(torch.ones(1, 1), torch.full((1, 1), target)) for target in targets]
    return Task(model, clients, test=None, loss=lambda out, target: (out - target).square().mean(1) / 2)


def train_on_line(local, target, x=0.0, version=0, **vectors):
    task = make_line_task(target)
    given = {name: torch.tensor([value]) for name, value in vectors.items()}
    model = FlatModule(task.module()).read()
    start = start_of_job(replace(model, params=torch.tensor([x])), {}) if not given else None
    start = start or replace(model, params=torch.tensor([x]), vectors=given)
    return train_job(FlatModule(task.module()), task, local, 0, Job(0, 0, version), start)


def test_three_steps_of_scaffold_by_hand():
    local = SCAFFOLD().local_training(fadas.LocalSGD(0.1, steps=3, batch_size=1, weight_decay=0.0))
    update = train_on_line(local, 2.0, x=1.0, **{"server.c": 0.5, "c_i": -0.25})
    y = 1.0
    for _ in range(3):
        y -= 0.1 * ((y - 2.0) + 0.5 - (-0.25))
    c_i = -0.25 - 0.5 + (1.0 - y) / (3 * 0.1)
    assert update.delta.item() == pytest.approx(y - 1.0)
    assert update.kept["c_i"].item() == pytest.approx(c_i)
    assert update.vectors["dc"].item() == pytest.approx(c_i + 0.25)


def test_two_rounds_of_scaffold_by_hand():
    task, local = make_line_task(1.0, 5.0), fadas.LocalSGD(0.1, steps=2, batch_size=1, weight_decay=0.0)
    p = fadas.plan(SCAFFOLD().schedule(2, 2), 2, steps=2)
    simulation = simulate(p, task, SCAFFOLD(eta=0.5), local, executor="inline")
    x, c, own = 0.0, 0.0, [0.0, 0.0]
    for _ in simulation:
        deltas, changes = [], []
        for client, target in enumerate((1.0, 5.0)):
            y = x
            for _ in range(2):
                y -= 0.1 * ((y - target) + c - own[client])
            new = own[client] - c + (x - y) / (2 * 0.1)
            deltas.append(y - x)
            changes.append(new - own[client])
            own[client] = new
        x += 0.5 * sum(deltas) / 2
        c += sum(changes) / 2
        assert simulation.server.model.params.item() == pytest.approx(x, rel=1e-5)
        assert simulation.server.model.vectors["c"].item() == pytest.approx(c, rel=1e-5)
    assert [simulation.kept[client]["c_i"].item() for client in range(2)] == pytest.approx(own, rel=1e-5)


def test_late_job_uses_the_control_variate_of_its_start():
    task = make_task()
    simulation = make_simulation(task, AsyncSCAFFOLD())
    seen = {}
    inner = simulation.executor.submit
    simulation.executor.submit = lambda job, start, due: (seen.update({job: start}), inner(job, start, due))
    sent = {0: torch.zeros_like(simulation.server.model.params)}
    for record in simulation:
        sent[record.step] = simulation.server.model.vectors["c"]
    assert max(job.version for job in seen) > 2
    for job, start in seen.items():
        assert torch.equal(start.vectors["server.c"], sent[job.version])


def test_fednova_by_hand():
    local = FedNova().local_training(fadas.LocalSGD(0.1, batch_size=1, weight_decay=0.0, steps=training.Table([1, 4])))
    task = make_line_task(1.0, 5.0)
    p = fadas.plan(FedNova().schedule(2, 2), 2, steps=1)
    (_,), model = run_simulation(p, task, FedNova(), local)
    one, four = 0.1 * 1.0, 5 * (1 - 0.9**4)
    assert model.params.item() == pytest.approx((one / 1 + four / 4) / 2 * (1 + 4) / 2, rel=1e-5)


def test_fednova_weighs_by_examples():
    task = make_task(clients=2, sizes=(6, 18))
    rule = FedNova(examples=True).combine
    p = fadas.plan(FedNova().schedule(2, 2), 2, steps=1)
    local = fadas.LocalSGD(0.1, epochs=1, batch_size=6)
    _, model = run_simulation(p, task, FedNova(examples=True), local)
    flat = FlatModule(task.module(p.seed))
    x = flat.read()
    deltas = [train_job(flat, task, local, p.seed, Job(int(id), int(p.client[id]), 0), x) for id in p.arrivals[0]]
    steps, weights = {0: 1, 1: 3}, {0: 0.25, 1: 0.75}
    mean_steps = 0.25 * 1 + 0.75 * 3
    expected = sum(weights[u.job.client] * u.delta / steps[u.job.client] for u in deltas) * mean_steps
    assert rule.examples
    torch.testing.assert_close(model.params - x.params, expected, rtol=1e-4, atol=1e-6)


def test_fednova_with_equal_steps_is_fedavg():
    task, local = make_task(), fadas.LocalSGD(0.1, steps=4, batch_size=6)
    p = make_plan(FedAvg(), steps=6)
    (_, one), (_, two) = (run_simulation(p, task, algorithm, local) for algorithm in (FedAvg(), FedNova()))
    torch.testing.assert_close(two.params, one.params, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("local", "gain"),
    [
        (training.LocalSGD(0.1, batch_size=1), 5.0),
        (training.Momentum(0.1, batch_size=1, beta=0.5), sum((1 - 0.5**k) / 0.5 for k in range(1, 6))),
        (training.LocalSGD(0.1, batch_size=1, mu=2.0), (1 - 0.8**5) / 0.2),
        (training.LocalSGD(0.1, batch_size=1, warmup=4), 0.25 + 0.5 + 0.75 + 2),
        (training.TorchOptimizer(0.1, batch_size=1, optimizer="SGD"), 5.0),
    ],
    ids=["sgd", "momentum", "proximal", "warm-up", "torch"],
)
def test_steps_count_as_much_as_they_contribute(local, gain):
    assert local.gain(5) == pytest.approx(gain)
    update = train_on_line(FedNova().local_training(replace(local, steps=5, weight_decay=0.0)), 1.0)
    assert update.vectors["steps"].item() == pytest.approx(gain)


def test_moments_of_fedlalr_are_averaged_by_hand():
    local = FedLALR().local_training(training.AMSGrad(0.1, steps=1, batch_size=1, weight_decay=0.0, eps=1e-2))
    sent = {"server.local.m": 0.5, "server.local.v": 0.04, "server.local.vhat": 0.09}
    update = train_on_line(local, 2.0, x=1.0, **sent)
    grad = -1.0
    m, v = 0.9 * 0.5 + 0.1 * grad, 0.999 * 0.04 + 0.001 * grad**2
    vhat = max(0.09, v)
    assert update.delta.item() == pytest.approx(-0.1 * m / (vhat**0.5 + 1e-2))
    assert {name: vector.item() for name, vector in update.vectors.items()} == pytest.approx(
        {"local.m": m, "local.v": v, "local.vhat": vhat}
    )
    simulation = make_simulation(make_task(), FedLALR(), steps=1)
    updates = []
    receive = simulation.server.receive
    simulation.server.receive = lambda update: (updates.append(update), receive(update))[1]
    list(simulation)
    for name, vector in simulation.server.model.vectors.items():
        torch.testing.assert_close(vector, torch.stack([u.vectors[name] for u in updates]).mean(0))
