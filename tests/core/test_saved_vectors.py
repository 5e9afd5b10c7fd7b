"""What travels beside models and deltas, saved and restored."""

import json
from dataclasses import replace

import pytest
import torch

from fadas.algorithms.presets import FADAS, AsyncSCAFFOLD
from fadas.core.ledger import Ledger, Schedule
from fadas.core.model import Model
from fadas.core.saved_state import load_server, load_vectors, save_server
from fadas.core.server import Server
from fadas.core.update_checks import Checks
from helpers.updates import make_update

SIZE = 3


def make_server(algorithm=None):
    model = Model(torch.zeros(SIZE), torch.zeros(0))
    return Server(algorithm or AsyncSCAFFOLD(), Ledger(Schedule(4, 2), 4), model, Checks(norm_factor=50.0))


def train():
    server = make_server()
    server.start()
    number = 0
    while server.state.version < 2 or not server.buffer:
        number += 1
        job = min(server.ledger.running.values())
        update = make_update(job, server.model)
        vectors = {"dc": torch.full((SIZE,), float(number))}
        server.receive(replace(update, vectors=vectors, kept={"c_i": torch.full((SIZE,), 0.5)}))
    return server


@pytest.fixture(scope="module")
def saved():
    server = train()
    tensors, values = save_server(server)
    return server, {name: tensor.clone() for name, tensor in tensors.items()}, json.loads(json.dumps(values))


def test_vectors_of_model_and_updates_are_restored(saved):
    server, tensors, values = saved
    load_server(other := make_server(), tensors, values)
    assert torch.equal(other.model.vectors["c"], server.model.vectors["c"])
    assert other.model.vectors["c"].abs().min() > 0
    assert other.updates.keys() == server.updates.keys() != set()
    for one in server.buffer:
        again = other.updates[one.job.id]
        assert torch.equal(one.vectors["dc"], again.vectors["dc"])
        assert torch.equal(one.kept["c_i"], again.kept["c_i"])
    assert {name: recent.state() for name, recent in other.recent_vectors.items()} == {
        name: recent.state() for name, recent in server.recent_vectors.items()
    }
    assert other.recent_vectors["dc"].length > 0


def test_state_of_earlier_version_has_no_recent_vectors(saved):
    _, tensors, values = saved
    load_server(other := make_server(), tensors, {k: v for k, v in values.items() if k != "recent_vectors"})
    assert other.recent_vectors == {}


def change_tensor(name, make):
    def change(tensors, values):
        tensors[name] = make(tensors[name])

    return change


def some(values, part):
    return f"buffer.{values['buffer'][0][0][0]}.{part}"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t, v: t.pop("slot.c"), "slot.c is missing"),
        (lambda t, v: t.update({"slot.c": t["slot.c"][1:]}), "slot.c has the wrong shape or type"),
        (lambda t, v: t["slot.c"].fill_(float("nan")), "slot.c is not finite"),
        (lambda t, v: t.pop(some(v, "vectors.dc")), "has no 'dc'"),
        (lambda t, v: t[some(v, "vectors.dc")].fill_(float("inf")), "vectors.dc is not finite"),
        (lambda t, v: t[some(v, "kept.c_i")].fill_(float("inf")), "kept.c_i is not finite"),
        (lambda t, v: t.update({some(v, "vectors.dc"): torch.ones(SIZE + 1)}), "vectors.dc belongs to another model"),
        (lambda t, v: v.update(recent_vectors={"dx": {"votes": [], "length": None}}), "there is no 'dx'"),
        (lambda t, v: v["recent_vectors"]["dc"].update(length=-1.0), "the reference must be a finite number"),
    ],
)
def test_impossible_vectors_are_refused(saved, change, message):
    _, tensors, values = saved
    tensors, values = {name: tensor.clone() for name, tensor in tensors.items()}, json.loads(json.dumps(values))
    change(tensors, values)
    other = make_server()
    before = other.state
    with pytest.raises(ValueError, match=message):
        load_server(other, tensors, values)
    assert other.state is before
    assert not other.updates


def test_vectors_are_those_whose_names_have_the_prefix():
    like = Model(torch.zeros(SIZE), torch.zeros(0))
    tensors = {"a.x": torch.ones(SIZE), "a.n": torch.tensor(2), "ab.y": torch.ones(SIZE), "b.a.x": torch.ones(SIZE)}
    found = load_vectors("a.", tensors, like)
    assert list(found) == ["x", "n"]
    assert int(found["n"]) == 2
    infinite = {"a.x": torch.full((SIZE,), float("inf"))}
    assert load_vectors("a.", infinite, like, finite=False)
    with pytest.raises(ValueError, match=r"^a.x is not finite$"):
        load_vectors("a.", infinite, like)


def test_plain_method_saves_no_vectors():
    server = make_server(FADAS())
    (job, *_) = server.start()
    server.receive(make_update(job, server.model))
    tensors, values = save_server(server)
    assert values["recent_vectors"] == {}
    assert not [name for name in tensors if "vectors" in name or "kept" in name]
