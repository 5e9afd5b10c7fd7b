"""Your own data: a folder with one file per client, or a Hugging Face data set with a column that names the client."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from fadas.errors import first_line
from fadas.registry import lookup
from fadas.rng import HOLDOUT
from fadas.tasks.partition import natural, share_of, split_off
from fadas.tasks.task import Data, Loss, Task, cross_entropy


def files(path: str, model: str, clients: int, validation: float = 0.0) -> Task:
    """Your own data in a folder, with one file per client, and your own network.

    The folder holds `.npz` or `.safetensors` files, each with the arrays x and y. The loss is the cross-entropy, so y
    holds labels or a probability for each class. `test.npz` or `test.safetensors` is the server's test data. Every
    other file is one client's data. Clients are numbered in the order of the file names.

    Args:
        path: The folder.
        model: The name of a class or function without arguments that makes the network, "package.module:Name".
        clients: The number of clients. It must equal the number of client files.
        validation: Hold out this share of each client's examples and measure on it instead of the test file, for
            tuning. Clients with too few examples keep all of them.

    Example:
        >>> task = files("hospitals", model="mypackage.networks:Net", clients=12, validation=0.2)
    """
    folder = Path(path)
    found = sorted(file for file in folder.glob("*") if file.suffix in (".npz", ".safetensors"))
    test = [file for file in found if file.stem == "test"]
    owners = [file for file in found if file.stem != "test"]
    if len(owners) != clients:
        raise ValueError(f"clients must equal the number of client files in {folder} ({len(owners)}), got {clients}")
    if len(test) > 1:
        raise ValueError(f"{folder} must hold at most one test file, got {', '.join(file.name for file in test)}")
    data = [_load_columns(file) for file in owners]
    held_out = _load_columns(test[0]) if test else None
    if validation:
        data, held_out = hold_out(data, validation)
    return Task(lookup({}, "model", model), data, test=held_out)


def _load_columns(file: Path) -> tuple[Tensor, Tensor]:
    """Return x and y of a file. Floats become float32, labels int64."""
    try:
        if file.suffix == ".npz":
            with np.load(file, allow_pickle=False) as arrays:
                tensors = {name: torch.from_numpy(arrays[name]) for name in ("x", "y") if name in arrays}
        else:
            tensors = load_file(file)
    except Exception as error:  # NumPy, zipfile and safetensors raise different errors for a broken file
        raise ValueError(f"cannot read {file}: {first_line(error)}") from None
    if missing := {"x", "y"} - tensors.keys():
        raise ValueError(f"{file} has no array {min(missing)!r}; it needs x and y")
    x, y = (column.float() if column.is_floating_point() else column for column in (tensors["x"], tensors["y"]))
    if not y.is_floating_point():
        return x, y.long()
    if y.dim() < 2 or y.shape[1] < 2:  # the loss is the cross-entropy
        raise ValueError(
            f"{file}: y must hold whole numbers, or a probability for each class, got floats of shape {list(y.shape)}. "
            'To use another loss, set task.name to a function that returns a fadas.Task, "package.module:name"'
        )
    return x, y


def hold_out(data: Sequence[Data], share: float) -> tuple[list[Data], Data]:
    """Take a share of each client's examples and pool it. Return (the rest of each client, the pool).

    A client with too few examples keeps them.
    """
    kept: list[Data] = []
    held_out: list[Data] = []
    for client, columns in enumerate(data):
        size = len(columns[-1])
        if not 0 < share_of(size, share) < size:
            kept.append(columns)
            continue
        kept_rows, held_out_rows = split_off(size, share, np.random.default_rng([client, HOLDOUT]))
        kept.append([column[kept_rows] for column in columns])
        held_out.append([column[held_out_rows] for column in columns])
    if not held_out:
        raise ValueError(f"validation ({share}) splits no client's examples into two parts; choose another share")
    return kept, [torch.cat(columns) for columns in zip(*held_out, strict=True)]


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
    """Return a task from a Hugging Face `datasets.Dataset` with a column that names each row's client.

    Args:
        model: A module, or a function that makes one.
        dataset: The clients' rows.
        client: The column that names the client. Clients are numbered in the order of first appearance.
        inputs: The columns of inputs. A column holds numbers of one shape, such as tokenised and padded text.
        target: The column of targets.
        test: The server's rows. None: nothing is measured.
        loss: See `fadas.Task`.

    Example:
        >>> rows = Dataset.from_dict({"x": [[0.0], [1.0], [2.0]], "y": [0, 1, 1], "hospital": ["a", "a", "b"]})
        >>> task = from_huggingface(nn.Linear(1, 2), rows, client="hospital", inputs=["x"], target="y")
    """
    columns = _columns(dataset, [*inputs, target])
    parts = natural(dataset[client])
    data = [[column[torch.from_numpy(rows)] for column in columns] for rows in parts.values()]
    return Task(model, data, loss, None if test is None else _columns(test, [*inputs, target]))


def _columns(dataset: Any, names: Sequence[str]) -> list[Tensor]:
    """Return columns of a Hugging Face data set as tensors."""
    table = dataset.with_format("torch")
    return [torch.as_tensor(table[name][:]) for name in names]
