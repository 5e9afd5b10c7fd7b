"""The tiers of the paper's delays: fixed shares, empty tiers, and bare delay models."""

import re
import warnings

import numpy as np
import pytest

import fadas
from fadas.errors import FadasWarning

SCHEDULE = fadas.Schedule(4, 2)


def make_plan(delays, clients=10, seed=0):
    return fadas.plan(SCHEDULE, clients, delays, steps=5, seed=seed)


@pytest.mark.parametrize(
    ("clients", "counts"), [(10, [6, 3, 1]), (100, [60, 30, 10]), (7, [4, 2, 1]), (3, [2, 1, 0]), (1, [1, 0, 0])]
)
def test_shares_fix_number_of_clients_in_each_tier(clients, counts):
    model = fadas.Large(shares=(0.6, 0.3, 0.1))
    for seed in range(5):
        tiers = model.tiers(clients, np.random.default_rng(seed))
        assert np.bincount(tiers, minlength=3).tolist() == counts


def test_shares_assign_tiers_by_seed():
    model = fadas.Large(shares=(0.6, 0.3, 0.1))
    drawn = [model.tiers(20, np.random.default_rng(seed)).tolist() for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]


@pytest.mark.parametrize("shares", [(0.6, 0.3, 0.2), (1.2, -0.1, -0.1), (0.5, 0.5)])
def test_shares_that_do_not_add_up_are_refused(shares):
    with pytest.raises(ValueError, match="shares must be three numbers that add up to 1"):
        fadas.Large(shares=shares)


def test_gamma_beside_shares_is_refused():
    with pytest.raises(ValueError, match="gamma has no effect together with shares"):
        fadas.Large(gamma=0.5, shares=(0.6, 0.3, 0.1))


def test_empty_tier_is_warned_of_with_seed_and_range():
    seed = next(s for s in range(100) if fadas.Large().empty_tiers(10, np.random.default_rng([s, 2])) == ["large"])
    with pytest.warns(FadasWarning, match=rf"seed {seed}: none of the 10 clients .*'large' \(50 to 80\).*shares"):
        make_plan(fadas.Large(), seed=seed)


@pytest.mark.parametrize("shares", [(0.6, 0.3, 0.1), (0.7, 0.3, 0.0), (0.0, 0.0, 1.0)])
def test_full_or_omitted_tiers_give_no_warning(shares):
    with warnings.catch_warnings():
        warnings.simplefilter("error", FadasWarning)
        make_plan(fadas.Large(shares=shares))


def test_tier_emptied_by_rounding_is_warned_of_without_seed():
    with pytest.warns(FadasWarning) as caught:
        make_plan(fadas.Large(shares=(0.6, 0.3, 0.1)), clients=5)
    (text,) = [str(warning.message) for warning in caught]
    assert text == "none of the 5 clients is in the delay tier 'large' (50 to 80): its share is less than one client"


@pytest.mark.parametrize(
    ("delays", "got"), [("large", "'large'"), (fadas.Large, "the class Large; call it"), ({"name": "large"}, "{'name'")]
)
def test_delays_that_are_no_model_are_refused_on_one_line(delays, got):
    message = f"delays need a delay model such as fadas.Large(), got {got}"
    for make in (make_plan, fadas.Delays):
        with pytest.raises(ValueError, match=re.escape(message)):
            make(delays)


def test_bare_delay_model_is_taken_as_delays():
    bare, wrapped = make_plan(fadas.Large(), 50), make_plan(fadas.Delays(fadas.Large()), 50)
    assert np.array_equal(bare.end, wrapped.end)
