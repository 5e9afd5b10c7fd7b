"""Data that clients share: a sequence of the clients' parts, in memory or in files larger than memory."""

import mmap
import warnings
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

Data = Sequence[Tensor]  # (inputs, ..., targets), all of the same length
Columns = Sequence[Tensor | np.ndarray]

_MAPPABLE = ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32")


class Subsets(Sequence[Data]):
    """A sequence of clients' data over one shared data set. A client's data are gathered on access and not kept.

    Data larger than memory stay on disk: a column from `np.load(file, mmap_mode="r")` is read where a job needs it,
    batch by batch. The network gets its numbers in the type that the file has.

    Args:
        data: The data of all clients, (inputs, ..., targets): tensors or arrays.
        parts: The indices of each client's examples.

    Attributes:
        mapped: Whether a column stays on disk.

    Example:
        >>> clients = Subsets((images, labels), [torch.tensor([0, 2]), torch.tensor([1, 3, 4])])
        >>> clients = Subsets((np.load("x.npy", mmap_mode="r"), labels), fadas.partition.iid(labels, clients=20))
    """

    def __init__(self, data: Columns, parts: Sequence[Tensor | np.ndarray]) -> None:
        self._files, self.data = as_columns(data)
        self.parts = [torch.as_tensor(part) for part in parts]

    @property
    def mapped(self) -> bool:
        """Whether a column stays on disk."""
        return any(self._files)

    def __len__(self) -> int:
        return len(self.parts)

    def __getitem__(self, client):  # type: ignore[no-untyped-def, override]
        return [tensor[self.parts[client]] for tensor in self.data]

    def with_parts(self, parts: Sequence[Tensor | np.ndarray]) -> "Subsets":
        """Return the same data, divided in another way.

        Args:
            parts: The indices of each client's examples.
        """
        return Subsets(self._columns(), parts)

    def rows(self, rows: Tensor) -> "Rows":
        """Return some rows of the data.

        Args:
            rows: Their positions.
        """
        return Rows(self._columns(), rows)

    def _columns(self) -> Columns:
        return _open_files(_with_files(self._files, self.data))

    def __getstate__(self) -> dict[str, Any]:
        return {"columns": _with_files(self._files, self.data), "parts": self.parts}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(_open_files(state["columns"]), state["parts"])


class Rows(Sequence[Tensor]):
    """Some rows of a data set, as columns that are gathered on access and not kept.

    Args:
        data: The columns of the data set, tensors or arrays. They may be files, as in `Subsets`.
        rows: Their positions. None: all.

    Example:
        >>> test = Rows((np.load("x.npy", mmap_mode="r"), labels), torch.arange(1000))
    """

    def __init__(self, data: Columns, rows: Tensor | np.ndarray | None = None) -> None:
        self._files, self.data = as_columns(data)
        self.rows = torch.arange(len(self.data[-1])) if rows is None else torch.as_tensor(rows)

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, column):  # type: ignore[no-untyped-def, override]
        return self.data[column][self.rows]

    @property
    def mapped(self) -> bool:
        """Whether a column stays on disk."""
        return any(self._files)

    def split(self, size: int) -> Iterator[list[Tensor]]:
        """Yield the columns in pieces.

        Args:
            size: The largest number of rows of a piece.
        """
        for rows in self.rows.split(size):
            yield [column.index_select(0, rows) for column in self.data]

    def __getstate__(self) -> dict[str, Any]:
        return {"columns": _with_files(self._files, self.data), "rows": self.rows}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(_open_files(state["columns"]), state["rows"])


def split_rows(data: Data, size: int) -> Iterator[Sequence[Tensor]]:
    """Yield the columns of a data set in pieces of at most `size` rows."""
    return data.split(size) if isinstance(data, Rows) else zip(*(tensor.split(size) for tensor in data), strict=True)


class _Place(NamedTuple):
    """Where a column lies in a file. It travels to other processes instead of the column."""

    file: str
    dtype: str
    offset: int
    shape: tuple[int, ...]

    def open(self) -> np.ndarray:
        return np.memmap(self.file, self.dtype, "r", self.offset, self.shape)


def has_mapped(data: Any) -> bool:
    """Return whether data are columns of which one stays on disk."""
    return isinstance(data, tuple | list) and any(isinstance(column, np.memmap) for column in data)


def as_columns(data: Columns) -> tuple[list[_Place | None], Data]:
    """Return for each column its place if it stays on disk, and all columns as tensors."""
    if all(isinstance(column, Tensor) for column in data):
        return [None] * len(data), data  # type: ignore[return-value]
    last = len(data) - 1
    pairs = [_as_column(column, is_target=place == last) for place, column in enumerate(data)]
    return [place for place, _ in pairs], [column for _, column in pairs]


def _as_column(column: Tensor | np.ndarray, is_target: bool) -> tuple[_Place | None, Tensor]:
    is_label = is_target and isinstance(column, np.ndarray) and column.dtype.kind in "iu" and column.dtype != np.int64
    if not isinstance(column, np.memmap) or is_label:  # torch's losses need labels of 64 bits
        return None, as_tensor(np.array(column) if is_label else column, label=is_target)
    if column.dtype.name not in _MAPPABLE or not column.dtype.isnative or not column.flags.c_contiguous:
        order = "" if column.dtype.isnative and column.flags.c_contiguous else " in another order"
        raise ValueError(
            f"{column.filename}: {column.dtype.name}{order} cannot be read from disk row "
            f"by row; save the array in C order as one of {', '.join(_MAPPABLE)}"
        )
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writable")  # rows are only ever gathered
        return _place_of(column), torch.from_numpy(column)


def _place_of(column: np.memmap) -> _Place:
    root = column
    while isinstance(root.base, np.memmap):
        root = root.base
    assert isinstance(root.base, mmap.mmap)
    first = column.__array_interface__["data"][0] - root.__array_interface__["data"][0]
    return _Place(str(column.filename), column.dtype.str, root.offset + first, column.shape)


def _with_files(places: Sequence[_Place | None], data: Data) -> list[_Place | Tensor]:
    return [place or column for place, column in zip(places, data, strict=True)]


def _open_files(columns: Sequence[_Place | Tensor]) -> list[Tensor | np.ndarray]:
    return [column.open() if isinstance(column, _Place) else column for column in columns]


def as_tensor(values: Any, label: bool = False) -> Tensor:
    """Return a tensor as it is. Convert NumPy's floats, which are double by default, to torch's default dtype."""
    if isinstance(values, Tensor):
        return values
    if np.ma.is_masked(values):  # torch would use the values under the mask
        raise ValueError("a masked array has missing values: fill them in, or remove these examples")
    tensor = torch.as_tensor(np.require(values, requirements=["C", "W"]))  # copies arrays that torch cannot share
    if tensor.is_floating_point():
        return tensor.to(torch.get_default_dtype())
    return tensor.long() if label and tensor.dtype != torch.bool else tensor  # torch's losses need 64-bit labels
