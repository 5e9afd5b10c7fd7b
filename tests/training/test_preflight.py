"""What is checked before a client trains."""

import random
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import fadas
from fadas.algorithms.presets import FADAS
from fadas.errors import ConfigError, FadasWarning
from fadas.simulation.planner import plan
from fadas.simulation.simulator import simulate
from fadas.tasks.task import cross_entropy
from fadas.training.flat_module import FlatModule
from fadas.training.preflight import check_local_training, random_devices
from fadas.training.sgd import LocalSGD
from helpers.training import LOCAL_DECAY, make_even_task, make_task


@pytest.mark.parametrize("draw", [random.random, lambda: np.random.rand()])  # noqa: NPY002
def test_loss_drawing_from_global_generator_is_refused(draw):
    task = make_even_task(
        lambda: nn.Linear(6, 3), loss=lambda outputs, targets: cross_entropy(outputs * draw(), targets)
    )
    with pytest.raises(ValueError, match="draws from the global generator of Python or numpy"):
        simulate(plan(FADAS().schedule(3, 2), 6, steps=2), task, FADAS(), LocalSGD(), executor="inline")


def test_batch_of_one_with_batchnorm_is_refused():
    task = make_task(batchnorm=True, sizes=(8, 11))
    flat = FlatModule(task.module())
    with pytest.raises(ValueError, match=r"batch_size \(5\) leaves client 1 with a batch of one"):
        check_local_training(flat, task, LOCAL_DECAY)
    check_local_training(flat, task, LocalSGD(batch_size=4))
    check_local_training(
        flat, task, LocalSGD(batch_size=5, steps=2)
    )  # the third batch, a single example, is never trained
    with pytest.raises(ValueError, match="client 1 with a batch of one"):
        check_local_training(flat, task, LocalSGD(batch_size=5, steps=3))
    plain = make_task(sizes=(8, 11))
    check_local_training(FlatModule(plain.module()), plain, LOCAL_DECAY)


@pytest.mark.parametrize(
    "draw",
    [lambda x: torch.randn_like(x), lambda x: x * random.random(), lambda x: x * np.random.rand()],  # noqa: NPY002
    ids=["torch", "random", "numpy"],
)
def test_transform_drawing_from_global_generator_is_refused(draw):
    task = make_task()
    task.transform = lambda inputs, generator: [draw(x) for x in inputs] if generator else inputs
    with pytest.raises(ValueError, match="draws from a global random generator"):
        check_local_training(FlatModule(task.module()), task, LOCAL_DECAY)
    task.transform = lambda inputs, generator: [torch.rand(x.shape, generator=generator) for x in inputs]
    state = torch.get_rng_state()
    check_local_training(FlatModule(task.module()), task, LOCAL_DECAY)
    assert torch.equal(torch.get_rng_state(), state)


class FunctionalDropout(nn.Module):
    """Dropout without a dropout module."""

    def __init__(self, p):
        super().__init__()
        self.layer, self.norm, self.p = nn.Linear(6, 3), nn.BatchNorm1d(3), p

    def forward(self, x):
        return F.dropout(self.norm(self.layer(x)), self.p, self.training)


@pytest.mark.parametrize(
    ("model", "random"),
    [
        (lambda: FunctionalDropout(0.5), True),
        (lambda: FunctionalDropout(0.0), False),
        (lambda: nn.Sequential(nn.Linear(6, 30), nn.RReLU(), nn.Linear(30, 3)), True),  # draws for negative values
    ],
    ids=["dropout", "none", "rrelu"],
)
@pytest.mark.parametrize("examples", [1, 30])
def test_random_devices_tells_whether_module_draws(model, random, examples):
    task = make_task(sizes=(examples,))
    task.model = model
    flat, state = FlatModule(task.module()), torch.get_rng_state()
    before = flat.read()
    assert bool(random_devices(flat, task)) == random
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(flat.read().buffers, before.buffers)


def test_preflight_leaves_training_modes_unchanged():
    task = make_task(sizes=(30, 18))
    flat = FlatModule(FunctionalDropout(0.5).eval())
    flat.module.norm.train()
    check_local_training(flat, task, LocalSGD(batch_size=16))
    random_devices(flat, task)
    assert [part.training for part in (flat.module, flat.module.layer, flat.module.norm)] == [False, False, True]
    simulation = fadas.simulate(
        fadas.plan(fadas.Schedule(1, 1), 8, steps=1),
        replace(task, model=FunctionalDropout(0.5).eval()),
        fadas.FADAS(),
        LOCAL_DECAY,
    )
    assert not simulation.module().training


class CallCounting(nn.Module):
    """Counts its calls, in a buffer or where no job can reset the count."""

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
def test_module_with_state_outside_buffers_is_refused(buffer):
    """Its updates would depend on earlier jobs and evaluations."""
    task, local = make_task(), LocalSGD(lr=0.1, batch_size=5)
    task.model = lambda: CallCounting(buffer)
    flat = FlatModule(task.module())
    if buffer:
        check_local_training(flat, task, local)
    else:
        with pytest.raises(ValueError, match=r"different results for the same input\. State in a Python attribute"):
            check_local_training(flat, task, local)


def test_data_that_are_not_finite_are_named():
    task = make_task()
    task.clients[2][0][1, 3] = float("nan")
    task.clients[2][0][4, 0] = float("inf")
    with pytest.warns(FadasWarning, match="the data of client 2 have 2 examples with NaN or infinite values"):
        check_local_training(FlatModule(task.module()), task, LocalSGD())


def test_test_data_that_are_not_finite_are_named():
    task = make_task()
    task.test[0][1, 3] = float("nan")
    with pytest.warns(FadasWarning, match="the test data have 1 examples with NaN or infinite values"):
        check_local_training(FlatModule(task.module()), task, LocalSGD())


def test_cross_entropy_of_one_output_is_refused():
    data = [(torch.randn(12, 6), torch.rand(12, 1)) for _ in range(6)]  # a regression whose loss was forgotten
    task = make_even_task(lambda: nn.Linear(6, 1), clients=data)
    with pytest.raises(ConfigError, match="the cross-entropy, the default loss, is always 0"):
        check_local_training(FlatModule(task.module()), task, LocalSGD())


def test_huge_finite_data_are_not_named(recwarn):
    task = make_task()
    task.clients[2][0][:] = 3e38
    check_local_training(FlatModule(task.module()), task, LocalSGD())
    assert not [one for one in recwarn if "NaN" in str(one.message)]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda y: y + 1,
            "client 0: a label is 3, but the module's 3 outputs are for labels 0 to 2; number",
        ),
        (lambda y: y[:, None], r"client 0: the loss cross_entropy needs labels of shape \[n\], got \[n, 1\]; write y"),
    ],
)
def test_labels_that_do_not_fit_are_named_with_a_remedy(change, message):
    task = make_task()
    task.clients = [(*inputs, change(labels)) for *inputs, labels in task.clients]
    with pytest.raises(ConfigError, match=message):
        check_local_training(FlatModule(task.module()), task, LocalSGD())


def test_step_function_instead_of_local_training_is_refused_with_a_remedy():
    def step(params, grads, state, t): ...

    task = make_task()
    advice = r"got step; give a step function as fadas\.training\.CustomStep\(lr, function=step\)"
    with pytest.raises(ConfigError, match=advice):
        simulate(plan(fadas.Schedule(1, 1), len(task.clients), steps=1), task, FADAS(), step)
