"""Presets against values worked out by hand."""

import math

import pytest

from fadas.algorithms.presets import CA2FL, FADAS, FADAS_DA, FedAMS, FedAsync, FedAvg, FedBuff
from fadas.algorithms.step_sizes import Hinge
from fadas.core.ledger import Schedule
from helpers.updates import STEP, TWO_UPDATES, make_state, make_updates


@pytest.mark.parametrize(
    ("staleness", "alpha"), [("constant", 0.5), ("hinge", 0.5 / (0.5 * 2 + 1)), ("polynomial", 0.5 / math.sqrt(4))]
)
def test_fedasync_mixes_client_model_by_staleness(staleness, alpha):
    algorithm = FedAsync(0.5, staleness, a=0.5, b=1)
    step, one = make_updates((7, 0, [2.0, 4.0], 1, [1.0, -1.0]))
    after = algorithm.apply(make_state(10.0, 20.0), step, one, 9)
    expected = [(1 - alpha) * 10 + alpha * 3, (1 - alpha) * 20 + alpha * 3]
    assert after.model.params.tolist() == pytest.approx(expected)
    assert algorithm.schedule(25, 5) == Schedule(25, 1, "update")
    with pytest.raises(ValueError, match="staleness"):
        FedAsync(staleness="linear")


def test_fadas_applies_amsgrad_to_mean():
    after = FADAS(eta=0.1).apply(make_state(1.0, 1.0), STEP, TWO_UPDATES, 9)
    # mean [2, 0]: m = 0.1 * 2, vhat = 0.01 * 4, step 0.1 * 0.2 / 0.2
    assert after.model.params.tolist() == pytest.approx([1.1, 1.0])
    assert after.version == 4
    late = FADAS_DA(eta=0.1, tau_c=2).apply(make_state(1.0, 1.0), STEP, TWO_UPDATES, 9)  # tau_max = 3
    assert late.model.params.tolist() == pytest.approx([1 + 0.1 / 3, 1.0])


def test_presets_give_schedules():
    for make in (FADAS, FADAS_DA, FedBuff, CA2FL):
        assert make().schedule(25, 5) == Schedule(25, 5, "arrival")
    assert FedAvg().schedule(25, 5) == Schedule(25, 25, "round")
    assert FedAMS().schedule(5, 10) == Schedule(5, 5, "round")
    with pytest.raises(ValueError, match="exceeds concurrency"):
        Schedule(5, 10, "round")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: FADAS(eta=-1), "eta must be a positive number, got -1"),
        (lambda: FADAS(eta=0), "eta must be a positive number, got 0"),
        (lambda: FADAS_DA(tau_c=-1), "tau_c must be at least 0, got -1"),
        (lambda: FADAS_DA(form="both"), "form must be one of scaled, capped, got 'both'"),
        (lambda: FedAsync(alpha=math.nan), "must be a positive number, got nan"),
        (lambda: Hinge(a=-1), "a must be a positive number, got -1"),
    ],
)
def test_presets_refuse_bad_parameters(make, message):
    with pytest.raises(ValueError, match=message):
        make()
