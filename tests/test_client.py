"""Local training against a loop that a PyTorch user would write."""

import random
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import fadas
from fadas.core.ledger import Job
from fadas.core.model import Model
from fadas.training.flat_module import FlatModule
from fadas.training.one_job import train_job
from fadas.training.preflight import check_repeatable, random_devices
from fadas.training.sgd import LocalSGD
from helpers.training import LOCAL_DECAY, list_batches, make_task


def reference(module, data, batches, local):
    optimizer = torch.optim.SGD(module.parameters(), local.lr, weight_decay=local.weight_decay)
    module.train()
    for index in batches:
        optimizer.zero_grad()
        F.cross_entropy(module(data[0][index]), data[1][index]).backward()
        optimizer.step()


@pytest.mark.parametrize("batchnorm", [False, True])
def test_train_is_torch_sgd(batchnorm):
    task = make_task(batchnorm=batchnorm, sizes=(17,))
    flat, job = FlatModule(task.module()), Job(4, 2, 0)
    start = flat.read()
    update = train_job(flat, task, LOCAL_DECAY, 9, job, start)
    module = task.module()
    reference(module, task.clients[2], list_batches(task, LOCAL_DECAY, 9, job), LOCAL_DECAY)
    got = flat.state_dict(Model(start.params + update.delta, update.buffers))
    for name, value in module.state_dict().items():
        if "tracked" not in name:
            torch.testing.assert_close(got[name], value, rtol=1e-5, atol=1e-6)
    assert update.examples == 17
    assert update.base is start.params


def batches(local, seed, job, size=12):
    return [b.tolist() for b in list_batches(make_task(sizes=(size,)), local, seed, job)]


def test_batches_cover_the_data_and_keep_the_short_one():
    job = Job(1, 0, 0)
    two = batches(LOCAL_DECAY, 0, job)
    assert [len(b) for b in two] == [5, 5, 2, 5, 5, 2]
    assert all(sorted(i for b in epoch for i in b) == list(range(12)) for epoch in (two[:3], two[3:]))
    assert two[:3] != two[3:]
    assert [len(b) for b in batches(LocalSGD(batch_size=5, steps=4), 0, job)] == [5, 5, 2, 5]
    assert len(batches(LocalSGD(batch_size=50, steps=4), 0, job)) == 4
    assert two == batches(LOCAL_DECAY, 0, job)
    assert two != batches(LOCAL_DECAY, 1, job)
    assert two != batches(LOCAL_DECAY, 0, Job(2, 0, 0))


def test_a_batch_of_one_under_batchnorm_is_refused_before_training():
    task = make_task(batchnorm=True, sizes=(8, 11))
    flat = FlatModule(task.module())
    with pytest.raises(ValueError, match=r"batch_size \(5\) leaves client 1 with a batch of one"):
        check_repeatable(flat, task, LOCAL_DECAY)
    check_repeatable(flat, task, LocalSGD(batch_size=4))
    check_repeatable(flat, task, LocalSGD(batch_size=5, steps=2))  # the third batch, of one, is never trained
    with pytest.raises(ValueError, match="client 1 with a batch of one"):
        check_repeatable(flat, task, LocalSGD(batch_size=5, steps=3))
    plain = make_task(sizes=(8, 11))
    check_repeatable(FlatModule(plain.module()), plain, LOCAL_DECAY)


@pytest.mark.parametrize(
    "draw",
    [lambda x: torch.randn_like(x), lambda x: x * random.random(), lambda x: x * np.random.rand()],  # noqa: NPY002
    ids=["torch", "random", "numpy"],
)
def test_a_transform_that_draws_from_a_global_generator_is_refused(draw):
    task = make_task()
    task.transform = lambda inputs, generator: [draw(x) for x in inputs] if generator else inputs
    with pytest.raises(ValueError, match="draws from a global random generator"):
        check_repeatable(FlatModule(task.module()), task, LOCAL_DECAY)
    task.transform = lambda inputs, generator: [torch.rand(x.shape, generator=generator) for x in inputs]
    state = torch.get_rng_state()
    check_repeatable(FlatModule(task.module()), task, LOCAL_DECAY)
    assert torch.equal(torch.get_rng_state(), state)


