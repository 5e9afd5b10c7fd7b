"""Partitions of a data set over clients: one array of example indices per client.

Whatever the rule, every example goes to exactly one client and no client is empty: one that got nothing takes an
example from the largest client.
"""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch

Kind = Literal["dirichlet", "dirichlet-capped", "iid", "shards"]


def deal(
    labels: np.ndarray, clients: int, rng: np.random.Generator, kind: Kind, alpha: float, shards: int
) -> list[torch.Tensor]:
    """The partition that a task's settings ask for."""
    if clients < 1:
        raise ValueError(f"clients must be at least 1, not {clients}")
    if kind == "dirichlet":
        parts = dirichlet(labels, clients, rng, alpha)
    elif kind == "dirichlet-capped":
        parts = dirichlet_capped(labels, clients, rng, alpha)
    elif kind == "shards":
        parts = by_shards(labels, clients, rng, shards)
    else:
        parts = iid(labels, clients, rng)
    return [torch.from_numpy(np.sort(part)) for part in parts]


def dirichlet(labels: np.ndarray, clients: int, rng: np.random.Generator, alpha: float) -> list[np.ndarray]:
    """Each class is dealt out in proportions drawn from Dirichlet(alpha) over the clients: smaller is more skewed."""
    if not 0 < alpha < np.inf:
        raise ValueError(f"alpha must be positive, not {alpha}")
    parts: list[list[np.ndarray]] = [[] for _ in range(clients)]
    for label in np.unique(labels):
        examples = rng.permutation(np.flatnonzero(labels == label))
        cuts = (np.cumsum(rng.dirichlet(np.full(clients, alpha)))[:-1] * len(examples)).round().astype(int)
        for part, chunk in zip(parts, np.split(examples, cuts), strict=True):
            part.append(chunk)
    return _never_empty([np.concatenate(part) for part in parts])


def dirichlet_capped(
    labels: np.ndarray, clients: int, rng: np.random.Generator, alpha: float, smallest: int = 10
) -> list[np.ndarray]:
    """As `dirichlet`, but a client that has its even share already gets nothing of the classes that follow.

    Drawn anew until every client has at least `smallest` examples; where a thousand draws do not give that, the best
    of them. This is how the authors of FedMA and FedNova deal CIFAR-10, whom the paper follows.
    """
    if not 0 < alpha < np.inf:
        raise ValueError(f"alpha must be positive, not {alpha}")
    share, smallest = len(labels) / clients, min(smallest, len(labels) // (2 * clients))
    best, most = [], -1
    for _ in range(1000 if len(labels) > 1000 else 50):
        parts: list[list[np.ndarray]] = [[] for _ in range(clients)]
        sizes = np.zeros(clients, int)
        for label in np.unique(labels):
            examples = rng.permutation(np.flatnonzero(labels == label))
            weights = rng.dirichlet(np.full(clients, alpha)) * (sizes < share)
            if not weights.sum() > 0:  # all that the draw favours are full: evenly to those that are not
                weights = (sizes < share).astype(float)
            cuts = (np.cumsum(weights / weights.sum())[:-1] * len(examples)).round().astype(int)
            for part, chunk in zip(parts, np.split(examples, cuts), strict=True):
                part.append(chunk)
            sizes = np.array([sum(map(len, part)) for part in parts])
        if sizes.min() > most:
            best, most = [np.concatenate(part) for part in parts], int(sizes.min())
        if most >= smallest:
            break
    return _never_empty(best)


def by_shards(labels: np.ndarray, clients: int, rng: np.random.Generator, shards: int) -> list[np.ndarray]:
    """Sorted by label and cut into `shards` pieces per client, dealt out at random: few labels for each."""
    if shards < 1:
        raise ValueError(f"shards must be at least 1, not {shards}")
    order = rng.permutation(len(labels))
    pieces = np.array_split(order[np.argsort(labels[order], kind="stable")], clients * shards)
    hands = rng.permutation(clients * shards).reshape(clients, shards)
    return _never_empty([np.concatenate([pieces[piece] for piece in hand]) for hand in hands])


def iid(labels: np.ndarray, clients: int, rng: np.random.Generator) -> list[np.ndarray]:
    """Shuffled and dealt out evenly."""
    return _never_empty(np.array_split(rng.permutation(len(labels)), clients))


def natural(owners: Sequence[Any]) -> dict[Any, np.ndarray]:
    """By a column that names each example's client: the examples of each, in order of first appearance."""
    parts: dict[Any, list[int]] = {}
    for example, owner in enumerate(owners):
        parts.setdefault(owner, []).append(example)
    return {owner: np.array(part) for owner, part in parts.items()}


def _never_empty(parts: list[np.ndarray]) -> list[np.ndarray]:
    total = sum(len(part) for part in parts)
    if total < len(parts):
        raise ValueError(f"{total} examples are too few for {len(parts)} clients")
    for client, part in enumerate(parts):
        if not len(part):
            largest = max(range(len(parts)), key=lambda c: len(parts[c]))
            parts[client], parts[largest] = parts[largest][-1:], parts[largest][:-1]
    return parts


def share_of(examples: int, share: float) -> int:
    """How many of the examples a share is."""
    if not 0 < share < 1:
        raise ValueError(f"a held-out share must lie between 0 and 1, not {share}")
    return round(examples * share)


def split_off(examples: int, share: float, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """A random share of the examples, and the rest: (rest, share)."""
    order, count = rng.permutation(examples), share_of(examples, share)
    if not 0 < count < examples:
        raise ValueError(f"a share of {share} of {examples} examples leaves nothing on one side")
    return np.sort(order[count:]), np.sort(order[:count])
