"""Handwritten digits (8x8 pixels, 1,797 of them), which scikit-learn ships: real data without a download."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from fadas.rng import HOLDOUT, PARTITION
from fadas.tasks.partition import Kind, deal, split_off
from fadas.tasks.task import Subsets, Task


def digits(
    clients: int = 50,
    partition: Kind = "dirichlet",
    alpha: float = 0.3,
    shards: int = 2,
    hidden: int = 64,
    validation: float = 0.0,
    seed: int = 0,
) -> Task:
    """Handwritten digits and a two-layer network: real data that scikit-learn ships.

    A fifth of the images, the same for every seed, is the test set. `validation` holds out that share of the training
    images and measures on it instead, for tuning.
    """
    if hidden < 1:
        raise ValueError(f"hidden must be at least 1, not {hidden}")
    pixels, labels = _load()
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

    return Task(model, Subsets(tensors(train), parts), test=tensors(test))


def _load() -> tuple[np.ndarray, np.ndarray]:
    """Pixels and labels, from scikit-learn's own file where it is: importing all of scikit-learn takes a second."""
    found = find_spec("sklearn")
    for place in (found and found.submodule_search_locations) or ():
        path = Path(place) / "datasets" / "data" / "digits.csv.gz"
        if path.exists():
            table = np.loadtxt(path, delimiter=",")
            return table[:, :-1], table[:, -1].astype(np.int64)
    from sklearn.datasets import load_digits

    bunch: Any = load_digits()
    return bunch.data, bunch.target
