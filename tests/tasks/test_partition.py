"""Partitions of one data set among clients."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from fadas.tasks.partition import by_shards, dirichlet, dirichlet_capped, iid, natural


@settings(max_examples=60)
@given(st.integers(1, 30), st.floats(0.01, 10), st.integers(0, 1000))
def test_partition_deals_every_example_once_without_empty_clients(clients, alpha, seed):
    labels = np.random.default_rng(seed).integers(0, 5, 60)
    for parts in (
        dirichlet(labels, clients, np.random.default_rng(seed), alpha),
        iid(labels, clients, np.random.default_rng(seed)),
        by_shards(labels, clients, np.random.default_rng(seed), 1 + seed % 3),
    ):
        assert len(parts) == clients
        assert sorted(np.concatenate(parts).tolist()) == list(range(60))
        assert min(map(len, parts)) >= 1


def test_smaller_alpha_is_more_heterogeneous():
    labels = np.repeat(np.arange(10), 500)

    def find_largest_share(alpha):
        parts = dirichlet(labels, 20, np.random.default_rng(0), alpha)
        return np.mean([np.bincount(labels[p]).max() / len(p) for p in parts])

    assert find_largest_share(0.1) > find_largest_share(0.3) > find_largest_share(10) > 0.1


def test_empty_client_takes_example_from_largest():
    """With a tiny alpha, nearly all clients start empty."""
    labels = np.zeros(40, int)
    parts = dirichlet(labels, 20, np.random.default_rng(0), 0.001)
    assert min(map(len, parts)) == 1
    assert sorted(map(len, parts))[-1] >= 20


@pytest.mark.parametrize("alpha", [0.1, 0.3, 10])
def test_capped_partition_evens_sizes(alpha):
    labels = np.repeat(np.arange(10), 500)
    free, capped = (rule(labels, 50, np.random.default_rng(0), alpha) for rule in (dirichlet, dirichlet_capped))
    assert sorted(np.concatenate(capped).tolist()) == list(range(5000))
    assert min(map(len, capped)) >= 10
    assert np.std([len(p) for p in capped]) < np.std([len(p) for p in free])
    for part in capped:  # without its last class, a client has less than an even share
        assert len(part) - np.bincount(labels[part], minlength=10)[labels[part].max()] < 100


def test_capped_partition_of_little_data_has_no_empty_client():
    parts = dirichlet_capped(np.zeros(100, int), 40, np.random.default_rng(0), 0.001)
    assert min(map(len, parts)) >= 1
    assert sorted(np.concatenate(parts).tolist()) == list(range(100))


def test_shards_give_few_labels():
    labels = np.repeat(np.arange(10), 100)
    parts = by_shards(labels, 50, np.random.default_rng(0), 2)
    assert max(len(set(labels[part])) for part in parts) <= 4
    assert {len(part) for part in parts} == {20}


def test_natural_partition_groups_by_owner():
    parts = natural(["b", "a", "b", "c"])
    assert {owner: part.tolist() for owner, part in parts.items()} == {"b": [0, 2], "a": [1], "c": [3]}


def test_impossible_partitions_are_refused():
    with pytest.raises(ValueError, match=r"at most the number of training examples \(3\), got 4"):
        iid(np.zeros(3), 4, np.random.default_rng(0))
    with pytest.raises(ValueError, match="alpha"):
        dirichlet(np.zeros(3), 2, np.random.default_rng(0), 0.0)
    with pytest.raises(ValueError, match="shards"):
        by_shards(np.zeros(3), 2, np.random.default_rng(0), 0)
