"""Partitions of a data set over clients: one array of example indices per client. Also `fadas.partition`.

| `task.partition`   | function           | what a client gets                                           |
|--------------------|--------------------|--------------------------------------------------------------|
| "dirichlet"        | `dirichlet`        | a random proportion of each class                            |
| "dirichlet-capped" | `dirichlet_capped` | the same, with sizes that differ far less                    |
| "shards"           | `by_shards`        | a few pieces of the examples sorted by label                 |
| "iid"              | `iid`              | an equal share of the shuffled examples                      |
|                    | `natural`          | the examples that a column assigns to it                     |

Every rule assigns each example to exactly one client. No client is empty: a client without examples takes one from the
largest client. The same seed gives the same partition as in the tasks that come with fadas.
"""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch

from fadas.rng import HOLDOUT, PARTITION
from fadas.validate import InvalidValue, at_least, positive

Kind = Literal["dirichlet", "dirichlet-capped", "iid", "shards"]

__all__ = ["by_shards", "deal", "dirichlet", "dirichlet_capped", "iid", "natural"]


def dirichlet(labels: Any, clients: int, alpha: float, seed: int = 0) -> list[np.ndarray]:
    """Divide each class in proportions drawn from Dirichlet(alpha) over the clients.

    Args:
        labels: The label of each example: an array, a tensor or a list.
        clients: The number of clients.
        alpha: The concentration. Smaller is more skewed.
        seed: The seed of the draws.

    Returns:
        For each client the sorted indices of its examples.

    Example:
        >>> parts = fadas.partition.dirichlet(labels, clients=20, alpha=0.3, seed=1)
        >>> task = fadas.Task(model, [(inputs[part], labels[part]) for part in parts])
    """
    return _sorted(_dirichlet(*_begin(labels, clients, seed), alpha))


def dirichlet_capped(labels: Any, clients: int, alpha: float, seed: int = 0, smallest: int = 10) -> list[np.ndarray]:
    """Like `dirichlet`, but a client that has an equal share of the examples gets nothing of the next classes.

    The draw is repeated until every client has at least `smallest` examples. If 1000 draws fail (50 for a data set of
    at most 1000 examples), the draw with the largest smallest client is used. The authors of FedMA and FedNova divide
    CIFAR-10 in this way, and the paper follows them.

    Args:
        labels: The label of each example: an array, a tensor or a list.
        clients: The number of clients.
        alpha: The concentration. Smaller is more skewed.
        seed: The seed of the draws.
        smallest: The smallest size of a client. At most half of an equal share is asked for.

    Returns:
        For each client the sorted indices of its examples.

    Example:
        >>> parts = fadas.partition.dirichlet_capped(labels, clients=20, alpha=0.1, seed=1)
    """
    return _sorted(_dirichlet_capped(*_begin(labels, clients, seed), alpha, smallest))


def by_shards(labels: Any, clients: int, shards: int = 2, seed: int = 0) -> list[np.ndarray]:
    """Sort by label, cut into `shards` pieces per client, and assign the pieces at random. Clients have few labels.

    Args:
        labels: The label of each example: an array, a tensor or a list.
        clients: The number of clients.
        shards: The number of pieces per client.
        seed: The seed of the draws.

    Returns:
        For each client the sorted indices of its examples.

    Example:
        >>> parts = fadas.partition.by_shards(labels, clients=20, shards=2, seed=1)
    """
    return _sorted(_by_shards(*_begin(labels, clients, seed), shards))


def iid(labels: Any, clients: int, seed: int = 0) -> list[np.ndarray]:
    """Shuffle the examples, and divide them equally.

    Args:
        labels: The label of each example: an array, a tensor or a list. Only their number counts.
        clients: The number of clients.
        seed: The seed of the shuffling.

    Returns:
        For each client the sorted indices of its examples.

    Example:
        >>> parts = fadas.partition.iid(labels, clients=20, seed=1)
    """
    return _sorted(_iid(*_begin(labels, clients, seed)))


