"""The checks that an update must pass before the server accepts it, in simulations and deployments."""

import math
from dataclasses import dataclass, replace
from typing import Literal

from torch import Tensor

from fadas.core.model import Model, Update
from fadas.validate import one_of, positive


@dataclass(frozen=True)
class Checks:
    """Refuse updates that have the wrong shape or type, hold non-finite numbers, or come from no examples.

    Args:
        norm: The largest norm that a delta may have. None: any.
        excess: What to do with a longer delta: "refuse" the update, or "clip" the delta to `norm`.

    Example:
        >>> Checks(norm=10.0, excess="clip")
    """

    norm: float | None = None
    excess: Literal["refuse", "clip"] = "refuse"

    def __post_init__(self) -> None:
        if self.norm is not None:
            positive(norm=self.norm)
        one_of(("refuse", "clip"), excess=self.excess)

    def __call__(self, update: Update, model: Model) -> tuple[Update, str | None]:
        """Return the update to accept, and why to refuse it (None: accept it)."""
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
            if not math.isfinite(length):  # the square overflows
                length = math.sqrt(float(update.delta.double().square().sum()))
            if length > self.norm and self.excess == "refuse":
                return update, "norm above bound"
            if length > self.norm:
                return replace(update, delta=update.delta * (self.norm / length)), None
        return update, None


def all_finite(tensor: Tensor, like: Tensor | None = None) -> bool:
    """Return whether all elements are finite. Elements equal to those of `like` (a mask's infinities) are ignored.

    One pass is enough, because a sum with a non-finite term is not finite. A sum of finite numbers that overflows
    also counts as not finite.
    """
    if not tensor.numel() or math.isfinite(float(tensor.sum())):
        return True
    return like is not None and math.isfinite(float(tensor.where(tensor != like, 0.0).sum()))
