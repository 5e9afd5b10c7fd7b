"""Updates exactly at the bounds of the checks."""

import math

import pytest
import torch

from fadas.core.ledger import Job
from fadas.core.model import Model
from fadas.core.update_checks import Checks, all_finite
from helpers.updates import make_update

MODEL = Model(torch.zeros(2), torch.zeros(1))


def check(checks, **changes):
    update = make_update(Job(0, 0, 0), MODEL, **changes)
    after, problem = checks(update, MODEL)
    return after.delta.tolist(), problem


@pytest.mark.parametrize("excess", ["refuse", "clip"])
def test_delta_exactly_as_long_as_the_bound_is_accepted_unchanged(excess):
    assert check(Checks(5.0, excess), delta=torch.tensor([3.0, 4.0])) == ([3.0, 4.0], None)


def test_delta_just_above_the_bound_is_refused_or_clipped():
    longer = torch.tensor([3.0, math.nextafter(4.0, 5.0) + 1e-6])
    assert check(Checks(5.0), delta=longer)[1] == "norm above bound"
    clipped, problem = check(Checks(5.0, "clip"), delta=longer)
    assert problem is None
    assert math.hypot(*clipped) == pytest.approx(5.0, abs=1e-6)


def test_clip_keeps_the_direction():
    assert check(Checks(5.0, "clip"), delta=torch.tensor([30.0, -40.0])) == (pytest.approx([3.0, -4.0]), None)
    assert check(Checks(1e-3, "clip"), delta=torch.tensor([0.0, 7.0])) == (pytest.approx([0.0, 1e-3]), None)


def test_without_a_norm_any_finite_delta_is_accepted():
    assert check(Checks(), delta=torch.tensor([1e38, -1e38])) == (pytest.approx([1e38, -1e38]), None)


@pytest.mark.parametrize(("examples", "problem"), [(1, None), (0, "no examples"), (-1, "no examples")])
def test_one_example_is_enough(examples, problem):
    assert check(Checks(), examples=examples)[1] == problem


def test_all_finite_ignores_elements_that_have_not_changed():
    inf, nan = math.inf, math.nan
    assert all_finite(torch.zeros(0))
    assert all_finite(torch.tensor([1.0, -1.0]))
    assert not all_finite(torch.tensor([1.0, inf]))
    mask = torch.tensor([inf, 0.0, -inf])
    assert all_finite(torch.tensor([inf, 5.0, -inf]), mask)
    assert not all_finite(torch.tensor([inf, inf, -inf]), mask)
    assert not all_finite(torch.tensor([inf, nan, -inf]), mask)
    assert not all_finite(torch.tensor([nan, 0.0, -inf]), mask)
    assert not all_finite(torch.tensor([3.3e38, 3.3e38])), "a sum that overflows counts as not finite"
    assert all_finite(torch.tensor([inf, 3.3e38, -inf]), mask)
