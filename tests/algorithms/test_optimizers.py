"""Server optimizers against their formulas and against torch."""

import math
from itertools import pairwise

import pytest
import torch

from fadas.algorithms.optimizers import OPTIMIZERS, SGD, Adagrad, Adam, AMSGrad, Torch, Yogi

DELTAS = [torch.tensor([1.0, -2.0]), torch.tensor([0.5, 0.0]), torch.tensor([-1.0, 0.25])]


X = torch.tensor([10.0, -10.0], dtype=torch.float64)


def apply_deltas(optimizer, eta=0.1, deltas=DELTAS, x=X):
    slots, path = {}, []
    for delta in deltas:
        x, new = optimizer.apply(x, delta.to(x.dtype), slots, eta)
        slots = {**slots, **new}
        path.append(x)
    return path, slots


def follow_recurrence(second, bound=lambda vhat, v: v, b1=0.9, b2=0.99, eps=1e-8, eta=0.1):
    """The recurrence in plain floats, one coordinate at a time."""
    path = [[], [], []]
    for c in range(2):
        x, m, v, vhat = float(X[c]), 0.0, 0.0, 0.0
        for t, delta in enumerate(DELTAS):
            d = float(delta[c])
            m = b1 * m + (1 - b1) * d
            v = second(v, d, b2)
            vhat = bound(vhat, v)
            x += eta * m / (math.sqrt(vhat) + eps)
            path[t].append(x)
    return path


