"""A folder with one array of inputs for all clients, which stays on disk and may be larger than memory."""

from pathlib import Path

import numpy as np
import torch

from fadas.errors import first_line
from fadas.tasks.files.folder import as_targets
from fadas.tasks.partition import natural
from fadas.tasks.subsets import Columns, Rows, Subsets
from fadas.tasks.task import Data

INPUTS = "x.npy"


def read_arrays(folder: Path, clients: int, regression: bool) -> tuple[Subsets, Data | None]:
    """Return the clients' data and the test data.

    Args:
        folder: The folder with x.npy, y.npy and client.npy, and perhaps test_x.npy and test_y.npy.
        clients: The number of clients. It must equal the number of different values in client.npy.
        regression: Whether y holds numbers to predict rather than classes.
    """
    columns = _open_columns(folder / INPUTS, folder / "y.npy", regression)
    owners = np.array(_open_array(folder / "client.npy"))
    if owners.shape != (len(columns[0]),):
        wanted = f"one value for each of the {len(columns[0])} rows of {INPUTS}"
        raise ValueError(f"{folder / 'client.npy'} must hold {wanted}, got an array of shape {list(owners.shape)}")
    parts = natural(owners)
    if len(parts) != clients:
        values = f"the number of different values in {folder / 'client.npy'}"
        raise ValueError(f"clients must equal {values} ({len(parts)}), got {clients}")
    tests = folder / f"test_{INPUTS}", folder / "test_y.npy"
    if not any(file.exists() for file in tests):
        return Subsets(columns, list(parts.values())), None
    return Subsets(columns, list(parts.values())), Rows(_open_columns(*tests, regression))


def _open_columns(inputs: Path, targets: Path, regression: bool) -> Columns:
    x, y = _open_array(inputs), _open_array(targets)
    if not x.ndim or not y.ndim or len(x) != len(y):
        shapes = f"{list(x.shape)} and {list(y.shape)}"
        raise ValueError(f"{inputs} and {targets.name} must have one row per example, got the shapes {shapes}")
    if not len(x):
        raise ValueError(f"{inputs} has no examples")
    if y.dtype == (np.float32 if regression else np.int64) and y.nbytes > 16 * len(y):
        return x, y  # such targets are as large as inputs; all others are read into memory
    return x, as_targets(torch.from_numpy(np.array(y)), targets, regression)


def _open_array(file: Path) -> np.ndarray:
    try:
        return np.load(file, mmap_mode="r", allow_pickle=False)
    except OSError as error:
        if error.strerror:
            raise ValueError(f"cannot read {file} ({error.strerror})") from None
        raise ValueError(f"cannot read {file}: {first_line(error)}") from None
    except (ValueError, EOFError) as error:
        raise ValueError(f"cannot read {file}: {first_line(error)}") from None
