"""Columns of a table as numbers. What a training table shows, such as its categories, is applied to test tables too.

Tables are pandas DataFrames. Rows are counted from 1, without the header.
"""

from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fadas.errors import unknown_name

_LISTED = 30  # columns in a message
_VALUES = 1000  # of a column that becomes columns of zeros and ones


def require_columns(table: Any, path: Path, role: str, names: Sequence[str]) -> None:
    """Refuse columns that a table lacks.

    Args:
        table: The table.
        path: Its file.
        role: What the columns are for, in a word.
        names: The columns.
    """
    known = [str(name) for name in table.columns]
    for name in names:
        if name not in known:
            listed = known if len(known) <= _LISTED else get_close_matches(name, known) or known[:_LISTED]
            raise unknown_name(f"{role} column of {path}:", name, listed)


def require_values(table: Any, path: Path, names: Sequence[str]) -> None:
    """Refuse missing values."""
    missing = table[list(names)].isna().to_numpy()
    if missing.any():
        row, column = np.argwhere(missing)[0]
        raise ValueError(
            f"{path}: row {row + 1} has no value in the column {names[column]!r} (it is empty, or a mark such as NA); "
            "fill it in, or remove the row"
        )


class Features:
    """The inputs of a table.

    Args:
        table: The training table.
        path: Its file.
        names: The columns. None: all but those left out.
        one_hot: Columns that become a column of zeros and ones for each of their values.
        leave_out: The column of targets and that of clients. Clients are inputs only if they are named.

    Attributes:
        names: The columns.
        inputs: The name of each input: a column, or a column and its value such as "colour=red".
        scalable: For each input, whether it is a number of the table.
    """

    def __init__(
        self, table: Any, path: Path, names: Sequence[str] | None, one_hot: Sequence[str], leave_out: Sequence[str]
    ) -> None:
        self.names = [str(name) for name in table.columns if name not in leave_out] if names is None else list(names)
        if not self.names:
            raise ValueError(f"{path} has no columns of inputs")
        if names and leave_out[0] in names:
            raise ValueError(f"features: {leave_out[0]!r} is the target; remove it")
        for name in one_hot:
            if name not in self.names:
                raise ValueError(f"one_hot: the column {name!r} is not among the features")
        require_values(table, path, self.names)
        self._values = {name: _distinct(table[name]) for name in one_hot}
        for name, values in self._values.items():
            if len(values) > _VALUES:
                raise ValueError(
                    f"one_hot: the column {name!r} of {path} has {len(values):,} different values; at most {_VALUES:,} "
                    "can become columns"
                )
        values = {name: self._values.get(name, [None]) for name in self.names}
        self.inputs = [name if one is None else f"{name}={one}" for name, own in values.items() for one in own]
        self.scalable = [one is None for own in values.values() for one in own]

    def encode(self, table: Any, path: Path) -> Tensor:
        """Return the inputs, float32 [rows, inputs]. A value that the training table lacks becomes zeros.

        Args:
            table: The training table, or one with the same columns.
            path: Its file.
        """
        require_values(table, path, self.names)
        inputs = np.zeros((len(table), len(self.scalable)), np.float32)
        at = 0
        for name in self.names:
            if name not in self._values:
                advice = f"list {name!r} in task.one_hot, or name the columns to use in task.features"
                inputs[:, at] = _numbers(table, path, name, advice)
                at += 1
                continue
            codes = _codes(table[name], self._values[name])
            known = np.flatnonzero(codes >= 0)
            inputs[known, at + codes[known]] = 1.0
            at += len(self._values[name])
        return torch.from_numpy(inputs)


class Labels:
    """A column of classes: text, whole numbers, or true and false. The sorted values are the classes 0, 1, ...

    Args:
        table: The training table.
        path: Its file.
        name: The column.

    Attributes:
        classes: The classes, as text.
    """

    def __init__(self, table: Any, path: Path, name: str) -> None:
        require_values(table, path, [name])
        column = table[name]
        if column.dtype.kind == "f" and len(wrong := np.flatnonzero(column.to_numpy() % 1 != 0)):
            raise ValueError(
                f"{path}: row {wrong[0] + 1} has {column.iloc[wrong[0]]} in the target column {name!r}, which is no "
                'class. To predict numbers, set task.kind to "regression"'
            )
        self._name, self._values = name, _distinct(column)
        self.classes = [str(value) for value in self._values]
        if len(self.classes) < 2:
            raise ValueError(f"{path}: the target column {name!r} has one value only, {self._values[0]!r}")

    def encode(self, table: Any, path: Path) -> Tensor:
        """Return the class of each row.

        Args:
            table: The training table, or one with the same column.
            path: Its file.
        """
        require_values(table, path, [self._name])
        codes = _codes(table[self._name], self._values)
        if len(unknown := np.flatnonzero(codes < 0)):
            value = _show(table[self._name].iloc[unknown[0]])
            raise ValueError(
                f"{path}: row {unknown[0] + 1} has {value} in the target column {self._name!r}, a class "
                "that no training row has"
            )
        return torch.from_numpy(codes)


class Numbers:
    """A column of numbers to predict.

    Args:
        table: The training table.
        path: Its file.
        name: The column.

    Attributes:
        classes: None.
    """

    classes = None

    def __init__(self, table: Any, path: Path, name: str) -> None:
        self._name = name

    def encode(self, table: Any, path: Path) -> Tensor:
        """Return the numbers, float32 [rows, 1].

        Args:
            table: The training table, or one with the same column.
            path: Its file.
        """
        require_values(table, path, [self._name])
        numbers = _numbers(table, path, self._name, 'to predict classes, set task.kind to "classification"')
        return torch.from_numpy(numbers.astype(np.float32))[:, None]


def _numbers(table: Any, path: Path, name: str, advice: str) -> np.ndarray:
    """Return a column as numbers. Refuse text, dates and infinite values."""
    import pandas

    column = table[name]
    if not pandas.api.types.is_numeric_dtype(column.dtype) or column.dtype.kind == "c":  # also true and false
        row = next(row for row, value in enumerate(column) if not _is_number(value))
        value = _show(column.iloc[row])
        raise ValueError(f"{path}: the column {name!r} holds {value} in row {row + 1}, which is no number; {advice}")
    numbers = column.to_numpy(np.float64)
    if len(infinite := np.flatnonzero(~(np.abs(numbers) <= np.finfo(np.float32).max))):
        row = int(infinite[0])
        raise ValueError(f"{path}: row {row + 1} has {numbers[row]} in the column {name!r}, which float32 cannot hold")
    return numbers


def _show(value: Any) -> str:
    text = repr(value.item() if isinstance(value, np.generic) else value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True


def _distinct(column: Any) -> list[Any]:
    """Return the different values of a column, sorted: numbers by size, others as text."""
    values = column.astype(object).unique().tolist()
    try:
        return sorted(values)
    except TypeError:
        return sorted(values, key=str)


def _codes(column: Any, values: Sequence[Any]) -> np.ndarray:
    """Return the position of each row's value among the values; -1 if it is not there."""
    places = {value: place for place, value in enumerate(values)}
    return np.fromiter((places.get(value, -1) for value in column.astype(object)), np.int64, len(column))
