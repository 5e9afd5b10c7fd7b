"""Checkpoints of a run: each has a checksum, and the last two are kept.

A file holds the SHA-256 of what follows, a line feed, and a safetensors file whose metadata hold the plain values.
With the environment variable FADAS_CHECKPOINT_KEY the checksum is an HMAC: who does not know the key cannot write a
checkpoint that is accepted.
Nothing in it is ever executed. The file is written piece by piece. The safetensors library would first build the whole
file in memory, which blocks all other threads for seconds if the models take a gigabyte.
"""

import hashlib
import hmac
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

from fadas.errors import ConfigError, Damaged
from fadas.registry import is_table
from fadas.runs.folder import checkpoint_name, checkpoints
from fadas.runs.formats import FORMAT, upgrade_checkpoint
from fadas.runs.serialization import atomic_file

_DIGEST = 64
_KEY = "FADAS_CHECKPOINT_KEY"
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


def write_checkpoint(folder: Path, step: int, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> Path:
    """Save a checkpoint, and then remove all but the last two.

    Args:
        folder: The run's folder.
        step: The number in the checkpoint's name.
        tensors: Tensors by name.
        values: Plain values, as JSON holds them.
    """
    path = folder / checkpoint_name(step)
    metadata = {"values": json.dumps({"format": FORMAT, **values})}
    with atomic_file(path) as file:
        file.write(b"0" * _DIGEST + b"\n")
        digest = _new_digest()
        for piece in _pieces(tensors, metadata):
            digest.update(piece)
            file.write(piece)
        file.seek(0)
        file.write(digest.hexdigest().encode())
    for old in checkpoints(folder)[2:]:
        old.unlink(missing_ok=True)
    return path


def _new_digest() -> Any:
    """Return a hash object: keyed if there is a key."""
    key = os.environ.get(_KEY)
    return hmac.new(key.encode(), digestmod=hashlib.sha256) if key else hashlib.sha256()


def require_storable(tensors: Mapping[str, Tensor]) -> None:
    """Raise a ConfigError if a checkpoint cannot hold these tensors."""
    for name, tensor in tensors.items():
        if tensor.dtype not in _DTYPES:
            raise ConfigError(f"a checkpoint cannot hold {name!r}, a tensor of {tensor.dtype}")


class BackgroundWriter:
    """Writes checkpoints in a thread, one at a time, so that training does not wait for the disk.

    That is safe because the tensors of a checkpoint are never written to. If writing fails, the next call raises the
    error.
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1)
        self._last: Future[float] | None = None
        self._idle_until = 0.0

    def ready(self) -> bool:
        """Return whether a checkpoint is due. Writing uses at most a tenth of the time, whatever the model size."""
        if self._last and not self._last.done():
            return False
        self.wait()
        return time.monotonic() >= self._idle_until

    def write(self, folder: Path, step: int, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> None:
        """Start to write a checkpoint."""
        self.wait()
        self._last = self._thread.submit(_timed, folder, step, tensors, values)

    def wait(self) -> None:
        """Wait until the last checkpoint is written."""
        last, self._last = self._last, None
        if last:
            seconds = last.result()
            self._idle_until = time.monotonic() + 9 * seconds

    def close(self) -> None:
        """End the thread."""
        self._thread.shutdown()


def _timed(folder: Path, step: int, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> float:
    begin = time.monotonic()
    write_checkpoint(folder, step, tensors, values)
    return time.monotonic() - begin


def _pieces(tensors: Mapping[str, Tensor], metadata: dict[str, str]) -> Iterator[Any]:
    """Yield a safetensors file: the header's length, the header, and the bytes of every tensor."""
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
    """Copy a tensor from a GPU through pinned memory and a separate stream. A plain copy may block training threads."""
    if not tensor.is_cuda:
        return tensor.cpu()
    stream = torch.cuda.Stream(tensor.device, priority=-1)
    stream.wait_stream(torch.cuda.default_stream(tensor.device))  # where the server works
    with torch.cuda.stream(stream):
        copy = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True).copy_(tensor, non_blocking=True)
    stream.synchronize()
    return copy


def read_checkpoint(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the tensors and values of a checkpoint.

    Raises:
        Damaged: The file is not a valid checkpoint.
    """
    try:
        content = path.read_bytes()
        digest, payload = content[:_DIGEST], content[_DIGEST + 1 :]
        expected = _new_digest()
        expected.update(payload)
        if content[_DIGEST : _DIGEST + 1] != b"\n" or not hmac.compare_digest(expected.hexdigest().encode(), digest):
            raise Damaged("its checksum is wrong" + (f", or {_KEY} is another" if os.environ.get(_KEY) else ""))
        length = int.from_bytes(payload[:8], "little")
        values: Any = json.loads(json.loads(payload[8 : 8 + length])["__metadata__"]["values"])
        if not is_table(values):
            raise Damaged("it holds no values")
        return load(payload), upgrade_checkpoint(values)
    except (OSError, ValueError, KeyError, TypeError, RecursionError, SafetensorError) as error:
        raise Damaged(str(error) or type(error).__name__) from None
