"""Convert between Flower's named arrays and the server's flat vectors."""

import hashlib
from collections.abc import Callable, Mapping

import numpy as np
import torch
from flwr.app import Array, ArrayRecord
from torch import Tensor

from fadas.core.model import Model

Trainable = Callable[[str], bool]  # the name of an array -> is it trained?
_STATISTICS = ("running_mean", "running_var", "num_batches_tracked")


def is_trainable(name: str) -> bool:
    """Return whether an array is trained. By default all arrays are trained except BatchNorm's statistics.

    Args:
        name: The array's name.

    Example:
        >>> is_trainable("layer1.weight"), is_trainable("bn1.running_mean")
        (True, False)
    """
    return not name.endswith(_STATISTICS)


class ArrayLayout:
    """How the arrays of a record map to the server's vectors.

    | array                                 | what the server does with it |
    |---------------------------------------|------------------------------|
    | floating-point, trainable by the rule | trains it                    |
    | floating-point, not trainable         | averages it over the step    |
    | whole numbers or booleans             | keeps the initial values     |

    Args:
        arrays: The initial model.
        rule: Tells by its name whether an array is trained.

    Raises:
        ValueError: An array cannot be converted, or no array is trained.
    """

    def __init__(self, arrays: ArrayRecord, rule: Trainable) -> None:
        values = {name: array.numpy() for name, array in arrays.items()}
        for name, v in values.items():
            if v.dtype.kind not in "fiub":  # complex numbers would lose their imaginary part
                raise ValueError(f"array {name!r} must hold floating-point or whole numbers, got {v.dtype}")
        floats = {name: v for name, v in values.items() if np.issubdtype(v.dtype, np.floating)}
        self._names = list(values)
        self._params = {name: (v.shape, v.dtype) for name, v in floats.items() if rule(name)}
        self._buffers = {name: (v.shape, v.dtype) for name, v in floats.items() if not rule(name)}
        self._fixed = {name: v for name, v in values.items() if name not in floats}
        self._wide = {name: floats[name] for name, (_, dtype) in self._buffers.items() if dtype.itemsize > 4}
        if not self._params:
            raise ValueError("no array is trainable: the `trainable` rule must accept a floating-point array")
        self.initial = self.to_model(arrays)

    @property
    def digest(self) -> str:
        """The sizes of both vectors, and a checksum of the arrays' names, shapes and types."""
        fixed = {name: (v.shape, v.dtype) for name, v in self._fixed.items()}
        digest = hashlib.sha256(repr((self._params, self._buffers, fixed)).encode()).hexdigest()[:16]
        return f"{self.initial.params.numel()} trained, {self.initial.buffers.numel()} averaged, {digest}"

    def to_model(self, arrays: ArrayRecord, base: Model | None = None) -> Model:
        """Return a record as vectors. Averaged arrays that it does not hold are taken from `base`.

        Raises:
            ValueError: A trained array is missing, or an array has the wrong shape or type.
        """
        values = {name: array.numpy() for name, array in arrays.items()}
        missing = [name for name in self._params if name not in values]
        if missing:
            raise ValueError(f"array {missing[0]!r} is missing; a reply must hold all trained arrays")
        params = _vector(values, self._params)
        if base is None:
            return Model(params, _vector(values, self._buffers))
        if not any(name in values for name in self._buffers):
            return Model(params, base.buffers)  # not copied: the frozen part of a model may be large
        return Model(params, _vector({**_named(base.buffers, self._buffers), **values}, self._buffers))

    def to_vector(self, arrays: ArrayRecord) -> Tensor:
        """Return a record of arrays, named and shaped like the trained ones, as a vector."""
        return _vector({name: array.numpy() for name, array in arrays.items()}, self._params)

    def to_vector_records(self, model: Model) -> dict[str, ArrayRecord]:
        """Return what the server sends beside a model, as records like that of the parameters, in 32 bits."""
        shapes = {name: (shape, np.dtype(np.float32)) for name, (shape, _) in self._params.items()}
        return {
            key: ArrayRecord({name: Array(values) for name, values in _named(vector, shapes).items()})
            for key, vector in model.vectors.items()
        }

    def as_sent(self, params: Tensor) -> Tensor:
        """Return the parameters that clients receive. They are rounded if the record's types have less than 32 bits."""
        if all(dtype.itemsize >= 4 for _, dtype in self._params.values()):
            return params
        return _vector(_named(params, self._params), self._params)

    def to_record(self, model: Model) -> ArrayRecord:
        """Return a model as a record with the names, shapes and types of the initial arrays."""
        values = {**self._fixed, **_named(model.params, self._params), **_named(model.buffers, self._buffers)}
        for name, v in self._wide.items():  # the server holds 32 bits: keep all 64 of an array that has not changed
            if np.array_equal(values[name], v.astype(np.float32), equal_nan=True):
                values[name] = v
        return ArrayRecord({name: Array(values[name]) for name in self._names})


Shapes = Mapping[str, tuple[tuple[int, ...], np.dtype]]


def _vector(values: Mapping[str, np.ndarray], shapes: Shapes) -> Tensor:
    """Return the named arrays as one vector."""
    for name, (shape, _) in shapes.items():
        if values[name].shape != shape:
            raise ValueError(f"array {name!r} must have the shape {shape}, got {values[name].shape}")
        if values[name].dtype.kind != "f":
            raise ValueError(f"array {name!r} must hold floating-point numbers, got {values[name].dtype}")
    pieces = [torch.from_numpy(values[name].astype(np.float32).ravel()) for name in shapes]
    return torch.cat(pieces) if pieces else torch.zeros(0)


def _named(vector: Tensor, shapes: Shapes) -> dict[str, np.ndarray]:
    """Return a vector as named arrays."""
    named: dict[str, np.ndarray] = {}
    offset = 0
    for name, (shape, dtype) in shapes.items():
        size = int(np.prod(shape))
        named[name] = vector[offset : offset + size].numpy().reshape(shape).astype(dtype)
        offset += size
    return named