class Hidden(nn.Module):
    """Dropout that no module of that name does."""

    def __init__(self, p):
        super().__init__()
        self.layer, self.norm, self.p = nn.Linear(6, 3), nn.BatchNorm1d(3), p

    def forward(self, x):
        return F.dropout(self.norm(self.layer(x)), self.p, self.training)


@pytest.mark.parametrize(
    ("model", "random"),
    [
        (lambda: Hidden(0.5), True),
        (lambda: Hidden(0.0), False),
        (lambda: nn.Sequential(nn.Linear(6, 30), nn.RReLU(), nn.Linear(30, 3)), True),  # draws for what is negative
    ],
    ids=["dropout", "none", "rrelu"],
)
@pytest.mark.parametrize("examples", [1, 30])
def test_whether_a_module_draws_random_numbers(model, random, examples):
    task = make_task(sizes=(examples,))
    task.model = model
    flat, state = FlatModule(task.module()), torch.get_rng_state()
    before = flat.read()
    assert bool(random_devices(flat, task)) == random
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(flat.read().buffers, before.buffers)


def test_looking_at_a_module_before_a_run_leaves_it_as_it_was():
    task = make_task(sizes=(30, 18))
    flat = FlatModule(Hidden(0.5).eval())
    flat.module.norm.train()
    check_repeatable(flat, task, LocalSGD(batch_size=16))
    random_devices(flat, task)
    assert [part.training for part in (flat.module, flat.module.layer, flat.module.norm)] == [False, False, True]
    simulation = fadas.simulate(
        fadas.plan(fadas.Schedule(1, 1), 8, steps=1),
        replace(task, model=Hidden(0.5).eval()),
        fadas.FADAS(),
        LOCAL_DECAY,
    )
    assert not simulation.module().training


def test_dropout_is_seeded_per_job():
    task = make_task()
    task.model = lambda: nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.5), nn.Linear(8, 3))
    flat = FlatModule(task.module())
    start = flat.read()

    def delta(id):
        torch.rand(id + 1)  # the global generator's state must not matter
        return train_job(flat, task, LOCAL_DECAY, 0, Job(id, 1, 0), start).delta

    assert torch.equal(delta(3), delta(3))
    before = torch.get_rng_state()
    assert not torch.equal(delta(3), delta(4))
    torch.set_rng_state(before)


def test_local_training_leaves_the_global_generator_alone(task):
    flat = FlatModule(task.module())
    torch.manual_seed(1)
    expected = torch.rand(1)
    torch.manual_seed(1)
    train_job(flat, task, LOCAL_DECAY, 0, Job(0, 0, 0), flat.read())
    assert torch.rand(1) == expected


@pytest.mark.parametrize(
    "bad", [{"lr": -0.1}, {"lr": 0}, {"epochs": 0}, {"batch_size": 0}, {"weight_decay": -1}, {"steps": 0}]
)
def test_bad_parameters(bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        LocalSGD(**bad)


class Annealed(nn.Module):
    """Remembers how often it was called, where no job can put it back."""

    def __init__(self, buffer):
        super().__init__()
        self.layer = nn.Linear(6, 3)
        if buffer:
            self.register_buffer("calls", torch.zeros(()))
        else:
            self.calls = 0

    def forward(self, x):
        self.calls = self.calls + 1
        return self.layer(x) * (1 + 1 / self.calls)


@pytest.mark.parametrize("buffer", [False, True])
def test_a_module_that_remembers_something_by_itself_is_refused(buffer):
    """Its updates would depend on which jobs, and evaluations, came before."""
    task, local = make_task(), LocalSGD(lr=0.1, batch_size=5)
    task.model = lambda: Annealed(buffer)
    flat = FlatModule(task.module())
    if buffer:
        check_repeatable(flat, task, local)
    else:
        with pytest.raises(ValueError, match="called again: what it keeps in a Python"):
            check_repeatable(flat, task, local)