@pytest.mark.parametrize(
    ("optimizer", "expected"),
    [
        (Adam(), follow_recurrence(lambda v, d, b: b * v + (1 - b) * d * d)),
        (AMSGrad(), follow_recurrence(lambda v, d, b: b * v + (1 - b) * d * d, max)),
        (Yogi(), follow_recurrence(lambda v, d, b: v - (1 - b) * d * d * ((v > d * d) - (v < d * d)))),
        (Adagrad(), follow_recurrence(lambda v, d, b: v + d * d, b1=0.0)),
        (Adagrad(beta1=0.9), follow_recurrence(lambda v, d, b: v + d * d)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_three_steps_follow_recurrence(optimizer, expected):
    for got, want in zip(apply_deltas(optimizer)[0], expected, strict=True):
        assert got.tolist() == pytest.approx(want, rel=1e-12)


def test_amsgrad_with_floor_follows_fedams():
    """vhat = max(vhat, v, floor): the first delta stays below the floor, the second does not."""
    optimizer, x, slots, m, v, vhat = AMSGrad(floor=1e-4), torch.zeros(1, dtype=torch.float64), {}, 0.0, 0.0, 0.0
    expected = 0.0
    for delta in (0.05, 0.5, -0.02):
        m, v = 0.9 * m + 0.1 * delta, 0.99 * v + 0.01 * delta**2
        vhat = max(vhat, v, 1e-4)
        expected += 0.1 * m / (math.sqrt(vhat) + 1e-8)
        x, slots = optimizer.apply(x, torch.tensor([delta], dtype=torch.float64), slots, 0.1)
    assert x.item() == pytest.approx(expected, rel=1e-12)
    assert 0.01 * 0.05**2 < 1e-4 < 0.01 * 0.5**2


def test_amsgrad_matches_hand_calculation():
    """First coordinate, deltas 1, 0.5, -1 with beta1 = 0.9, beta2 = 0.99 and eta = 0.1, worked out on paper.

    m: 0.1, 0.14, 0.026; v: 0.01, 0.0124, 0.022276; vhat = v as it grows.
    """
    path, slots = apply_deltas(AMSGrad())
    assert slots["m"][0] == pytest.approx(0.026)
    assert slots["v"][0] == pytest.approx(0.022276)
    steps = [0.1 * 0.1 / 0.1, 0.1 * 0.14 / 0.0124**0.5, 0.1 * 0.026 / 0.022276**0.5]
    assert path[2][0] == pytest.approx(10 + sum(steps), rel=1e-6)
    # second coordinate: v shrinks after the first step (0.04, 0.0396, 0.039829) and vhat stays
    assert slots["vhat"][1] == pytest.approx(0.04)
    assert slots["v"][1] == pytest.approx(0.99 * 0.99 * 0.04 + 0.01 * 0.0625)


@pytest.mark.parametrize(
    ("optimizer", "coordinate", "steps"),
    [
        # deltas -2, 0, 0.25; m: -0.2, -0.18, -0.137; v: 0.04, 0.0396, 0.039829
        (Adam(), 1, [-0.1, -0.0904534, -0.0686469]),
        # deltas 1, 0.5, -1; m: 0.1, 0.14, 0.026; v grows by 0.01 delta^2 each time: 0.01, 0.0125, 0.0225
        (Yogi(), 0, [0.1, 0.1252198, 0.0173333]),
        # deltas 1, 0.5, -1; sums of squares 1, 1.25, 2.25; no momentum
        (Adagrad(), 0, [0.1, 0.0447214, -0.0666667]),
    ],
)
def test_three_steps_match_hand_calculation(optimizer, coordinate, steps):
    """Each step is eta m / sqrt(v) with eta = 0.1, worked out on paper."""
    path = [X, *apply_deltas(optimizer)[0]]
    moved = [(after - before)[coordinate].item() for before, after in pairwise(path)]
    assert moved == pytest.approx(steps, abs=2e-7)


def test_sgd_with_and_without_momentum():
    assert [x[0].item() for x in apply_deltas(SGD(), eta=1.0)[0]] == [11.0, 11.5, 10.5]
    # momentum 0.5: velocities 1, 1, -0.5
    assert [x[0].item() for x in apply_deltas(SGD(0.5), eta=1.0)[0]] == [11.0, 12.0, 11.5]


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (Adam(bias_correction=True), lambda p: torch.optim.Adam(p, 0.1, (0.9, 0.99), 1e-8)),
        (AMSGrad(bias_correction=True), lambda p: torch.optim.Adam(p, 0.1, (0.9, 0.99), 1e-8, amsgrad=True)),
        (Adagrad(), lambda p: torch.optim.Adagrad(p, 0.1, eps=1e-8)),
        (SGD(0.9), lambda p: torch.optim.SGD(p, 0.1, momentum=0.9)),
        (Torch("RMSprop", {"alpha": 0.9}), lambda p: torch.optim.RMSprop(p, 0.1, alpha=0.9)),
        (Torch("NAdam"), lambda p: torch.optim.NAdam(p, 0.1)),
        (Torch("SGD", {"momentum": 0.9}), lambda p: torch.optim.SGD(p, 0.1, momentum=0.9)),
        (Torch("Adamax"), lambda p: torch.optim.Adamax(p, 0.1)),
    ],
)
def test_optimizers_agree_with_torch(ours, theirs):
    generator = torch.Generator().manual_seed(0)
    deltas = [torch.randn(5, generator=generator, dtype=torch.float64) for _ in range(20)]
    x = torch.randn(5, generator=generator, dtype=torch.float64)
    parameter = torch.nn.Parameter(x.clone())
    optimizer = theirs([parameter])
    for got, delta in zip(apply_deltas(ours, deltas=deltas, x=x)[0], deltas, strict=True):
        parameter.grad = -delta
        optimizer.step()
        torch.testing.assert_close(got, parameter.detach(), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_optimizer_keeps_contract(name):
    """Pure, remembers tensors only, first moves towards delta, and keeps moving."""
    optimizer = OPTIMIZERS[name]()
    x, delta = torch.zeros(4), torch.tensor([1.0, -1.0, 0.5, 2.0])
    before = x.clone(), delta.clone()
    moved, slots = optimizer.apply(x, delta, {}, 0.1)
    assert torch.equal(x, before[0])
    assert torch.equal(delta, before[1])
    assert (moved * delta > 0).all()
    assert all(isinstance(slot, torch.Tensor) for slot in slots.values())
    kept = {name: slot.clone() for name, slot in slots.items()}
    again, _ = optimizer.apply(moved, delta, slots, 0.1)
    assert all(torch.equal(kept[name], slots[name]) for name in kept), "a slot was written in place"
    assert not torch.equal(again, moved)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SGD(1.0), "momentum must be at least 0 and below 1, got 1.0"),
        (lambda: Adam(beta1=-0.1), "beta1 must be at least 0 and below 1, got -0.1"),
        (lambda: AMSGrad(eps=0), "eps must be a positive number, got 0"),
        (lambda: AMSGrad(floor=-1), "floor must be at least 0, got -1"),
        (lambda: Adagrad(beta1=1), "beta1 must be at least 0 and below 1, got 1"),
    ],
)
def test_bad_optimizer_parameters_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    ("name", "options"), [("Nothing", {}), ("LBFGS", {}), ("Adam", {"betas": 3}), ("SGD", {"lr": 1})]
)
def test_unsuitable_torch_optimizers_are_refused(name, options):
    with pytest.raises(ValueError, match="cannot serve"):
        Torch(name, options)