def deal(
    labels: np.ndarray, clients: int, rng: np.random.Generator, kind: Kind, alpha: float, shards: int
) -> list[torch.Tensor]:
    """Return the partition that a task's settings ask for: the sorted example indices of each client.

    Args:
        labels: The label of each example.
        clients: The number of clients.
        rng: The generator of the random draws.
        kind: The name of the partition.
        alpha: The concentration of the Dirichlet partitions. Smaller is more skewed.
        shards: The pieces per client of the partition "shards".

    Example:
        >>> parts = deal(labels, 20, np.random.default_rng(seed), "dirichlet", alpha=0.3, shards=2)
    """
    _require_examples(labels, clients)
    if kind == "dirichlet":
        parts = _dirichlet(labels, clients, rng, alpha)
    elif kind == "dirichlet-capped":
        parts = _dirichlet_capped(labels, clients, rng, alpha)
    elif kind == "shards":
        parts = _by_shards(labels, clients, rng, shards)
    else:
        parts = _iid(labels, clients, rng)
    return [torch.from_numpy(part) for part in _sorted(parts)]


def _begin(labels: Any, clients: int, seed: int) -> tuple[np.ndarray, int, np.random.Generator]:
    """Return the labels as an array, the number of clients, and the generator that tasks use with this seed."""
    labels = np.asarray(labels)
    if labels.ndim != 1:
        raise ValueError(f"labels must have one entry per example, got an array of shape {list(labels.shape)}")
    at_least(0, seed=seed)
    _require_examples(labels, clients)
    return labels, clients, np.random.default_rng([seed, PARTITION])


def _require_examples(labels: np.ndarray, clients: int) -> None:
    """Refuse more clients than there are examples."""
    at_least(1, clients=clients)
    _at_most_examples(len(labels), clients=clients)


def _dirichlet(labels: np.ndarray, clients: int, rng: np.random.Generator, alpha: float) -> list[np.ndarray]:
    positive(alpha=alpha)
    parts: list[list[np.ndarray]] = [[] for _ in range(clients)]
    for label in np.unique(labels):
        examples = rng.permutation(np.flatnonzero(labels == label))
        cuts = (np.cumsum(rng.dirichlet(np.full(clients, alpha)))[:-1] * len(examples)).round().astype(int)
        for part, chunk in zip(parts, np.split(examples, cuts), strict=True):
            part.append(chunk)
    return _fill_empty([np.concatenate(part) for part in parts])


