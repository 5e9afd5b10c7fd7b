"""Combine rules that withstand some bad updates among the M of a step.

`withstands(M)` is the number of updates that may be bad, in any way, with this guarantee:

| rule              | the result                                                    |
|-------------------|---------------------------------------------------------------|
| Median, Trimmed   | lies within the range of the honest updates, per coordinate   |
| Clipped           | is no longer than the longest honest update                   |
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fadas.core.ledger import Step
from fadas.core.model import ServerState, Update
from fadas.errors import ConfigError
from fadas.validate import at_least, positive


@dataclass(frozen=True)
class Median:
    """The median of the M deltas, coordinate by coordinate. Withstands (M - 1) // 2 bad updates.

    Example:
        >>> Algorithm(combine=Median())
    """

    def withstands(self, updates: int) -> int:
        """Return how many of these updates may be bad."""
        return (updates - 1) // 2

    def __call__(
        self, state: ServerState, step: Step, updates: Sequence[Update], clients: int
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the median of each coordinate."""
        ordered = torch.stack([update.delta for update in updates]).sort(0).values
        middle = len(updates) // 2
        return (ordered[middle] if len(updates) % 2 else (ordered[middle - 1] + ordered[middle]) / 2), {}


@dataclass(frozen=True)
class Trimmed:
    """The mean of each coordinate without its `trim` largest and smallest values. Withstands `trim` bad updates.

    Args:
        trim: How many values to leave out at either end. It must be below M / 2.

    Example:
        >>> Algorithm(combine=Trimmed(trim=2))
    """

    trim: int = 1

    def __post_init__(self) -> None:
        at_least(0, trim=self.trim)

    def withstands(self, updates: int) -> int:
        """Return how many of these updates may be bad."""
        return self.trim

    def __call__(
        self, state: ServerState, step: Step, updates: Sequence[Update], clients: int
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the trimmed mean of each coordinate."""
        if len(updates) <= 2 * self.trim:
            raise ConfigError(f"trim must be below half of the buffer ({len(updates)} updates), got {self.trim}")
        ordered = torch.stack([update.delta for update in updates]).sort(0).values
        return ordered[self.trim : len(updates) - self.trim].mean(0), {}


@dataclass(frozen=True)
class Clipped:
    """The mean of the deltas, each scaled down to at most `norm`, by default the median of the M lengths.

    For an even M, the median is the smaller of the two middle lengths, so half of the updates may be too long.
    This withstands M // 2 bad updates, or any number with a fixed `norm`. It bounds their length only: the direction of
    a bad update still counts, as one among M.

    Args:
        norm: The largest length of a delta. None: the median of the M lengths.

    Example:
        >>> Algorithm(combine=Clipped(norm=1.0))
    """

    norm: float | None = None

    def __post_init__(self) -> None:
        if self.norm is not None:
            positive(norm=self.norm)

    def withstands(self, updates: int) -> int:
        """Return how many of these updates may be too long."""
        return updates if self.norm is not None else updates // 2

    def __call__(
        self, state: ServerState, step: Step, updates: Sequence[Update], clients: int
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the mean of the clipped deltas."""
        lengths = torch.stack([update.delta.square().sum().sqrt() for update in updates])
        bound = lengths.median() if self.norm is None else lengths.new_tensor(self.norm)
        total = torch.zeros_like(state.model.params)
        for update, scale in zip(updates, (bound / lengths.clamp(min=1e-30)).clamp(max=1.0).unbind(), strict=True):
            total.add_(update.delta * scale)
        return total.div_(len(updates)), {}
