"""What the server asks of differential privacy."""

from collections import Counter
from collections.abc import Iterable
from typing import Protocol


class Accountant(Protocol):
    """Counts the privacy loss (epsilon, delta) of the steps so far.

    Example:
        >>> accountant = Algorithm(combine=Private()).accountant()
        >>> accountant.add([3, 5])
        >>> accountant.spent["epsilon"]
    """

    counts: Counter[int]

    @property
    def spent(self) -> dict[str, float]:
        """Epsilon and delta so far."""
        ...

    def add(self, clients: Iterable[int]) -> None:
        """Count one step.

        Args:
            clients: The client of each update in it.
        """
        ...

    def admit(self, client: int, waiting: Iterable[int], size: int) -> None:
        """Charge a newcomer, which may be an earlier client under a new name.

        Args:
            client: The newcomer.
            waiting: The client of each update that is not counted yet.
            size: The number of updates in a step.
        """
        ...

    def add_unknown(self, waiting: Iterable[int]) -> None:
        """Count a step that may have been released.

        Args:
            waiting: The client of each known update in it. One more update is of an unknown client.
        """
        ...
