"""Checkpoints of a run: written whole or not at all, each with its checksum, the last two kept.

A file holds the SHA-256 of what follows, a line feed, and a safetensors file whose metadata hold the plain values.
Nothing in it is ever executed.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

_PATTERN = "checkpoint-*.ckpt"
_DIGEST = 64


class Damaged(ValueError):
    """A checkpoint that cannot be used."""


def write(folder: Path, step: int, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> Path:
    """Save a checkpoint; then, and only then, remove all but the last two."""
    plain = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    payload = save(plain, {"values": json.dumps(values)})
    path = folder / f"checkpoint-{step:09d}.ckpt"
    draft = path.with_suffix(".tmp")
    try:
        with draft.open("wb") as file:
            file.write(hashlib.sha256(payload).hexdigest().encode() + b"\n")
            file.write(payload)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
        sync(folder)
    except OSError:
        draft.unlink(missing_ok=True)
        raise
    for old in found(folder)[2:]:
        old.unlink(missing_ok=True)
    return path


def read(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors and values of one checkpoint; Damaged if it is not what was written."""
    try:
        content = path.read_bytes()
        digest, payload = content[:_DIGEST], content[_DIGEST + 1 :]
        if content[_DIGEST : _DIGEST + 1] != b"\n" or hashlib.sha256(payload).hexdigest().encode() != digest:
            raise Damaged("its checksum is wrong")
        length = int.from_bytes(payload[:8], "little")
        values = json.loads(json.loads(payload[8 : 8 + length])["__metadata__"]["values"])
        if not isinstance(values, dict):
            raise Damaged("it holds no values")
        return load(payload), values
    except (OSError, ValueError, KeyError, TypeError, RecursionError, SafetensorError) as error:
        raise Damaged(str(error) or type(error).__name__) from None


def found(folder: Path) -> list[Path]:
    """The checkpoints in a folder, the newest first."""
    return sorted(folder.glob(_PATTERN), reverse=True)


def sync(folder: Path) -> None:
    """Make a rename within the folder survive a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
