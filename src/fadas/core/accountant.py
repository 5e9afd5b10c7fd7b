"""What the server asks of differential privacy."""

from collections import Counter
from collections.abc import Iterable
from typing import Protocol


class Accountant(Protocol):
    """Counts the privacy loss (epsilon, delta) of the steps so far."""

    counts: Counter[int]

    @property
    def spent(self) -> dict[str, float]:
        """Epsilon and delta so far."""
        ...

    def add(self, clients: Iterable[int]) -> None:
        """Count one step of these clients' updates."""
        ...

    def admit(self, client: int, waiting: Iterable[int], size: int) -> None:
        """Charge a newcomer, which may be an earlier client under a new name."""
        ...

    def add_unknown(self, waiting: Iterable[int]) -> None:
        """Count a step that may have been released, of these clients and one unknown client."""
        ...
