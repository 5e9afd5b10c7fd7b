"""Flower's named arrays <-> the server's flat vectors."""

import hashlib
from collections.abc import Callable, Mapping

import numpy as np
import torch
from flwr.app import Array, ArrayRecord
from torch import Tensor

from fadas.core.model import Model

Trainable = Callable[[str], bool]
_STATISTICS = ("running_mean", "running_var", "num_batches_tracked")


def is_trainable(name: str) -> bool:
    """The default rule: everything but BatchNorm's statistics is trained."""
    return not name.endswith(_STATISTICS)


class ArrayLayout:
    """Which arrays of a record are trained, which are averaged, and which (whole numbers) stay as they are."""

    def __init__(self, arrays: ArrayRecord, rule: Trainable) -> None:
        values = {name: array.numpy() for name, array in arrays.items()}
        for name, v in values.items():
            if v.dtype.kind not in "fiub":  # complex numbers would lose a part of themselves
                raise ValueError(f"the array {name!r} holds {v.dtype}: neither floating-point nor whole numbers")
        floats = {name: v for name, v in values.items() if np.issubdtype(v.dtype, np.floating)}
        self._names = list(values)
        self._params = {name: (v.shape, v.dtype) for name, v in floats.items() if rule(name)}
        self._buffers = {name: (v.shape, v.dtype) for name, v in floats.items() if not rule(name)}
        self._fixed = {name: v for name, v in values.items() if name not in floats}
        self._wide = {name: floats[name] for name, (_, dtype) in self._buffers.items() if dtype.itemsize > 4}
        if not self._params:
            raise ValueError("no array is trainable: see the strategy's `trainable` rule")
        self.initial = self.to_model(arrays)

    @property
    def digest(self) -> str:
        """Sizes for the eye, and a checksum of the arrays' names, shapes and types."""
        fixed = {name: (v.shape, v.dtype) for name, v in self._fixed.items()}
        digest = hashlib.sha256(repr((self._params, self._buffers, fixed)).encode()).hexdigest()[:16]
        return f"{self.initial.params.numel()} trained, {self.initial.buffers.numel()} averaged, {digest}"

    def to_model(self, arrays: ArrayRecord, base: Model | None = None) -> Model:
        """The record as vectors. Statistics that it does not hold are those of `base`."""
        values = {name: array.numpy() for name, array in arrays.items()}
        missing = [name for name in self._params if name not in values]
        if missing:
            raise ValueError(f"the array {missing[0]!r} is missing")
        params = _vector(values, self._params)
        if base is None:
            return Model(params, _vector(values, self._buffers))
        if not any(name in values for name in self._buffers):
            return Model(params, base.buffers)  # not copied: the frozen part of a model may be large
        return Model(params, _vector({**_named(base.buffers, self._buffers), **values}, self._buffers))

    def as_sent(self, params: Tensor) -> Tensor:
        """The parameters as clients get them: rounded, where the record's are shorter than the server's."""
        if all(dtype.itemsize >= 4 for _, dtype in self._params.values()):
            return params
        return _vector(_named(params, self._params), self._params)

    def to_record(self, model: Model) -> ArrayRecord:
        """A model as the record that clients know."""
        values = {**self._fixed, **_named(model.params, self._params), **_named(model.buffers, self._buffers)}
        for name, v in self._wide.items():  # 64 bits pass through 32: what was not changed is given back as it came
            if np.array_equal(values[name], v.astype(np.float32), equal_nan=True):
                values[name] = v
        return ArrayRecord({name: Array(values[name]) for name in self._names})


Shapes = Mapping[str, tuple[tuple[int, ...], np.dtype]]


def _vector(values: Mapping[str, np.ndarray], shapes: Shapes) -> Tensor:
    for name, (shape, _) in shapes.items():
        if values[name].shape != shape:
            raise ValueError(f"{name!r} has the shape {values[name].shape}, not {shape}")
        if values[name].dtype.kind != "f":
            raise ValueError(f"{name!r} holds {values[name].dtype}, not floating-point numbers")
    pieces = [torch.from_numpy(values[name].astype(np.float32, copy=True).ravel()) for name in shapes]
    return torch.cat(pieces) if pieces else torch.zeros(0)


def _named(vector: Tensor, shapes: Shapes) -> dict[str, np.ndarray]:
    named: dict[str, np.ndarray] = {}
    offset = 0
    for name, (shape, dtype) in shapes.items():
        size = int(np.prod(shape))
        named[name] = vector[offset : offset + size].numpy().reshape(shape).astype(dtype)
        offset += size
    return named
