"""Handwritten digits (8x8 pixels, 1,797 of them), which scikit-learn ships: real data without a download."""

from typing import Literal

import numpy as np
import torch
from torch import nn

from fadas.rng import HOLDOUT, PARTITION
from fadas.tasks.partition import dirichlet, iid
from fadas.tasks.task import Task


def digits(
    clients: int = 50,
    partition: Literal["dirichlet", "iid"] = "dirichlet",
    alpha: float = 0.3,
    hidden: int = 64,
    validation: float = 0.0,
    seed: int = 0,
) -> Task:
    """Handwritten digits, a two-layer network, Dirichlet(alpha) over the labels of the clients.

    A fifth of the images, the same for every seed, is the test set. `validation` holds out that share of the training
    images and measures on it instead, for tuning.
    """
    from sklearn.datasets import load_digits

    if clients < 1 or hidden < 1:
        raise ValueError(f"clients and hidden must be at least 1, not {clients} and {hidden}")
    images, labels = load_digits(return_X_y=True)
    images = (images / 16.0).astype(np.float32)
    train, test = split_off(len(labels), 0.2, np.random.default_rng([0, HOLDOUT]))
    if validation:
        kept, held_out = split_off(len(train), validation, np.random.default_rng([1, HOLDOUT]))
        train, test = train[kept], train[held_out]
    rng = np.random.default_rng([seed, PARTITION])
    deal = (
        dirichlet(labels[train], clients, rng, alpha) if partition == "dirichlet" else iid(labels[train], clients, rng)
    )

    def tensors(rows: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.from_numpy(images[rows]), torch.from_numpy(labels[rows]).long()

    def model() -> nn.Module:
        return nn.Sequential(nn.Linear(64, hidden), nn.ReLU(), nn.Linear(hidden, 10))

    return Task(model, [tensors(train[rows]) for rows in deal], test=tensors(test))


def split_off(examples: int, share: float, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """A random share of the examples, and the rest: (rest, share)."""
    if not 0 < share < 1:
        raise ValueError(f"a held-out share must lie between 0 and 1, not {share}")
    order, count = rng.permutation(examples), round(examples * share)
    return np.sort(order[count:]), np.sort(order[:count])
