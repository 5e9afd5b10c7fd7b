"""Torch settings for training: threads, precision, compilation, garbage collection around captures."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import torch

Precision = Literal["fp32", "tf32", "bf16"]


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Temporarily set the number of torch threads.

    Example:
        >>> with torch_threads(1):
        ...     update = executor.collect(job)
    """
    before = torch.get_num_threads()
    if before == count:
        yield
        return
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def use_precision(precision: Precision, device: str) -> bool:
    """Set torch up for a precision. Return whether to train under autocast to bfloat16.

    | precision | matrix products and convolutions                                       | devices   |
    |-----------|------------------------------------------------------------------------|-----------|
    | "fp32"    | in float32                                                             | all       |
    | "tf32"    | in TensorFloat-32                                                      | CUDA only |
    | "bf16"    | in bfloat16 under autocast; on CUDA, all others in TensorFloat-32      | all       |

    Raises:
        ValueError: The precision is "tf32", and the device is not a CUDA device.
    """
    if torch.device(device).type == "cuda":
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision != "fp32"
    elif precision == "tf32":
        raise ValueError(f'precision "tf32" needs a CUDA device, got {device!r}')
    return precision == "bf16"


@contextmanager
def uncollected() -> Iterator[None]:
    """Turn garbage collection off temporarily. Destroying another executor's graphs would break a running capture."""
    gc.collect()
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def compiled(what: Any) -> Any:
    """Return a compiled module or function, with kernels chosen by fixed rules.

    By default, Inductor times several kernels and keeps the fastest one, which may differ between runs.
    """
    from torch._inductor import config

    return torch.compile(what, options={"deterministic": True} if hasattr(config, "deterministic") else {})
