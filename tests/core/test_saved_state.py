"""A server as tensors and plain values, and back."""

import json
from dataclasses import replace

import pytest
import torch

from fadas.algorithms.algorithm import Algorithm
from fadas.algorithms.presets import FADAS
from fadas.algorithms.privacy import Private
from fadas.core.ledger import Ledger, Schedule
from fadas.core.model import Model
from fadas.core.records import LATEST
from fadas.core.saved_state import load_server, load_updates, save_server, save_updates, take_tensor
from fadas.core.server import Server
from helpers.updates import NOT_FINITE, make_update


def make_server(algorithm=None, buffers=2, seed=0):
    model = Model(torch.zeros(5), torch.zeros(buffers))
    return Server(algorithm or FADAS(), Ledger(Schedule(4, 3), 10, seed), model)


def train_server(server, updates):
    """Receive this many updates, after one that is refused."""
    server.start()
    server.receive(make_update(min(server.ledger.running.values()), server.model, delta=NOT_FINITE))
    for number in range(updates):
        job = min(server.ledger.running.values())
        server.receive(make_update(job, server.model, delta=torch.full((5,), 1.0 + number), examples=10 + number))
    return server


def as_file(tensors, values):
    """What a checkpoint makes of a state: other tensors, and values as JSON has them."""
    return {name: tensor.clone() for name, tensor in tensors.items()}, json.loads(json.dumps(values))


def test_state_of_a_server_is_restored():
    server = train_server(make_server(replace(FADAS(), statistics=0.5)), 5)
    tensors, values = as_file(*save_server(server))
    assert set(tensors) >= {"params", "buffers", "slot.m", "slot.v", "slot.vhat"}
    assert (values["version"], values["refused"]) == (1, {"not finite": 1})
    other = make_server()
    load_server(other, tensors, values)
    assert other.state.version == 1
    assert torch.equal(other.model.params, server.model.params)
    assert torch.equal(other.model.buffers, server.model.buffers)
    assert other.state.slots.keys() == server.state.slots.keys() == {"m", "v", "vhat"}
    assert all(torch.equal(other.state.slots[name], slot) for name, slot in server.state.slots.items())
    assert other.refused == server.refused
    assert other.algorithm.statistics == 0.5, "the run computes as it began"
    assert other.updates.keys() == server.updates.keys()
    for one, again in zip(server.updates.values(), other.updates.values(), strict=True):
        assert torch.equal(one.delta, again.delta)
        assert torch.equal(one.base, again.base)
        assert torch.equal(one.buffers, again.buffers)
        assert (one.job, one.examples, one.metrics) == (again.job, again.examples, again.metrics)
    assert len(other.updates) == 2


def test_privacy_spent_is_restored():
    pytest.importorskip("dp_accounting")
    server = train_server(make_server(Algorithm(Private()), buffers=0), 6)
    tensors, values = as_file(*save_server(server))
    other = make_server(Algorithm(Private()), buffers=0)
    load_server(other, tensors, values)
    assert other.accountant.counts == server.accountant.counts
    assert other.privacy == server.privacy
    plain = train_server(make_server(), 3)
    assert save_server(plain)[1]["spent"] == []


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("params", lambda tensor: tensor[1:]),
        ("params", lambda tensor: tensor.double()),
        ("buffers", lambda tensor: tensor[1:]),
        ("buffer.5.delta", lambda tensor: tensor[1:]),
        ("buffer.5.base", lambda tensor: tensor.half()),
        ("buffer.5.buffers", lambda tensor: tensor[:, None]),
    ],
)
def test_tensor_of_another_model_is_refused_by_name(name, change):
    tensors, values = save_server(train_server(make_server(), 5))
    other = make_server()
    before = other.state
    with pytest.raises(ValueError, match=f"{name} belongs to another model"):
        load_server(other, {**tensors, name: change(tensors[name])}, values)
    assert (other.state, other.buffer, other.refused) == (before, [], {})


@pytest.mark.parametrize("missing", ["version", "buffer", "refused", "spent", "rules"])
def test_incomplete_state_is_refused_and_changes_nothing(missing):
    tensors, values = save_server(train_server(make_server(), 5))
    del values[missing]
    other = make_server()
    before = other.state
    with pytest.raises(KeyError, match=missing):
        load_server(other, tensors, values)
    assert (other.state, other.buffer, other.refused) == (before, [], {})


def test_updates_are_saved_under_their_kind_and_job():
    server = train_server(make_server(), 4)
    tensors, values = as_file(*save_updates("finished", server.buffer))
    (update,) = server.buffer
    id = update.job.id
    assert set(tensors) == {f"finished.{id}.delta", f"finished.{id}.base", f"finished.{id}.buffers"}
    assert values == [[list(update.job), update.examples, {"loss": 1.0}]]
    (again,) = load_updates("finished", tensors, values, server.model)
    assert again.job == update.job
    assert load_updates("finished", {}, [], server.model) == []


def test_only_a_fitting_tensor_is_taken():
    like = torch.zeros(2, 3)
    found = torch.ones(2, 3)
    assert take_tensor({"x": found}, "x", like) is found
    for wrong in (torch.ones(3, 2), torch.ones(6), torch.ones(2, 3, dtype=torch.float64)):
        with pytest.raises(ValueError, match="x belongs to another model"):
            take_tensor({"x": wrong}, "x", like)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda tensors: tensors.pop("slot.v"), "slot.v is missing"),
        (lambda tensors: tensors["slot.vhat"].__setitem__(1, -1e-9), "slot.vhat must not be negative"),
    ],
    ids=["missing", "negative"],
)
def test_memory_that_no_optimizer_would_have_is_refused(change, message):
    tensors, values = as_file(*save_server(train_server(make_server(), 5)))
    change(tensors)
    with pytest.raises(ValueError, match=message):
        load_server(make_server(), tensors, values)


def test_memory_is_not_missing_before_first_step():
    tensors, values = as_file(*save_server(train_server(make_server(), 2)))
    assert not [name for name in tensors if name.startswith("slot.")]
    load_server(other := make_server(), tensors, values)
    assert len(other.updates) == 2


def test_saved_examples_must_be_possible():
    tensors, values = as_file(*save_server(train_server(make_server(), 5)))
    for examples in (0, LATEST):
        values["buffer"][0][1] = examples
        with pytest.raises(ValueError, match=r"buffer\.\d+ has .* examples"):
            load_server(make_server(), tensors, values)
