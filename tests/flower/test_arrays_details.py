"""Arrays of several types: what is trained, averaged, rounded and kept."""

import numpy as np
import pytest
import torch

pytest.importorskip("flwr")
from flwr.app import Array, ArrayRecord

from fadas.core.model import Model
from fadas.flower.arrays import ArrayLayout, is_trainable

NAN = float("nan")


def make_record(**arrays):
    return ArrayRecord({name: Array(np.asarray(values)) for name, values in arrays.items()})


def make_layout(**arrays):
    return ArrayLayout(make_record(**arrays), lambda name: name.startswith("w"))


F32, F64, F16 = np.float32, np.float64, np.float16


@pytest.mark.parametrize(
    ("name", "trained"),
    [
        ("layer.weight", True),
        ("bn.running_mean", False),
        ("bn.running_var", False),
        ("bn.num_batches_tracked", False),
        ("running_mean.weight", True),
    ],
)
def test_statistics_of_batchnorm_are_not_trained(name, trained):
    assert is_trainable(name) is trained


def test_vectors_hold_arrays_in_their_order():
    layout = make_layout(w1=F32([[1, 2], [3, 4]]), s=F32([9.0]), w2=F32([5.0]), n=np.int64([7]), flag=np.array([True]))
    assert layout.initial.params.tolist() == [1.0, 2.0, 3.0, 4.0, 5.0]
    assert layout.initial.buffers.tolist() == [9.0]
    assert layout.digest.startswith("5 trained, 1 averaged, ")
    assert len(layout.digest.rpartition(" ")[2]) == 16
    record = layout.to_record(Model(torch.arange(5.0) * 10, torch.tensor([-1.0])))
    assert list(record) == ["w1", "s", "w2", "n", "flag"]
    assert record["w1"].numpy().tolist() == [[0.0, 10.0], [20.0, 30.0]]
    assert record["w2"].numpy().tolist() == [40.0]
    assert (record["s"].numpy().tolist(), record["n"].numpy().tolist()) == ([-1.0], [7])


def test_layout_without_statistics_has_empty_buffers():
    layout = make_layout(w=F32([1.0]))
    assert layout.initial.buffers.shape == (0,)
    assert layout.digest.startswith("1 trained, 0 averaged, ")


def test_digest_depends_on_names_shapes_and_types():
    one = make_layout(w=F32([1.0, 2.0]), n=np.int64([1])).digest
    assert one == make_layout(w=F32([3.0, 4.0]), n=np.int64([2])).digest
    others = [
        make_layout(w1=F32([1.0, 2.0]), n=np.int64([1])),
        make_layout(w=F32([[1.0, 2.0]]), n=np.int64([1])),
        make_layout(w=F16([1.0, 2.0]), n=np.int64([1])),
        make_layout(w=F32([1.0, 2.0]), n=np.int32([1])),
        make_layout(w=F32([1.0, 2.0]), n=np.int64([1, 1])),
    ]
    assert len({one, *(layout.digest for layout in others)}) == 6


def test_vectors_are_copies_of_the_record():
    array = F32([1.0, 2.0])
    layout = make_layout(w=array)
    layout.initial.params[0] = 99.0
    assert array.tolist() == [1.0, 2.0]


@pytest.mark.parametrize(("dtype", "rounded"), [(F16, True), (F32, False), (F64, False)])
def test_clients_receive_rounded_parameters_only_in_half_precision(dtype, rounded):
    layout, params = make_layout(w=dtype([1.0, 0.1])), torch.tensor([1.0, 0.1])
    sent = layout.as_sent(params)
    assert (sent is params) is not rounded
    assert sent.tolist() == np.array([1.0, 0.1], F32).astype(dtype).astype(F32).tolist()


def test_wide_arrays_keep_their_bits_until_they_change():
    """The server holds 32 bits. What no client has changed is sent as it came, with all 64."""
    layout = make_layout(w=F32([1.0]), s=F64([0.1, NAN]), t=F64([0.2]))
    same = layout.to_record(layout.initial)
    assert same["s"].numpy().dtype == same["t"].numpy().dtype == F64
    assert same["s"].numpy()[0] == 0.1
    assert np.isnan(same["s"].numpy()[1]), "NaN has not changed either"
    assert same["t"].numpy()[0] == 0.2
    other = layout.to_record(Model(layout.initial.params, torch.tensor([0.5, NAN, 0.2])))
    assert other["s"].numpy()[0] == 0.5
    assert other["t"].numpy()[0] == 0.2


def test_only_wide_arrays_are_kept():
    """The others lose nothing in the server's 32 bits, but for the sign of zero."""
    layout = make_layout(w=F32([1.0]), s=F32([-0.0]), t=F64([-0.0]), u=F16([-0.0]))
    record = layout.to_record(Model(torch.ones(1), torch.zeros(3)))
    assert [np.signbit(record[name].numpy()[0]) for name in "stu"] == [False, True, False]


def test_reply_takes_missing_statistics_from_its_start():
    layout = make_layout(w=F32([1.0]), s=F32([2.0]), t=F32([3.0]))
    base = Model(torch.zeros(1), torch.tensor([20.0, 30.0]))
    assert layout.to_model(make_record(w=F32([5.0])), base).buffers is base.buffers
    assert layout.to_model(make_record(w=F32([5.0]), t=F32([7.0])), base).buffers.tolist() == [20.0, 7.0]
    assert layout.to_model(make_record(w=F32([5.0]), s=F32([6.0])), base).buffers.tolist() == [6.0, 30.0]
    assert layout.to_model(make_record(w=F32([5.0]), s=F64([6.0])), base).params.tolist() == [5.0]


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"s": F32([1.0])}, "array 'w' is missing; a reply must hold all trained arrays"),
        ({"w": F32([1.0, 2.0])}, r"array 'w' must have the shape \(1,\), got \(2,\)"),
        ({"w": np.int64([1])}, "array 'w' must hold floating-point numbers, got int64"),
        ({"w": F32([1.0]), "s": F32([[1.0]])}, r"array 's' must have the shape \(1,\), got \(1, 1\)"),
        ({"w": F32([1.0]), "s": np.array([True])}, "array 's' must hold floating-point numbers, got bool"),
    ],
)
def test_unfit_reply_is_refused_by_the_array(arrays, message):
    layout = make_layout(w=F32([1.0]), s=F32([2.0]))
    with pytest.raises(ValueError, match=message):
        layout.to_model(make_record(**arrays), layout.initial)
