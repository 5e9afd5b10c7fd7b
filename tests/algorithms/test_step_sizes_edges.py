"""Step sizes at and beyond their thresholds."""

import pytest

from fadas.algorithms.step_sizes import DelayAdaptive, Hinge, Polynomial
from helpers.updates import delayed_step


@pytest.mark.parametrize(
    ("size", "factors"),
    [
        (Hinge(0.5, a=10, b=2), {0: 1, 2: 1, 3: 1 / 11, 4: 1 / 21, 12: 1 / 101}),
        (Hinge(0.5, a=10, b=2.5), {2: 1, 3: 1 / 6}),
        (Hinge(0.5, a=3, b=0), {0: 1, 1: 1 / 4}),
        (Polynomial(0.5, a=0.5), {0: 1, 1: 2**-0.5, 8: 1 / 3}),
        (Polynomial(0.5, a=2), {0: 1, 1: 1 / 4, 2: 1 / 9}),
        (DelayAdaptive(0.5, 2), {0: 1, 2: 1, 3: 1 / 3, 10: 1 / 10}),
        (DelayAdaptive(0.5, 0), {0: 1, 1: 1, 2: 1 / 2}),
        (DelayAdaptive(0.5, 2, "capped"), {2: 1, 3: 2 / 3, 10: 1 / 5}),  # min(eta, 1 / tau_max)
        (DelayAdaptive(0.1, 2, "capped"), {2: 1, 3: 1, 10: 1, 20: 1 / 2}),
    ],
    ids=str,
)
def test_step_size_falls_with_largest_delay(size, factors):
    for tau, factor in factors.items():
        assert size(delayed_step([0, tau, 1 if tau else 0])) == pytest.approx(size.eta * factor, rel=1e-12)
