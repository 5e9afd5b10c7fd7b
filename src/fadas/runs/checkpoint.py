"""Checkpoints of a run: written whole or not at all, each with its checksum, the last two kept.

A file holds the SHA-256 of what follows, a line feed, and a safetensors file whose metadata hold the plain values.
Nothing in it is ever executed. It is written piece by piece: the library's own writer first makes one string of all,
which for a gigabyte of models takes seconds in which no other thread can run.
"""

import hashlib
import json
import os
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load
from torch import Tensor

from fadas.runs.folder import checkpoint_name as name_of
from fadas.runs.folder import checkpoints as found

_DIGEST = 64
_DTYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}


class Damaged(ValueError):
    """A checkpoint that cannot be used."""


def write_checkpoint(folder: Path, step: int, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> Path:
    """Save a checkpoint; then, and only then, remove all but the last two."""
    path = folder / name_of(step)
    draft = path.with_suffix(".tmp")
    try:
        with draft.open("wb") as file:
            file.write(b"0" * _DIGEST + b"\n")
            digest = hashlib.sha256()
            for piece in _pieces(tensors, {"values": json.dumps(values)}):
                digest.update(piece)
                file.write(piece)
            file.seek(0)
            file.write(digest.hexdigest().encode())
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
        sync(folder)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    for old in found(folder)[2:]:
        old.unlink(missing_ok=True)
    return path


def require_storable(tensors: Mapping[str, Tensor]) -> None:
    """Can a checkpoint hold these?"""
    for name, tensor in tensors.items():
        if tensor.dtype not in _DTYPES:
            raise ValueError(f"a checkpoint cannot hold {name!r}, a tensor of {tensor.dtype}")


class BackgroundWriter:
    """Writes checkpoints in a thread of its own, one at a time: training does not wait for the disk.

    That is safe because nothing that a checkpoint holds is ever written to. What goes wrong is raised by the next call.
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1)
        self._last: Future[float] | None = None
        self._idle_until = 0.0

    def ready(self) -> bool:
        """Is it time for another? Large models, saved often, would keep the disk busy: it is, a tenth of the time."""
        if self._last and not self._last.done():
            return False
        self.wait()
        return time.monotonic() >= self._idle_until

    def write(self, folder: Path, step: int, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> None:
        self.wait()
        self._last = self._thread.submit(_timed, folder, step, tensors, values)

    def wait(self) -> None:
        last, self._last = self._last, None
        if last:
            self._idle_until = time.monotonic() + 9 * last.result()

    def close(self) -> None:
        self._thread.shutdown()


def _timed(folder: Path, step: int, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> float:
    begin = time.monotonic()
    write_checkpoint(folder, step, tensors, values)
    return time.monotonic() - begin


def _pieces(tensors: Mapping[str, Tensor], metadata: dict[str, str]) -> Iterator[Any]:
    """A safetensors file: the header's length, the header, and the bytes of every tensor."""
    require_storable(tensors)
    header: dict[str, Any] = {"__metadata__": metadata}
    end = 0
    for name, tensor in tensors.items():
        begin, end = end, end + tensor.nbytes
        header[name] = {"dtype": _DTYPES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # so that the tensors are aligned
    yield len(text).to_bytes(8, "little") + text
    for tensor in tensors.values():
        yield _on_host(tensor.detach()).contiguous().reshape(-1).view(torch.uint8).numpy()


def _on_host(tensor: Tensor) -> Tensor:
    """From a GPU through pinned memory, on a stream of its own: a plain copy might hold up the threads that train."""
    if not tensor.is_cuda:
        return tensor.cpu()
    stream = torch.cuda.Stream(tensor.device, priority=-1)
    stream.wait_stream(torch.cuda.default_stream(tensor.device))  # where the server works
    with torch.cuda.stream(stream):
        copy = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True).copy_(tensor, non_blocking=True)
    stream.synchronize()
    return copy


def read_checkpoint(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
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


def sync(folder: Path) -> None:
    """Make a rename within the folder survive a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
