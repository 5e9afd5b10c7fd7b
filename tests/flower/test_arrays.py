"""Flower's arrays as flat vectors, and back."""

import numpy as np
import pytest
import torch

pytest.importorskip("flwr")
from flwr.app import Array, ArrayRecord

from fadas.flower.arrays import ArrayLayout, is_trainable
from helpers.flower import INITIAL


def test_records_and_vectors_round_trip():
    """Statistics become buffers, whole numbers stay, adapters alone are enough, wrong shapes are named."""
    module = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
    state = {name: tensor + 1 for name, tensor in module.state_dict().items()}
    record = ArrayRecord(state)
    layout = ArrayLayout(record, is_trainable)
    assert layout.initial.params.numel() == 3 * 2 + 2 + 2 + 2
    assert layout.initial.buffers.numel() == 4
    back = layout.to_record(layout.initial).to_torch_state_dict()
    assert list(back) == list(state)
    assert all(torch.equal(back[name], state[name]) for name in state)
    partial = ArrayRecord({name: tensor for name, tensor in state.items() if is_trainable(name)})
    assert torch.equal(layout.to_model(partial, layout.initial).buffers, layout.initial.buffers)
    only = ArrayLayout(record, lambda name: name.endswith("0.bias"))
    assert only.initial.params.numel() == 2
    for bad in ({**state, "0.bias": torch.zeros(5)}, {k: v for k, v in state.items() if k != "0.bias"}):
        with pytest.raises(ValueError, match=r"0\.bias"):
            layout.to_model(ArrayRecord(bad))
    with pytest.raises(ValueError, match="no array is trainable"):
        ArrayLayout(record, lambda name: False)


@pytest.mark.parametrize("dtype", ["complex64", "U4", "datetime64[D]"])
def test_unsupported_arrays_are_refused_by_name(dtype):
    arrays = ArrayRecord({"w": Array(INITIAL), "odd.one": Array(np.zeros(2, dtype))})
    with pytest.raises(ValueError, match=r"'odd\.one' must hold floating-point or whole numbers, got "):
        ArrayLayout(arrays, is_trainable)
