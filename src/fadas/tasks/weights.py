"""The weights that training starts from: read from a safetensors file, checked against the network, and loaded."""

import hashlib
from collections.abc import Collection, Mapping, Sequence
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError
from safetensors.torch import load
from torch import Tensor, nn

from fadas.errors import ConfigError, first_line
from fadas.registry import convert

Weights = str | Path | Mapping[str, Tensor]
_SHOWN = 3  # names in a message


class StartWeights(NamedTuple):
    """A file of weights that training starts from.

    Attributes:
        path: The file.
        digest: Its SHA-256 digest.
    """

    path: str
    digest: str


def read_weights(path: str | Path, digest: str | None = None) -> dict[str, Tensor]:
    """Return the tensors of a safetensors file, such as a run's model.safetensors.

    Args:
        path: The file.
        digest: The expected SHA-256 digest of the file. None: any file.

    Raises:
        ConfigError: The file cannot be read, is not a safetensors file, or has changed.

    Example:
        >>> tensors = read_weights("runs/demo/fadas-1/model.safetensors")
    """
    content = _read_bytes(Path(path))
    if digest not in (None, hashlib.sha256(content).hexdigest()):
        raise ConfigError(f"{path} has changed since its digest was taken; run the command again")
    try:
        return load(content)
    except (SafetensorError, ValueError, KeyError) as error:
        raise ConfigError(f"{path} is not a safetensors file: {first_line(error)}") from None


def take_weights(section: dict[str, Any], takes: Collection[str], where: str) -> StartWeights | None:
    """Remove the weights to start from, which every task can have, from a task's settings, and return them.

    Args:
        section: The settings. `weights` names the file. `weights_digest`, if it is there, is its expected digest.
        takes: The parameters of the task. One that takes `weights` itself gets them as it is.
        where: What stands before a key in messages, such as "task.".

    Raises:
        ConfigError: The file cannot be read, or has changed.
    """
    if "weights" in takes:
        return None
    given = convert(section.pop("weights", None), str | None, f"{where}weights")
    digest = convert(section.pop("weights_digest", None), str | None, f"{where}weights_digest")
    if given is None:
        return None
    path = Path(given).resolve()
    try:
        state = path.stat() if path.is_file() else None
        found = _digest(path, state.st_mtime_ns, state.st_size) if state else _digest.__wrapped__(path, 0, 0)
    except (OSError, ConfigError) as error:
        raise ConfigError(f"{where}weights: {error}") from None
    if digest not in (None, found):
        raise ConfigError(
            f"{where}weights: {path} has changed since these settings were saved; restore the file, or remove "
            f"{where}weights_digest to use the new one"
        )
    return StartWeights(str(path), found)


@lru_cache(maxsize=16)  # every method and every seed asks again
def _digest(path: Path, time: int, size: int) -> str:
    return hashlib.sha256(_read_bytes(path)).hexdigest()


def _read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except IsADirectoryError:
        raise ConfigError(f"{path} is a folder; name the file, such as {path / 'model.safetensors'}") from None
    except OSError as error:
        raise ConfigError(f"cannot read {path} ({error.strerror})") from None


@torch.no_grad()
def load_weights(module: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Copy weights into a module.

    The weights must hold every trained parameter and every buffer of the module's state dict. Frozen parameters may be
    left out.

    Args:
        module: The module.
        weights: Tensors by name, as in the module's state dict.

    Raises:
        ConfigError: A name, a shape or a type does not fit.

    Example:
        >>> load_weights(module, read_weights("runs/demo/fadas-1/model.safetensors"))
    """
    own = {name: tensor for name, tensor in module.state_dict(keep_vars=True).items() if isinstance(tensor, Tensor)}
    frozen = {name for name, p in module.named_parameters(remove_duplicate=False) if not p.requires_grad}
    _check_names(own, own.keys() - frozen, weights)
    given = {name: weights[name] for name in own if name in weights}  # a file has them in any order
    for name, tensor in given.items():
        _check_tensor(name, tensor, own[name])
    for name, tensor in given.items():
        if name not in frozen:
            own[name].copy_(tensor)
        elif not torch.equal(own[name], tensor.to(own[name].device)):
            path, _, last = name.rpartition(".")  # replaced, because modules may share their frozen parameters
            value = tensor.to(own[name].device, copy=True)
            setattr(module.get_submodule(path), last, nn.Parameter(value, requires_grad=False))


def _check_names(known: Collection[str], required: Collection[str], given: Collection[str]) -> None:
    missing = [name for name in known if name in required and name not in given]
    unknown = [name for name in given if name not in known]
    problems = [f"they lack {_list(missing)}"] if missing else []
    if unknown:
        near = get_close_matches(unknown[0], missing or known, n=1)
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        problems.append(f"the network has no {_list(unknown)}{hint}")
    if problems:
        raise ConfigError(
            f"the weights do not fit the network: {', and '.join(problems)}. Use the names of its state_dict()"
        )


def _list(names: Sequence[str]) -> str:
    rest = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(map(repr, names[:_SHOWN])) + rest


def _check_tensor(name: str, tensor: Any, own: Tensor) -> None:
    if not isinstance(tensor, Tensor):
        raise ConfigError(f"the weights cannot be used: {name!r} must be a tensor, got {type(tensor).__name__}")
    if tensor.shape != own.shape:
        shapes = f"{list(tensor.shape)}, and the network needs {list(own.shape)}"
        raise ConfigError(f"the weights do not fit the network: {name!r} has the shape {shapes}")
    if tensor.dtype != own.dtype:
        raise ConfigError(
            f"the weights do not fit the network: {name!r} is {tensor.dtype}, and the network needs {own.dtype}. "
            f"Convert it with tensor.to({own.dtype})"
        )
    if isinstance(own, nn.Parameter) and not tensor.isfinite().all():
        raise ConfigError(f"the weights cannot be used: {name!r} holds NaN or infinite values")
