"""What the server asks of an update before it takes it. Simulation and deployment share this."""

import math
from dataclasses import dataclass, replace
from typing import Literal

from torch import Tensor

from fadas.core.model import Model, Update


@dataclass(frozen=True)
class Checks:
    """Refuse updates of the wrong shape or type, with numbers that are not finite, or from no examples.

    `norm` bounds the length of a delta: what exceeds it is refused, or clipped to that length.
    """

    norm: float | None = None
    excess: Literal["refuse", "clip"] = "refuse"

    def __post_init__(self) -> None:
        if self.norm is not None and not 0 < self.norm < math.inf:
            raise ValueError(f"norm must be a positive number, not {self.norm}")
        if self.excess not in ("refuse", "clip"):
            raise ValueError(f"excess must be 'refuse' or 'clip', not {self.excess!r}")

    def __call__(self, update: Update, model: Model) -> tuple[Update, str | None]:
        """The update to take, and why not to take it."""
        for given, expected in ((update.delta, model.params), (update.buffers, model.buffers)):
            if given.shape != expected.shape:
                return update, "wrong shape"
            if given.dtype != expected.dtype:
                return update, "wrong dtype"
        if not all_finite(update.delta) or not all_finite(update.buffers, model.buffers):
            return update, "not finite"
        if not update.examples > 0:
            return update, "no examples"
        if self.norm is not None:
            length = float(update.delta.square().sum().sqrt())
            if not math.isfinite(length):  # its square overflows
                length = math.sqrt(float(update.delta.double().square().sum()))
            if length > self.norm and self.excess == "refuse":
                return update, "norm above bound"
            if length > self.norm:
                return replace(update, delta=update.delta * (self.norm / length)), None
        return update, None


def all_finite(tensor: Tensor, like: Tensor | None = None) -> bool:
    """One pass: a sum keeps whatever is not finite. Finite numbers whose sum overflows are no sane update either.

    Where there is something that `like` has too, such as a mask's infinities, that is left out of account.
    """
    if not tensor.numel() or math.isfinite(float(tensor.sum())):
        return True
    return like is not None and math.isfinite(float(tensor.where(tensor != like, 0.0).sum()))
