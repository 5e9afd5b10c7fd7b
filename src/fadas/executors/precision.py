"""The arithmetic of training: the user's choice."""

from typing import Literal

import torch

Precision = Literal["fp32", "tf32", "bf16"]


def use(precision: Precision, device: str) -> bool:
    """Set torch up for a precision; whether to train under autocast to bfloat16."""
    if torch.device(device).type == "cuda":
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision != "fp32"
    elif precision == "tf32":
        raise ValueError("tf32 is for CUDA devices")
    return precision == "bf16"
