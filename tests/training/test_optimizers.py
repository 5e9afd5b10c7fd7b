"""Local optimizers against torch.optim, in every way to train; what goes beside them."""

import math
import re
from dataclasses import replace

import pytest
import torch
from torch import nn

from fadas.algorithms.presets import FedBuff
from fadas.core.ledger import Job
from fadas.core.model import Model
from fadas.errors import ConfigError, Unsuitable
from fadas.tasks.task import Task
from fadas.training import (
    LOCAL_TRAINERS,
    Adam,
    AdamW,
    AMSGrad,
    Cosine,
    CustomStep,
    FlatModule,
    InverseSqrt,
    LocalSGD,
    Momentum,
    Nesterov,
    Steps,
    TorchOptimizer,
    train_job,
)
from fadas.training.batched.many_jobs import BatchTrainer
from fadas.training.sgd import epoch_rows
from helpers.training import make_plan, make_task, run_simulation

SETTINGS = {"lr": 0.02, "epochs": 2, "batch_size": 5, "weight_decay": 0.01}
OPTIMIZERS = {
    "sgd": (LocalSGD(**SETTINGS), torch.optim.SGD, {}),
    "momentum": (Momentum(**SETTINGS, beta=0.8), torch.optim.SGD, {"momentum": 0.8}),
    "nesterov": (Nesterov(**SETTINGS), torch.optim.SGD, {"momentum": 0.9, "nesterov": True}),
    "adam": (Adam(**SETTINGS, beta1=0.8, beta2=0.95, eps=1e-4), torch.optim.Adam, {"betas": (0.8, 0.95), "eps": 1e-4}),
    "adamw": (AdamW(**SETTINGS), torch.optim.AdamW, {}),
    "amsgrad": (AMSGrad(**SETTINGS, beta2=0.5), torch.optim.Adam, {"amsgrad": True, "betas": (0.9, 0.5)}),
    "torch": (TorchOptimizer(**SETTINGS, optimizer="RMSprop"), torch.optim.RMSprop, {}),
}
ELEMENTWISE = [name for name, (local, *_) in OPTIMIZERS.items() if local.elementwise]


def make_convolution(task: Task) -> Task:
    """The same data with a network that cannot be stacked, so that jobs are trained with `vmap`."""

    def make_model():
        return nn.Sequential(nn.Unflatten(1, (1, 6)), nn.Conv1d(1, 2, 3), nn.Tanh(), nn.Flatten(), nn.Linear(8, 3))

    return replace(task, model=make_model)


def train_all(task, local, versions=(0, 0, 0, 0)):
    """The updates of four jobs, trained one by one from two models, and their work."""
    flat = FlatModule(task.module(0))
    start = flat.read()
    work = [
        (Job(k, k, version), Model(start.params * (1 - 0.1 * k), start.buffers)) for k, version in enumerate(versions)
    ]
    return work, [train_job(flat, task, local, 0, *item) for item in work]


def train_batch(task, local, work, is_stacked):
    trainer = BatchTrainer(FlatModule(task.module(0)), task, local, 0)
    trainer.check_batching()
    assert (trainer.stacked is not None) == is_stacked
    updates = {update.job.id: update for group in trainer.groups(work) for update in trainer.train(group)}
    return [updates[job.id] for job, _ in work]


