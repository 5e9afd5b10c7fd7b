"""Step sizes against values worked out by hand."""

from itertools import pairwise

import pytest

from fadas.algorithms.presets import FedAsync
from fadas.algorithms.step_sizes import STEP_SIZES, Constant, DelayAdaptive, Hinge, Polynomial
from helpers.updates import delayed_step


def test_delay_adaptive_forms_scale_beyond_threshold():
    scaled, capped = DelayAdaptive(0.5, 4), DelayAdaptive(0.5, 4, "capped")
    for size in (scaled, capped):
        assert size(delayed_step([0, 4, 1])) == 0.5, "the threshold itself does not shrink the step"
    assert scaled(delayed_step([0, 5])) == pytest.approx(0.1)
    assert capped(delayed_step([0, 5])) == pytest.approx(0.2)
    assert DelayAdaptive(0.01, 4, "capped")(delayed_step([5])) == 0.01, "1/tau does not cut a small eta"
    assert DelayAdaptive(0.01, 0)(delayed_step([1])) == 0.01


def test_fedasync_step_sizes_match_formulas():
    assert Constant(0.6)(delayed_step([50])) == 0.6
    hinge = Hinge(0.6, a=10, b=4)
    assert hinge(delayed_step([4])) == 0.6
    assert hinge(delayed_step([6])) == pytest.approx(0.6 / 21)
    polynomial = Polynomial(0.6, a=0.5)
    assert polynomial(delayed_step([0])) == 0.6
    assert polynomial(delayed_step([0, 3, 1])) == pytest.approx(0.3)
    assert hinge(delayed_step([0, 6])) == pytest.approx(0.6 / 21)
    assert FedAsync(staleness="hinge").step_size == Hinge(0.6, 10.0, 4)
    assert FedAsync().step_size == Polynomial(0.6, 0.5)


ARGUMENTS = {  # those of `Constant`, `Hinge` and `Polynomial` are just eta
    "delay-adaptive": {"eta": 0.6, "tau_c": 4},
    "warmup": {"steps": 1, "then": Hinge(0.6)},
    "cosine": {"steps": 10, "then": Hinge(0.6)},
    "inverse-sqrt": {"steps": 10, "then": Hinge(0.6)},
}


@pytest.mark.parametrize("name", STEP_SIZES)
def test_every_step_size_keeps_contract(name):
    """Positive, eta without a delay, and never larger for a longer delay."""
    size = STEP_SIZES[name](**ARGUMENTS.get(name, {"eta": 0.6}))
    sizes = [size(delayed_step([0, tau], index=0)) for tau in range(50)]
    assert sizes[0] == 0.6
    assert all(0 < later <= earlier for earlier, later in pairwise(sizes))
