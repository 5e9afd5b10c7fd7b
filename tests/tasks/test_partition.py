"""Partitions of one data set among clients."""

import inspect

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

import fadas
from fadas.tasks import TASKS
from fadas.tasks.partition import by_shards, dirichlet, dirichlet_capped, iid, natural


@settings(max_examples=60)
@given(st.integers(1, 30), st.floats(0.01, 10), st.integers(0, 1000))
def test_partition_deals_every_example_once_without_empty_clients(clients, alpha, seed):
    labels = np.random.default_rng(seed).integers(0, 5, 60)
    for parts in (
        dirichlet(labels, clients, alpha, seed),
        iid(labels, clients, seed),
        by_shards(labels, clients, 1 + seed % 3, seed),
    ):
        assert len(parts) == clients
        assert sorted(np.concatenate(parts).tolist()) == list(range(60))
        assert min(map(len, parts)) >= 1
        assert all((np.diff(part) > 0).all() for part in parts)


def test_smaller_alpha_is_more_heterogeneous():
    labels = np.repeat(np.arange(10), 500)

    def find_largest_share(alpha):
        parts = dirichlet(labels, 20, alpha)
        return np.mean([np.bincount(labels[p]).max() / len(p) for p in parts])

    assert find_largest_share(0.1) > find_largest_share(0.3) > find_largest_share(10) > 0.1


def test_empty_client_takes_example_from_largest():
    """With a tiny alpha, nearly all clients start empty."""
    labels = np.zeros(40, int)
    parts = dirichlet(labels, 20, 0.001)
    assert min(map(len, parts)) == 1
    assert sorted(map(len, parts))[-1] >= 20


@pytest.mark.parametrize("alpha", [0.1, 0.3, 10])
def test_capped_partition_evens_sizes(alpha):
    labels = np.repeat(np.arange(10), 500)
    free, capped = (rule(labels, 50, alpha) for rule in (dirichlet, dirichlet_capped))
    assert sorted(np.concatenate(capped).tolist()) == list(range(5000))
    assert min(map(len, capped)) >= 10
    assert np.std([len(p) for p in capped]) < np.std([len(p) for p in free])
    for part in capped:  # without its last class, a client has less than an even share
        assert len(part) - np.bincount(labels[part], minlength=10)[labels[part].max()] < 100


def test_capped_partition_of_little_data_has_no_empty_client():
    parts = dirichlet_capped(np.zeros(100, int), 40, 0.001)
    assert min(map(len, parts)) >= 1
    assert sorted(np.concatenate(parts).tolist()) == list(range(100))


def test_shards_give_few_labels():
    labels = np.repeat(np.arange(10), 100)
    parts = by_shards(labels, 50, 2)
    assert max(len(set(labels[part])) for part in parts) <= 4
    assert {len(part) for part in parts} == {20}


@pytest.mark.parametrize("kind", ["list", "array", "tensor", "text"])
def test_natural_partition_groups_by_owner(kind):
    owners = {
        "list": ["b", "a", "b", "c"],
        "text": np.array(["b", "a", "b", "c"]),
        "array": np.array([7, 3, 7, 5]),
        "tensor": torch.tensor([7, 3, 7, 5]),
    }[kind]
    names = ["b", "a", "c"] if kind in ("list", "text") else [7, 3, 5]
    parts = natural(owners)
    assert [(owner, part.tolist()) for owner, part in parts.items()] == list(zip(names, [[0, 2], [1], [3]]))


@pytest.mark.parametrize("seed", [0, 7])
@pytest.mark.parametrize(
    ("name", "rule", "options"),
    [
        ("dirichlet", dirichlet, {"alpha": 0.2}),
        ("dirichlet-capped", dirichlet_capped, {"alpha": 0.2}),
        ("shards", by_shards, {"shards": 3}),
        ("iid", iid, {}),
    ],
)
def test_public_partition_equals_that_of_built_in_task(name, rule, options, seed):
    task = TASKS["digits"](clients=12, partition=name, seed=seed, **options)
    labels = task.clients.data[-1]
    for column in (labels, labels.numpy(), labels.tolist()):
        parts = rule(column, 12, seed=seed, **options)
        assert [part.tolist() for part in parts] == [part.tolist() for part in task.clients.parts]
    assert getattr(fadas.partition, rule.__name__) is rule


def test_public_partitions_are_documented():
    for name in fadas.partition.__all__:
        rule = getattr(fadas.partition, name)
        missing = [one for one in inspect.signature(rule).parameters if f"{one}: " not in rule.__doc__]
        assert not missing
        assert "Example" in rule.__doc__


def test_impossible_partitions_are_refused():
    with pytest.raises(ValueError, match=r"at most the number of training examples \(3\), got 4"):
        iid(np.zeros(3), 4)
    with pytest.raises(ValueError, match="alpha"):
        dirichlet(np.zeros(3), 2, 0.0)
    with pytest.raises(ValueError, match="shards must be at least 1"):
        by_shards(np.zeros(3), 2, 0)
    with pytest.raises(ValueError, match=r"shards must be at most .* \(3\), got 4"):
        by_shards(np.zeros(3), 2, 4)
    with pytest.raises(ValueError, match="clients must be at least 1, got 0"):
        dirichlet(np.zeros(3), 0, 0.5)
    with pytest.raises(ValueError, match="seed must be at least 0, got -1"):
        iid(np.zeros(3), 2, -1)
    with pytest.raises(ValueError, match=r"one entry per example, got an array of shape \[3, 2\]"):
        iid(np.zeros((3, 2)), 2)
