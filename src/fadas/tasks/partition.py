"""Partitions of a data set over clients: one array of example indices per client."""

from collections.abc import Callable

import numpy as np

Partition = Callable[[np.ndarray, int, np.random.Generator], list[np.ndarray]]


def dirichlet(labels: np.ndarray, clients: int, rng: np.random.Generator, alpha: float = 0.3) -> list[np.ndarray]:
    """For each class, its examples are dealt out in proportions drawn from Dirichlet(alpha) over the clients.

    A client that got nothing takes one example from the largest client.
    """
    if not alpha > 0:
        raise ValueError(f"alpha must be positive, not {alpha}")
    parts: list[list[int]] = [[] for _ in range(clients)]
    for label in np.unique(labels):
        examples = rng.permutation(np.flatnonzero(labels == label))
        cuts = (np.cumsum(rng.dirichlet(np.full(clients, alpha)))[:-1] * len(examples)).round().astype(int)
        for part, chunk in zip(parts, np.split(examples, cuts), strict=True):
            part.extend(chunk.tolist())
    return _never_empty([np.array(part, dtype=int) for part in parts])


def iid(labels: np.ndarray, clients: int, rng: np.random.Generator) -> list[np.ndarray]:
    """Shuffled and dealt out evenly."""
    return _never_empty(np.array_split(rng.permutation(len(labels)), clients))


def _never_empty(parts: list[np.ndarray]) -> list[np.ndarray]:
    total = sum(len(part) for part in parts)
    if total < len(parts):
        raise ValueError(f"{total} examples are too few for {len(parts)} clients")
    for client, part in enumerate(parts):
        if not len(part):
            largest = max(range(len(parts)), key=lambda c: len(parts[c]))
            parts[client], parts[largest] = parts[largest][-1:], parts[largest][:-1]
    return parts
