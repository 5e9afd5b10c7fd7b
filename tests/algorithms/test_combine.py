"""Combine rules against values worked out by hand."""

from dataclasses import replace

import pytest
import torch

from fadas.algorithms.combine import COMBINES, Calibrated, ExampleWeighted, Mean, Mixing, StalenessWeighted
from helpers.updates import STEP, TWO_UPDATES, make_state, make_updates


def test_means_match_hand_calculation():
    x = make_state(1.0, 1.0)
    assert Mean()(x, STEP, TWO_UPDATES, 9)[0].tolist() == [2.0, 0.0]
    assert ExampleWeighted()(x, STEP, TWO_UPDATES, 9)[0].tolist() == [2.5, -1.0]
    # delays 0 and 3: weights 1 and 1/2
    assert StalenessWeighted()(x, STEP, TWO_UPDATES, 9)[0].tolist() == [1.25, 0.5]
    assert StalenessWeighted(normalize=True)(x, STEP, TWO_UPDATES, 9)[0].tolist() == pytest.approx([2.5 / 1.5, 1 / 1.5])


def test_mixing_moves_to_client_models():
    # trained models [1, 2] and [8, 3]; their mean [4.5, 2.5]; from x = [1, 1]
    assert Mixing()(make_state(1.0, 1.0), STEP, TWO_UPDATES, 9)[0].tolist() == [3.5, 1.5]


def test_ca2fl_matches_hand_calculation_over_three_steps():
    """N = 4. h_i starts at zero; v_t = h + mean(delta_i - h_i); then h_i = delta_i and h = mean over all N."""
    calibrated, slots = Calibrated(), {}

    def combine_rows(*rows):
        step, ups = make_updates(*((client, 0, delta, 1, [0.0]) for client, delta in rows))
        combined, new = calibrated(make_state(0.0, **slots), step, ups, 4)
        slots.update(new)
        return combined.item()

    assert combine_rows((0, [4.0]), (1, [8.0])) == 6.0  # 0 + (4 + 8) / 2;           then h = (4 + 8) / 4 = 3
    assert combine_rows((0, [2.0]), (2, [4.0])) == 3.0 + ((2 - 4) + (4 - 0)) / 2  # then h = (2 + 8 + 4) / 4 = 3.5
    assert slots["h.sum"].item() == 14
    # client 1 reports twice: both are compared to h_1 = 8, and the later one is kept
    before = slots["h.sum"]
    assert combine_rows((1, [6.0]), (1, [12.0])) == 3.5 + ((6 - 8) + (12 - 8)) / 2  # then h = (2 + 12 + 4) / 4 = 4.5
    assert slots["h.sum"].item() == 18
    assert before.item() == 14, "the old sum was written in place"
    assert slots["h.1"].item() == 12.0


def test_ca2fl_weighs_clients_equally_while_others_join():
    """A report from when there were few clients weighs no more than a later one."""
    calibrated, slots = Calibrated(), {}
    for clients, delta in ((1, 1.0), (10, 0.0), (10, 0.0)):
        step, ups = make_updates((0, 0, [delta], 1, [0.0]))
        combined, new = calibrated(make_state(0.0, **slots), step, ups, clients)
        slots.update(new)
    assert combined.item() == 0


@pytest.mark.parametrize("name", COMBINES)
def test_every_combine_rule_keeps_contract(name):
    """Pure, gives a vector as long as the parameters, remembers tensors only, repeats exactly."""
    if name == "private":
        pytest.importorskip("dp_accounting")
    combine, before = COMBINES[name](), make_state(1.0, 1.0)
    step, three = make_updates(*((k, k, [1.0 + k, -2.0], 10 + k, [0.0, 1.0]) for k in range(3)))
    kept = [u.delta.clone() for u in three]
    (one, slots), (two, _) = (combine(before, step, three, 9) for _ in range(2))
    assert one.shape == before.model.params.shape
    assert torch.equal(one, two)
    assert all(isinstance(slot, torch.Tensor) for slot in slots.values())
    assert before.model.params.tolist() == [1.0, 1.0]
    assert all(torch.equal(u.delta, k) for u, k in zip(three, kept, strict=True))
    remembered = {key: slot.clone() for key, slot in slots.items()}
    combine(replace(before, slots=slots), step, three, 9)
    assert all(torch.equal(remembered[key], slot) for key, slot in slots.items()), "a slot was written in place"