def assert_close(updates, expected):
    for one, other in zip(updates, expected, strict=True):
        torch.testing.assert_close(one.delta, other.delta, rtol=1e-4, atol=2e-6)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizer_agrees_with_torch_over_several_jobs(name):
    local, make, options = OPTIMIZERS[name]
    task = make_task()
    work, updates = train_all(task, local)
    for (job, start), update in zip(work, updates, strict=True):
        flat = FlatModule(task.module(0))
        flat.load(start)
        optimizer = make(flat.module.parameters(), lr=0.02, weight_decay=0.01, **options)
        (inputs, targets), epochs = epoch_rows(task, local, 0, job, "cpu")
        for rows in (batch for order in epochs for batch in order.split(5)):
            optimizer.zero_grad(set_to_none=False)
            task.loss(flat.module(inputs[rows]), targets[rows]).mean().backward()
            optimizer.step()
        torch.testing.assert_close(update.delta, flat.params - start.params, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("stacked", [True, False], ids=["stacked", "vmap"])
@pytest.mark.parametrize("name", ELEMENTWISE)
def test_optimizer_agrees_in_batches(name, stacked):
    task = make_task() if stacked else make_convolution(make_task())
    local = OPTIMIZERS[name][0]
    work, updates = train_all(task, local)
    assert_close(train_batch(task, local, work, stacked), updates)


@pytest.mark.parametrize("executor", ["batched", "processes"])
@pytest.mark.parametrize("name", ["adam", "nesterov"])
def test_simulation_is_the_same_in_other_executors(name, executor, task):
    local, p = OPTIMIZERS[name][0], make_plan(FedBuff(), len(task.clients))
    _, expected = run_simulation(p, task, FedBuff(), local)
    _, model = run_simulation(p, task, FedBuff(), local, executor=executor)
    torch.testing.assert_close(model.params, expected.params, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    "changes",
    [{"mu": 0.5}, {"clip": 0.1}, {"schedule": Cosine(3)}, {"mu": 0.5, "clip": 0.2, "schedule": Steps(2, 0.5)}],
    ids=str,
)
@pytest.mark.parametrize("stacks", [True, False], ids=["stacked", "vmap"])
@pytest.mark.parametrize("make", [LocalSGD, Adam])
def test_what_goes_beside_the_optimizer_agrees_in_batches(make, changes, stacks):
    task, local = make_task(), make(**SETTINGS, **changes)
    task = task if stacks else make_convolution(task)
    work, updates = train_all(task, local, versions=(0, 1, 2, 1))
    _, plain = train_all(task, make(**SETTINGS), versions=(0, 1, 2, 1))
    assert not torch.allclose(updates[1].delta, plain[1].delta, rtol=1e-3)
    assert_close(train_batch(task, local, work, stacks and "clip" not in changes), updates)


def make_line(examples=1, batch_size=1, **settings):
    """A client that fits one number: the gradient of (w - 3)^2 / 2 is w - 3. It starts from 0."""
    task = Task(
        lambda: nn.Linear(1, 1, bias=False),
        [(torch.ones(examples, 1), torch.full((examples, 1), 3.0))],
        loss=lambda outputs, targets: (outputs - targets).square().flatten() / 2,
    )
    local = {"epochs": 3, "batch_size": batch_size, "weight_decay": 0.0, **settings}
    return task, local, Model(torch.zeros(1), torch.zeros(0))


def train_line(make, version=0, **settings) -> float:
    task, local, start = make_line(**settings)
    return float(train_job(FlatModule(task.module(0)), task, make(**local), 0, Job(0, 0, version), start).delta)


def test_three_steps_by_hand():
    w = 0.0
    for _ in range(3):
        w -= 0.1 * ((w - 3) + 0.5 * w)
    assert train_line(LocalSGD, lr=0.1, mu=0.5) == pytest.approx(w, rel=1e-6)
    assert train_line(LocalSGD, lr=0.1, clip=2.0) == pytest.approx(0.6)  # three steps of length 0.1 * 2
    w, m = 0.0, 0.0
    for _ in range(3):
        m = 0.5 * m + w - 3
        w -= 0.1 * m
    assert train_line(Momentum, lr=0.1, beta=0.5) == pytest.approx(w, rel=1e-6)
    w, m, v = 0.0, 0.0, 0.0
    for t in (1, 2, 3):
        m, v = 0.9 * m + 0.1 * (w - 3), 0.999 * v + 0.001 * (w - 3) ** 2
        w -= 0.1 * (m / (1 - 0.9**t)) / (math.sqrt(v / (1 - 0.999**t)) + 1e-8)
    assert train_line(Adam, lr=0.1) == pytest.approx(w, rel=1e-5)


def test_proximal_term_of_zero_is_sgd_to_the_bit(task):
    _, updates = train_all(task, LocalSGD(**SETTINGS, mu=0.0))
    _, expected = train_all(task, LocalSGD(**SETTINGS))
    assert all(torch.equal(one.delta, other.delta) for one, other in zip(updates, expected, strict=True))


@pytest.mark.parametrize(
    ("schedule", "factors"),
    [
        (Steps(every=2, factor=0.5), [1, 1, 0.5, 0.5, 0.25]),
        (Cosine(steps=4, floor=0.2), [1, 0.2 + 0.4 * (1 + math.sqrt(0.5)), 0.6, 0.2 + 0.4 * (1 - math.sqrt(0.5)), 0.2]),
        (InverseSqrt(after=1), [1, 2**-0.5, 3**-0.5, 0.5, 5**-0.5]),
    ],
)
def test_rate_follows_server_version(schedule, factors):
    assert [schedule(version) for version in range(5)] == pytest.approx(factors)
    for version, factor in enumerate(factors):
        one = train_line(LocalSGD, version, lr=0.1, epochs=1, schedule=schedule)
        assert one == pytest.approx(0.3 * factor, rel=1e-6)


def test_step_of_own_is_called_for_each_batch(task):
    seen = []

    def step(params, grads, state, t):
        seen.append(t)
        state["m"] = 0.8 * state.get("m", torch.zeros_like(params)) + grads
        params -= state["lr"] * state["m"]

    _, updates = train_all(task, CustomStep(**SETTINGS, function=step))
    _, expected = train_all(task, Momentum(**SETTINGS, beta=0.8))
    assert_close(updates, expected)
    assert seen[:3] == [1, 2, 1], "the first client has three examples, so a batch in each of two epochs"


@pytest.mark.parametrize("local", [CustomStep(function=lambda params, grads, state, t: None), TorchOptimizer()])
def test_batches_refuse_one_job_at_a_time_and_auto_chooses_another(local, task):
    trainer = BatchTrainer(FlatModule(task.module(0)), task, local, 0)
    with pytest.raises(Unsuitable, match=f"{type(local).__name__} trains one job at a time"):
        trainer.check_batching()
    p = make_plan(FedBuff(), len(task.clients), steps=2)
    with pytest.raises(Unsuitable, match="trains one job at a time; use another executor: inline"):
        run_simulation(p, task, FedBuff(), local, executor="batched")
    records, _ = run_simulation(p, task, FedBuff(), local, executor="auto")
    assert len(records) == 2


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LocalSGD(mu=-1), "mu must be"),
        (lambda: LocalSGD(clip=0), "clip must be"),
        (lambda: LocalSGD(clip=math.nan), "clip must be"),
        (lambda: Momentum(beta=1.5), "beta must be"),
        (lambda: Adam(beta2=1.0), "beta2 must be"),
        (lambda: Adam(eps=0), "eps must be"),
        (lambda: Momentum(lr=0), "lr must be"),
        (lambda: Steps(0), "every must be"),
        (lambda: Cosine(10, floor=0.0), "floor must be"),
        (lambda: Cosine(10, floor=1.0), "floor must be"),
        (lambda: TorchOptimizer(optimizer="Sgd"), "torch.optim.Sgd cannot train clients: there is no such optimizer"),
        (lambda: TorchOptimizer(options={"momentun": 1}), "torch.optim.SGD cannot train clients"),
        (lambda: CustomStep(), r"function must be a function step\(params, grads, state, t\)"),
    ],
)
def test_bad_values_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_setting_named_like_a_method_is_refused():
    with pytest.raises(TypeError, match=r"Signs\.decay is a method of LocalSGD; choose another name for the setting"):

        class Signs(LocalSGD):
            decay: float = 0.1


