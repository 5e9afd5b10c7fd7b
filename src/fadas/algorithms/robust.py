"""Combine rules that withstand some bad updates among the M of a step.

`withstands(M)` is how many may be bad, in whatever way: the result then stays within what the honest ones span (median,
trimmed mean), or no longer than the longest of them (clipped).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fadas.core.ledger import Step
from fadas.core.model import ServerState, Update
from fadas.validate import at_least, positive


@dataclass(frozen=True)
class Median:
    """The median of the M deltas, coordinate by coordinate. Withstands (M - 1) // 2 bad updates."""

    def withstands(self, updates: int) -> int:
        return (updates - 1) // 2

    def __call__(
        self, state: ServerState, step: Step, updates: Sequence[Update], clients: int
    ) -> tuple[Tensor, dict[str, Tensor]]:
        ordered = torch.stack([update.delta for update in updates]).sort(0).values
        middle = len(updates) // 2
        return (ordered[middle] if len(updates) % 2 else (ordered[middle - 1] + ordered[middle]) / 2), {}


@dataclass(frozen=True)
class Trimmed:
    """The mean of each coordinate without its `trim` largest and smallest values. Withstands `trim` bad updates."""

    trim: int = 1

    def __post_init__(self) -> None:
        at_least(0, trim=self.trim)

    def withstands(self, updates: int) -> int:
        return self.trim

    def __call__(
        self, state: ServerState, step: Step, updates: Sequence[Update], clients: int
    ) -> tuple[Tensor, dict[str, Tensor]]:
        if len(updates) <= 2 * self.trim:
            raise ValueError(f"trim = {self.trim} leaves nothing of a buffer of {len(updates)}")
        ordered = torch.stack([update.delta for update in updates]).sort(0).values
        return ordered[self.trim : len(updates) - self.trim].mean(0), {}


@dataclass(frozen=True)
class Clipped:
    """The mean of deltas no longer than `norm`, by default than the median of the M lengths.

    Where M is even, the median is the smaller one of the two in the middle: half of the updates may then be too long.
    That withstands M // 2 bad updates, or with a fixed `norm` any number, in length only: the direction of a bad one
    still counts, as one among M.
    """

    norm: float | None = None

    def __post_init__(self) -> None:
        if self.norm is not None:
            positive(norm=self.norm)

    def withstands(self, updates: int) -> int:
        return updates if self.norm is not None else updates // 2

    def __call__(
        self, state: ServerState, step: Step, updates: Sequence[Update], clients: int
    ) -> tuple[Tensor, dict[str, Tensor]]:
        lengths = torch.stack([update.delta.square().sum().sqrt() for update in updates])
        bound = lengths.median() if self.norm is None else lengths.new_tensor(self.norm)
        total = torch.zeros_like(state.model.params)
        for update, scale in zip(updates, (bound / lengths.clamp(min=1e-30)).clamp(max=1.0).unbind(), strict=True):
            total.add_(update.delta * scale)
        return total.div_(len(updates)), {}
