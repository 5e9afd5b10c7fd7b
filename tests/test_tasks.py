import inspect
from importlib import import_module

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.utils.data import TensorDataset

from fadas.tasks import TASKS
from fadas.tasks.partition import by_shards, dirichlet, dirichlet_capped, iid, natural
from fadas.tasks.task import Task, accuracy


@settings(max_examples=60)
@given(st.integers(1, 30), st.floats(0.01, 10), st.integers(0, 1000))
def test_a_partition_deals_out_every_example_once_and_leaves_nobody_empty(clients, alpha, seed):
    labels = np.random.default_rng(seed).integers(0, 5, 60)
    for parts in (
        dirichlet(labels, clients, np.random.default_rng(seed), alpha),
        iid(labels, clients, np.random.default_rng(seed)),
        by_shards(labels, clients, np.random.default_rng(seed), 1 + seed % 3),
    ):
        assert len(parts) == clients
        assert sorted(np.concatenate(parts).tolist()) == list(range(60))
        assert min(map(len, parts)) >= 1


def test_a_smaller_alpha_is_more_heterogeneous():
    labels = np.repeat(np.arange(10), 500)

    def largest_share(alpha):
        parts = dirichlet(labels, 20, np.random.default_rng(0), alpha)
        return np.mean([np.bincount(labels[p]).max() / len(p) for p in parts])

    assert largest_share(0.1) > largest_share(0.3) > largest_share(10) > 0.1


def test_an_empty_client_takes_an_example_from_the_largest():
    """With a tiny alpha nearly all clients start with nothing."""
    labels = np.zeros(40, int)
    parts = dirichlet(labels, 20, np.random.default_rng(0), 0.001)
    assert min(map(len, parts)) == 1
    assert sorted(map(len, parts))[-1] >= 20


@pytest.mark.parametrize("alpha", [0.1, 0.3, 10])
def test_the_capped_partition_is_as_skewed_in_labels_but_less_in_sizes(alpha):
    labels = np.repeat(np.arange(10), 500)
    free, capped = (rule(labels, 50, np.random.default_rng(0), alpha) for rule in (dirichlet, dirichlet_capped))
    assert sorted(np.concatenate(capped).tolist()) == list(range(5000))
    assert min(map(len, capped)) >= 10
    assert np.std([len(p) for p in capped]) < np.std([len(p) for p in free])
    for part in capped:  # without its last class, a client has less than its even share
        assert len(part) - np.bincount(labels[part], minlength=10)[labels[part].max()] < 100


def test_a_capped_partition_of_very_little_data_leaves_nobody_empty():
    parts = dirichlet_capped(np.zeros(100, int), 40, np.random.default_rng(0), 0.001)
    assert min(map(len, parts)) >= 1
    assert sorted(np.concatenate(parts).tolist()) == list(range(100))


def test_shards_give_few_labels():
    labels = np.repeat(np.arange(10), 100)
    parts = by_shards(labels, 50, np.random.default_rng(0), 2)
    assert max(len(set(labels[part])) for part in parts) <= 4
    assert {len(part) for part in parts} == {20}


def test_natural_partition():
    parts = natural(["b", "a", "b", "c"])
    assert {owner: part.tolist() for owner, part in parts.items()} == {"b": [0, 2], "a": [1], "c": [3]}


def test_impossible_partitions():
    with pytest.raises(ValueError, match="too few"):
        iid(np.zeros(3), 4, np.random.default_rng(0))
    with pytest.raises(ValueError, match="alpha"):
        dirichlet(np.zeros(3), 2, np.random.default_rng(0), 0.0)
    with pytest.raises(ValueError, match="shards"):
        by_shards(np.zeros(3), 2, np.random.default_rng(0), 0)


def test_digits_are_those_of_scikit_learn_however_they_are_read(monkeypatch):
    digits = import_module("fadas.tasks.digits")  # there is a function of that name
    own = digits._load()
    monkeypatch.setattr(digits, "find_spec", lambda name: None)
    theirs = digits._load()
    assert [(one.dtype.kind, one.shape) for one in own] == [("f", (1797, 64)), ("i", (1797,))]
    assert all(np.array_equal(one, other) for one, other in zip(own, theirs, strict=True))


