"""A share of each client's examples for testing or validation."""

from collections.abc import Sequence

import numpy as np
import torch

from fadas.rng import HOLDOUT
from fadas.tasks.partition import hold_out_tests, share_of, split_off
from fadas.tasks.subsets import Data, Rows, Subsets


def hold_out(clients: Sequence[Data], share: float, name: str) -> tuple[Sequence[Data], Data]:
    """Take a share of each client's examples and pool it. Return (the rest of each client, the pool).

    A client with too few examples keeps them.

    Args:
        clients: The clients' data.
        share: The share.
        name: What it is for: "validation" or "test", whose draws differ.
    """
    sizes = (
        [len(part) for part in clients.parts] if isinstance(clients, Subsets) else [len(data[-1]) for data in clients]
    )
    split = {client: _split(client, size, share, name) for client, size in enumerate(sizes)}
    split = {client: pair for client, pair in split.items() if pair}
    if not split:
        raise ValueError(f"{name} ({share}) splits no client's examples into two parts; choose another share")
    if isinstance(clients, Subsets):
        kept = [part[split[client][0]] if client in split else part for client, part in enumerate(clients.parts)]
        taken = [clients.parts[client][rows] for client, (_, rows) in split.items()]
        return clients.with_parts(kept), clients.rows(torch.cat(taken))
    kept_data = [
        [column[split[client][0]] for column in data] if client in split else data
        for client, data in enumerate(clients)
    ]
    held_out = [[column[rows] for column in clients[client]] for client, (_, rows) in split.items()]
    return kept_data, [torch.cat(columns) for columns in zip(*held_out, strict=True)]


def _split(client: int, size: int, share: float, name: str) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the positions that a client keeps, and those that it gives; None if it has too few examples."""
    if not 0 < share_of(size, share, name) < size:
        return None
    words = [client, HOLDOUT] if name == "validation" else [client, HOLDOUT, 1]
    return split_off(size, share, np.random.default_rng(words))


def hold_out_own(clients: Sequence[Data], share: float | None) -> tuple[Sequence[Data], Sequence[Data] | None]:
    """Take a share of each client's examples as its own test data. Return (the rest, these test data).

    Args:
        clients: The clients' data.
        share: The share. None: nothing is taken.
    """
    if isinstance(clients, Subsets):
        parts, own = hold_out_tests(clients.parts, share)
        return (clients, None) if own is None else (clients.with_parts(parts), clients.with_parts(own))
    parts, own = hold_out_tests([torch.arange(len(data[-1])) for data in clients], share)
    if own is None:
        return clients, None
    return _rows_of(clients, parts), _rows_of(clients, own)


def _rows_of(clients: Sequence[Data], parts: Sequence[torch.Tensor]) -> list[Data]:
    return [[column[rows] for column in data] for data, rows in zip(clients, parts, strict=True)]


def gathered(data: Data | None) -> Data | None:
    """Return rows of a data set as tensors, unless the data set stays on disk."""
    return list(data) if isinstance(data, Rows) and not data.mapped else data
