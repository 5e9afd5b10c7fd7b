"""Objects as plain values: the settings of a run that was started from Python."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import FunctionType
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from fadas.simulation.simulator import Simulation
from fadas.tasks.task import Data, Subsets, Task

_MOST = 1 << 28  # bytes of one tensor that are read for its digest
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


def describe(value: Any) -> Any:
    """Return a value as TOML can hold it. Equal settings give equal descriptions in every process.

    Args:
        value: A setting: a number, a dataclass such as `FADAS(eta=0.01)`, a function, a tensor.

    Example:
        >>> describe(fadas.LocalSGD(lr=0.1))["lr"]
        0.1
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Tensor | np.ndarray):
        return digest([value])
    if isinstance(value, nn.Module):
        return {"type": _name(type(value)), "parameters": digest(list(value.state_dict().values()))}
    if isinstance(value, Mapping):
        return _without_none({str(key): describe(item) for key, item in cast(Mapping[Any, Any], value).items()})
    if isinstance(value, list | tuple | set | frozenset):
        return [describe(item) for item in cast(Sequence[Any], value)]
    if isinstance(value, FunctionType):
        code = value.__code__
        text = repr((code.co_code, [item for item in code.co_consts if not hasattr(item, "co_code")], code.co_names))
        return f"{_name(value)} {_hash(text.encode())}"
    if isinstance(value, type) or (callable(value) and hasattr(value, "__qualname__")):
        return _name(value)
    if is_dataclass(value):
        held = {field.name: describe(getattr(value, field.name)) for field in fields(value)}
        return _without_none({"type": _name(type(value)), **held})
    if hasattr(value, "__dict__"):
        return _without_none({"type": _name(type(value)), **{k: describe(item) for k, item in vars(value).items()}})
    return _ADDRESS.sub("", repr(value))


def describe_task(task: Task) -> dict[str, Any]:
    """Return the settings of a task, without its data.

    Args:
        task: The task.
    """
    described = {
        "name": "python",
        "clients": len(task.clients),
        "loss": describe(task.loss),
        "metrics": [*task.measured],
        "transform": describe(task.transform),
    }
    return _without_none(described)


def digest_of_run(simulation: Simulation) -> str:
    """Return a digest of what differs between seeds: the data and the initial model.

    Of tensors of more than 256 MB only some rows are read.

    Args:
        simulation: The simulation, before it starts.
    """
    task, model = simulation.task, simulation.server.model
    data: list[Data] = [task.test] if task.test is not None else []
    for clients in (task.clients, task.client_test or ()):
        data += [clients.data, clients.parts] if isinstance(clients, Subsets) else list(clients)
    tensors = [tensor for columns in data for tensor in columns]
    return digest([*tensors, model.params, model.buffers])


def digest(tensors: Sequence[Tensor | np.ndarray]) -> str:
    """Return a digest of tensors: their shapes, types and contents.

    Args:
        tensors: The tensors.
    """
    total = hashlib.sha256()
    for tensor in tensors:
        held = torch.as_tensor(tensor).detach()
        total.update(f"{tuple(held.shape)} {held.dtype}".encode())
        if held.nbytes > _MOST and held.dim():
            held = held[:: max(1, held.nbytes // _MOST)]
        flat = held.cpu().contiguous().reshape(-1)
        total.update(flat.view(torch.uint8).numpy().data if flat.numel() else b"")
    return total.hexdigest()[:16]


def _without_none(table: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in table.items() if value is not None}


def _name(value: Any) -> str:
    return f"{value.__module__}:{value.__qualname__}"


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]