def test_digits():
    task = TASKS["digits"](clients=50, seed=1)
    assert sum(task.sizes) + len(task.test[1]) == 1797
    assert len(task.test[1]) == 359
    other = TASKS["digits"](clients=50, seed=2)
    assert other.sizes != task.sizes
    assert torch.equal(other.test[0], task.test[0]), "the test set does not depend on the seed"
    assert float(task.clients[0][0].max()) <= 1.0


def test_validation_data_come_from_the_training_data():
    full, held = TASKS["digits"](seed=1), TASKS["digits"](seed=1, validation=0.25)

    def rows(*parts):
        return {tuple(row) for part in parts for row in part[0].tolist()}

    assert len(held.test[1]) == round(0.25 * 1438)
    assert sum(held.sizes) + len(held.test[1]) == sum(full.sizes)
    assert rows(held.test, *held.clients) == rows(*full.clients)
    assert not rows(held.test) & rows(full.test)
    with pytest.raises(ValueError, match="held-out"):
        TASKS["digits"](validation=1.5)


def settings_of(name, data):
    """What a task needs beyond its defaults to run on the tests' own small data."""
    if name.startswith("cifar"):
        return {"verify": False, "model": "cnn"}
    if name == "files":
        return {"path": str(data / "files"), "model": "helpers.networks:TinyNet"}
    return {} if name == "digits" else {"encoder": "tiny", "max_length": 20}


@pytest.mark.parametrize("name", TASKS)
def test_contract(name, data):
    """Every task: as many clients as asked for, none empty, seeded initialisation, metrics with an accuracy."""
    options = settings_of(name, data)
    if "seed" in inspect.signature(TASKS[name]).parameters:
        options["seed"] = 3
    task = TASKS[name](clients=7, **options)
    assert len(task.clients) == 7
    assert task.sizes == [len(task.clients[c][-1]) for c in range(7)]
    assert min(task.sizes) > 0
    one, two, other = task.module(5), task.module(5), task.module(6)
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), two.parameters(), strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))
    metrics = task.evaluate(one)
    assert 0 <= metrics["accuracy"] <= 1
    *inputs, targets = task.clients[0]
    generator = torch.Generator().manual_seed(0)
    assert task.loss(one(*task.prepare(inputs, generator)), targets).shape == (task.sizes[0],)
    held = TASKS[name](clients=7, **options, validation=0.3)
    assert sum(held.sizes) + len(held.test[-1]) == sum(task.sizes)


def test_evaluation_in_chunks_is_the_same():
    task = TASKS["digits"](clients=5)
    module = task.module()
    whole, parts = task.evaluate(module, chunk=10**6), task.evaluate(module, chunk=7)
    assert whole == pytest.approx(parts, rel=1e-6)
    assert module.training is False


def test_a_given_module_is_copied():
    module = nn.Linear(2, 2)
    task = Task(module, [(torch.zeros(1, 2), torch.zeros(1).long())])
    copy = task.module()
    assert copy is not module
    assert torch.equal(copy.weight, module.weight)
    assert task.evaluate(copy) == {}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ((torch.zeros(0, 2), torch.zeros(0)), "client 1 has no examples"),
        (TensorDataset(torch.zeros(0, 2), torch.zeros(0)), "client 1 has no examples"),
        ((torch.zeros(3, 2), torch.zeros(2)), "client 1: expected"),
        ((torch.zeros(3, 2),), "client 1: expected"),
    ],
)
def test_bad_client_data(data, message):
    with pytest.raises(ValueError, match=message):
        Task(nn.Linear(2, 2), [(torch.zeros(1, 2), torch.zeros(1)), data])


@pytest.mark.parametrize(
    ("outputs", "targets"), [((8, 1), (8,)), ((8, 1), (8, 1)), ((8, 2), (8, 1)), ((8,), (8,)), ((8, 3, 5), (8,))]
)
def test_an_accuracy_of_what_has_none_is_an_error(outputs, targets):
    """One logit, or labels in a column: torch would compare something, and call it a number."""
    with pytest.raises(ValueError, match="an output per class and a label per example"):
        accuracy(torch.randn(outputs), torch.zeros(targets, dtype=torch.int64))


def test_the_accuracy_of_every_pixel():
    outputs = torch.zeros(2, 3, 4, 4)
    outputs[:, 1] = 1.0
    assert accuracy(outputs, torch.ones(2, 4, 4, dtype=torch.int64)) == 1.0