def test_every_trainer_has_a_name():
    assert {make().__class__ for make in LOCAL_TRAINERS.values()} == {
        LocalSGD, Momentum, Nesterov, Adam, AdamW, AMSGrad, TorchOptimizer
    }  # fmt: skip


@pytest.mark.parametrize("options", [{}, {"keep": True}], ids=["not kept", "kept"])
def test_memory_that_is_not_kept_may_be_anything(options, task):
    def step(params, grads, state, t):
        state.setdefault("norms", []).append(grads.norm())
        params -= state["lr"] * grads

    for local in (
        CustomStep(**SETTINGS, **options, function=step),
        TorchOptimizer(**SETTINGS, **options, optimizer="Adafactor"),
    ):
        if options:
            with pytest.raises(ConfigError, match=r"local\.keep"):
                train_all(task, local)
        else:
            assert train_all(task, local)


@pytest.mark.parametrize("count", [0, None, 2.5, True, 10**9])
def test_law_must_return_a_number_of_steps(count, task):
    local = LocalSGD(0.1, steps=lambda job, examples, seed: count)
    message = rf"local.steps: .* must be a whole number from 1 to 1,000,000, got {re.escape(repr(count))} for client 0"
    with pytest.raises(ConfigError, match=message):
        run_simulation(make_plan(FedBuff(), len(task.clients)), task, FedBuff(), local)


def test_law_that_fails_is_named_with_its_line(task):
    local = LocalSGD(0.1, steps=lambda job, examples, seed: {}[job.client])
    with pytest.raises(ConfigError, match=r"local: KeyError: 0 \(test_optimizers.py:\d+\)"):
        run_simulation(make_plan(FedBuff(), len(task.clients)), task, FedBuff(), local)
