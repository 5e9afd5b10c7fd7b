"""Bring your own data: a folder with a file per client, or a Hugging Face data set with a column of clients."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from fadas.registry import lookup
from fadas.rng import HOLDOUT
from fadas.tasks.partition import natural, share_of, split_off
from fadas.tasks.task import Data, Loss, Task, cross_entropy


def files(path: str, model: str, clients: int, validation: float = 0.0) -> Task:
    """A folder with one file per client, and a network of your own.

    Every `.npz` or `.safetensors` file in `path` is a client's, in the order of their names, except `test.*`: the
    server's test data. Each holds the arrays x and y. `model` names a class or function, "package.module:Name".
    """
    folder = Path(path)
    found = sorted(file for file in folder.glob("*") if file.suffix in (".npz", ".safetensors"))
    test = [file for file in found if file.stem == "test"]
    owners = [file for file in found if file.stem != "test"]
    if len(owners) != clients:
        raise ValueError(f"{folder} holds the files of {len(owners)} clients, not {clients}")
    if len(test) > 1:
        raise ValueError(f"{folder} holds several test files")
    data = [_load(file) for file in owners]
    held_out = _load(test[0]) if test else None
    if validation:
        data, held_out = _hold_out(data, validation)
    return Task(lookup({}, "model", model), data, test=held_out)


def _load(file: Path) -> tuple[Tensor, Tensor]:
    try:
        if file.suffix == ".npz":
            with np.load(file, allow_pickle=False) as arrays:
                tensors = {name: torch.from_numpy(arrays[name]) for name in ("x", "y") if name in arrays}
        else:
            tensors = load_file(file)
    except Exception as error:  # numpy, zipfile and safetensors each have their own for a broken file
        raise ValueError(f"{file} cannot be read: {str(error).splitlines()[0]}") from None
    if missing := {"x", "y"} - tensors.keys():
        raise ValueError(f"{file} has no array {min(missing)!r}; it needs x and y")
    x, y = (column.float() if column.is_floating_point() else column for column in (tensors["x"], tensors["y"]))
    if not y.is_floating_point():
        return x, y.long()
    if y.dim() < 2 or y.shape[1] < 2:  # the loss is the cross-entropy
        raise ValueError(
            f"{file}: y holds {list(y.shape)} floats; labels must be whole numbers, or a probability for each class "
            "(for a loss of your own, name a function that returns a fadas.Task instead of files)"
        )
    return x, y


def _hold_out(data: Sequence[Data], share: float) -> tuple[list[Data], Data]:
    """A share of the clients' examples taken away and pooled. Who has too few for that keeps them."""
    kept: list[Data] = []
    taken: list[Data] = []
    for client, columns in enumerate(data):
        size = len(columns[-1])
        if not 0 < share_of(size, share) < size:
            kept.append(columns)
            continue
        rest, away = split_off(size, share, np.random.default_rng([client, HOLDOUT]))
        kept.append([column[rest] for column in columns])
        taken.append([column[away] for column in columns])
    if not taken:
        raise ValueError(f"a held-out share of {share} leaves every client with nothing on one side")
    return kept, [torch.cat(columns) for columns in zip(*taken, strict=True)]


Model = nn.Module | Callable[[], nn.Module]


def from_huggingface(
    model: Model,
    dataset: Any,
    client: str,
    inputs: Sequence[str],
    target: str,
    test: Any = None,
    loss: Loss = cross_entropy,
) -> Task:
    """A task from a Hugging Face `datasets.Dataset`: the column `client` says whose each row is.

    `inputs` and `target` name columns of numbers of one shape, e.g. tokenised and padded text.
    """
    columns = _columns(dataset, [*inputs, target])
    parts = natural(dataset[client])
    data = [[column[torch.from_numpy(rows)] for column in columns] for rows in parts.values()]
    return Task(model, data, loss, None if test is None else _columns(test, [*inputs, target]))


def _columns(dataset: Any, names: Sequence[str]) -> list[Tensor]:
    table = dataset.with_format("torch")
    return [torch.as_tensor(table[name][:]) for name in names]
