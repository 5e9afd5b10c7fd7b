"""Optimizers where their formulas have corners."""

import math

import pytest
import torch

from fadas.algorithms.optimizers import AMSGrad, Torch, Yogi


def test_yogi_shrinks_second_moment_slowly():
    """v = 0.01 * 2^2 = 0.04 at first. Then delta^2 = 0.01 is below v, which shrinks by 0.01 * 0.01 only."""
    yogi, x, slots = Yogi(beta1=0.0, eps=1e-12), torch.zeros(1, dtype=torch.float64), {}
    for delta, v in ((2.0, 0.04), (0.1, 0.04 - 0.01 * 0.01), (0.0, 0.04 - 0.01 * 0.01), (1.0, 0.0399 + 0.01)):
        before = x
        x, slots = yogi.apply(x, torch.tensor([delta], dtype=torch.float64), slots, 0.5)
        assert slots["v"].item() == pytest.approx(v, rel=1e-12)
        assert (x - before).item() == pytest.approx(0.5 * delta / math.sqrt(v), rel=1e-9)


def test_floor_is_the_initial_maximum():
    _, slots = AMSGrad(floor=0.25).apply(torch.zeros(2), torch.tensor([1.0, 10.0]), {}, 0.1)
    assert slots["vhat"].tolist() == pytest.approx([0.25, 1.0])
    _, slots = AMSGrad().apply(torch.zeros(2), torch.zeros(2), {}, 0.1)
    assert slots["vhat"].tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("Nothing", "there is no such optimizer"),
        ("lr_scheduler", "there is no such optimizer"),  # a module
        ("SparseAdam", "SparseAdam does not support dense gradients"),  # which only its step says
    ],
)
def test_torch_optimizer_is_tried_when_it_is_made(name, reason):
    with pytest.raises(ValueError, match=f"torch.optim.{name} cannot serve as the server optimizer: {reason}"):
        Torch(name)


def test_torch_state_has_names_of_its_own():
    x, slots = Torch("Adam").apply(torch.zeros(2), torch.ones(2), {"m": torch.ones(2)}, 0.1)
    assert set(slots) == {"torch.step", "torch.exp_avg", "torch.exp_avg_sq"}
    assert float(slots["torch.step"]) == 1
    _, again = Torch("Adam").apply(x, torch.ones(2), {"m": torch.ones(2), **slots}, 0.1)
    assert float(again["torch.step"]) == 2
    assert float(slots["torch.step"]) == 1, "the old state is unchanged"
    assert not x.requires_grad
