"""Handwritten digits: 1,797 images of 8x8 pixels. scikit-learn ships them, so nothing is downloaded."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from fadas.rng import HOLDOUT, PARTITION
from fadas.tasks.partition import Kind, deal, hold_out_tests, split_off
from fadas.tasks.task import Subsets, Task
from fadas.validate import MOST_WIDTH, at_least, at_most


def digits(
    clients: int = 50,
    partition: Kind = "dirichlet",
    alpha: float = 0.3,
    shards: int = 2,
    hidden: int = 64,
    validation: float = 0.0,
    client_test: float | None = None,
    seed: int = 0,
) -> Task:
    """Handwritten digits, shipped with scikit-learn, and a two-layer network.

    A fifth of the images is the test set. It is the same for every seed.

    Args:
        clients: The number of clients.
        partition: How the training examples are divided among the clients: "dirichlet" (skewed labels and sizes),
            "dirichlet-capped" (sizes differ less), "iid" (equal shares) or "shards" (few labels per client).
        alpha: The concentration of the Dirichlet partitions. Smaller is more skewed.
        shards: The pieces per client of the partition "shards".
        hidden: The width of the hidden layer.
        validation: Hold out this share of the training images and measure on it instead of the test images, for tuning.
        client_test: Hold out this share of each client's training examples as its own test data, see
            `run.clients_eval_every`. None: clients have none.
        seed: The seed of the partition.

    Example:
        >>> task = digits(clients=20, alpha=0.1, hidden=128, validation=0.2, client_test=0.2)
        >>> task = digits(partition="shards", shards=3)
    """
    at_least(1, hidden=hidden)
    at_most(MOST_WIDTH, hidden=hidden)
    pixels, labels = _load_digits()
    images = (pixels / 16.0).astype(np.float32)
    train, test = split_off(len(labels), 0.2, np.random.default_rng([0, HOLDOUT]))
    if validation:
        kept, held_out = split_off(len(train), validation, np.random.default_rng([1, HOLDOUT]))
        train, test = train[kept], train[held_out]
    parts = deal(labels[train], clients, np.random.default_rng([seed, PARTITION]), partition, alpha, shards)

    def tensors(rows: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.from_numpy(images[rows]), torch.from_numpy(labels[rows]).long()

    def model() -> nn.Module:
        return nn.Sequential(nn.Linear(64, hidden), nn.ReLU(), nn.Linear(hidden, 10))

    parts, own = hold_out_tests(parts, client_test)
    data = tensors(train)
    return Task(model, Subsets(data, parts), test=tensors(test), client_test=Subsets(data, own) if own else None)


def _load_digits() -> tuple[np.ndarray, np.ndarray]:
    """Return pixels and labels, if possible from scikit-learn's own file: importing scikit-learn takes a second."""
    spec = find_spec("sklearn")
    for folder in (spec and spec.submodule_search_locations) or ():
        path = Path(folder) / "datasets" / "data" / "digits.csv.gz"
        if path.exists():
            table = np.loadtxt(path, delimiter=",")
            return table[:, :-1], table[:, -1].astype(np.int64)
    from sklearn.datasets import load_digits

    bunch: Any = load_digits()
    return bunch.data, bunch.target
