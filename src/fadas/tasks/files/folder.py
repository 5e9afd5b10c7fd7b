"""A folder with one file per client."""

from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor

from fadas.errors import first_line
from fadas.tasks.task import Data

_SUFFIXES = (".npz", ".safetensors")


def read_folder(folder: Path, clients: int, regression: bool) -> tuple[list[Data], Data | None]:
    """Return the data of each client, and those of the file called `test`.

    Args:
        folder: The folder.
        clients: The number of clients. It must equal the number of client files.
        regression: Whether y holds numbers to predict rather than classes.
    """
    found = sorted(file for file in folder.glob("*") if file.suffix in _SUFFIXES)
    test = [file for file in found if file.stem == "test"]
    owners = [file for file in found if file.stem != "test"]
    if len(owners) != clients:
        raise ValueError(f"clients must equal the number of client files in {folder} ({len(owners)}), got {clients}")
    if len(test) > 1:
        raise ValueError(f"{folder} must hold at most one test file, got {', '.join(file.name for file in test)}")
    data: list[Data] = [_load_columns(file, regression) for file in owners]
    return data, _load_columns(test[0], regression) if test else None


def _load_columns(file: Path, regression: bool) -> tuple[Tensor, Tensor]:
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
    return x, as_targets(y, file, regression)


def as_targets(y: Tensor, file: Path, regression: bool) -> Tensor:
    """Return the targets of a file: labels of 64 bits, a probability for each class, or columns of numbers."""
    if regression:
        y = y.float()
        return y[:, None] if y.dim() == 1 else y  # shaped like the network's outputs
    if not y.is_floating_point():
        return y.long()
    if y.dim() < 2 or y.shape[1] < 2:  # the loss is the cross-entropy
        raise ValueError(
            f"{file}: y must hold whole numbers, or a probability for each class, got floats of shape {list(y.shape)}. "
            'To predict numbers, set task.kind to "regression". To use another loss, set task.name to a function that '
            'returns a fadas.Task, "package.module:name"'
        )
    return y
