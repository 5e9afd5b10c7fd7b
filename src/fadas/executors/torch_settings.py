"""The arithmetic of training: the user's choice."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import torch

Precision = Literal["fp32", "tf32", "bf16"]


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """So many of torch's threads, for a while."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def use_precision(precision: Precision, device: str) -> bool:
    """Set torch up for a precision; whether to train under autocast to bfloat16."""
    if torch.device(device).type == "cuda":
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision != "fp32"
    elif precision == "tf32":
        raise ValueError("tf32 is for CUDA devices")
    return precision == "bf16"