def _dirichlet_capped(
    labels: np.ndarray, clients: int, rng: np.random.Generator, alpha: float, smallest: int = 10
) -> list[np.ndarray]:
    positive(alpha=alpha)
    share, smallest = len(labels) / clients, min(smallest, len(labels) // (2 * clients))
    best_parts, best_smallest = [], -1
    for _ in range(1000 if len(labels) > 1000 else 50):
        parts: list[list[np.ndarray]] = [[] for _ in range(clients)]
        sizes = np.zeros(clients, int)
        for label in np.unique(labels):
            examples = rng.permutation(np.flatnonzero(labels == label))
            weights = rng.dirichlet(np.full(clients, alpha)) * (sizes < share)
            if not weights.sum() > 0:  # every client with a weight is full: divide equally among the others
                weights = (sizes < share).astype(float)
            cuts = (np.cumsum(weights / weights.sum())[:-1] * len(examples)).round().astype(int)
            for part, chunk in zip(parts, np.split(examples, cuts), strict=True):
                part.append(chunk)
            sizes = np.array([sum(map(len, part)) for part in parts])
        if sizes.min() > best_smallest:
            best_parts, best_smallest = [np.concatenate(part) for part in parts], int(sizes.min())
        if best_smallest >= smallest:
            break
    return _fill_empty(best_parts)


def _by_shards(labels: np.ndarray, clients: int, rng: np.random.Generator, shards: int) -> list[np.ndarray]:
    at_least(1, shards=shards)
    _at_most_examples(len(labels), shards=shards)
    order = rng.permutation(len(labels))
    pieces = np.array_split(order[np.argsort(labels[order], kind="stable")], clients * shards)
    assigned = rng.permutation(clients * shards).reshape(clients, shards)
    return _fill_empty([np.concatenate([pieces[index] for index in indices]) for indices in assigned])


def _iid(labels: np.ndarray, clients: int, rng: np.random.Generator) -> list[np.ndarray]:
    return _fill_empty(np.array_split(rng.permutation(len(labels)), clients))


def _sorted(parts: list[np.ndarray]) -> list[np.ndarray]:
    return [np.sort(part) for part in parts]


def natural(owners: Sequence[Any] | np.ndarray) -> dict[Any, np.ndarray]:
    """Return the example indices of each client, by a column that names the clients.

    Args:
        owners: The client that holds each example: a name or a number. An array takes far less time than a list.

    Returns:
        The sorted indices by owner, in order of first appearance. `list(parts.values())` are those of clients 0, 1, ...

    Example:
        >>> natural(["clinic-b", "clinic-a", "clinic-b"])
        {'clinic-b': array([0, 2]), 'clinic-a': array([1])}
    """
    if isinstance(owners, torch.Tensor):
        owners = owners.numpy()
    if isinstance(owners, np.ndarray) and owners.dtype != object:
        names, first, codes = np.unique(owners, return_index=True, return_inverse=True)
        pieces = np.split(np.argsort(codes, kind="stable"), np.cumsum(np.bincount(codes))[:-1])
        return {names[code].item(): pieces[code] for code in np.argsort(first)}
    parts: dict[Any, list[int]] = {}
    for example, owner in enumerate(owners):
        parts.setdefault(owner, []).append(example)
    return {owner: np.array(part) for owner, part in parts.items()}


def _fill_empty(parts: list[np.ndarray]) -> list[np.ndarray]:
    """Give each empty client an example of the largest client."""
    for client, part in enumerate(parts):
        if not len(part):
            largest = max(range(len(parts)), key=lambda c: len(parts[c]))
            parts[client], parts[largest] = parts[largest][-1:], parts[largest][:-1]
    return parts


def _at_most_examples(examples: int, **values: int) -> None:
    """Refuse more clients, or more pieces per client, than there are examples."""
    for name, value in values.items():
        if value > examples:
            raise ValueError(f"{name} must be at most the number of training examples ({examples}), got {value}")


def share_of(examples: int, share: float, name: str = "validation") -> int:
    """Return how many of the examples a held-out share is. Messages call it by its name."""
    if not 0 < share < 1:
        raise ValueError(f"{name} must be above 0 and below 1, got {share}")
    return round(examples * share)


def split_off(examples: int, share: float, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Split off a random share of the examples. Return the indices of (the rest, the share)."""
    order, count = rng.permutation(examples), share_of(examples, share)
    if not 0 < count < examples:
        raise ValueError(f"validation ({share}) of {examples} examples leaves one side empty; choose another share")
    return np.sort(order[count:]), np.sort(order[:count])


def hold_out_tests(
    parts: Sequence[torch.Tensor], share: float | None
) -> tuple[list[torch.Tensor], list[torch.Tensor] | None]:
    """Hold out a share of each client's examples for its own test split.

    The same share of the same examples gives the same split. A client with too few examples keeps all of them.

    Args:
        parts: The indices of each client's examples.
        share: The share. None: hold nothing out.

    Returns:
        The indices that each client keeps, and those that it holds out. None for the latter without a share.

    Example:
        >>> parts, tests = hold_out_tests([torch.arange(10), torch.arange(10, 15)], share=0.2)
        >>> [len(part) for part in tests]
        [2, 1]
    """
    if share is None:
        return [*parts], None
    if not 0 < share < 1:
        raise InvalidValue("client_test", f"must be above 0 and below 1, got {share}")
    kept: list[torch.Tensor] = []
    tests: list[torch.Tensor] = []
    for client, part in enumerate(parts):
        order = torch.from_numpy(np.random.default_rng([2, client, HOLDOUT]).permutation(len(part)))
        count = min(round(len(part) * share), len(part) - 1)
        kept.append(part[order[count:].sort().values])
        tests.append(part[order[:count].sort().values])
    if not any(map(len, tests)):
        raise ValueError(f"client_test ({share}) leaves every client without test examples; choose a larger share")
    return kept, tests
