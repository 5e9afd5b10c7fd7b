"""What recent updates look like: the reference for the relative checks of an update."""

from collections.abc import Mapping
from statistics import median_low
from typing import Any

from fadas.core.records import LATEST

_CLIENTS = 100  # whose last updates are remembered
ENOUGH = 3  # clients: among two, nobody can say which of them is wrong


class RecentUpdates:
    """The length and the claimed examples of the last update of each of the last 100 clients that reported.

    Each client has one vote in the medians, however often it reports. Refused updates count too: where most clients
    send longer updates than before, the bound follows them.

    Attributes:
        length: The median length. None: fewer than three clients have reported. Where most updates are zero, the last
            median that was not.

    Example:
        >>> recent = RecentUpdates()
        >>> recent.add(client=0, length=2.5, examples=40)
    """

    def __init__(self) -> None:
        self._votes: dict[int, tuple[float, float]] = {}  # by client, the latest last
        self.length: float | None = None

    def add(self, client: int, length: float, examples: float) -> None:
        """Count a client's update instead of its last one."""
        self._votes.pop(client, None)
        self._votes[client] = (length, examples)
        if len(self._votes) > _CLIENTS:
            del self._votes[next(iter(self._votes))]
        if self.is_enough:
            self.length = median_low(length for length, _ in self._votes.values()) or self.length

    def knows(self, client: int) -> bool:
        """Return whether a client has a vote."""
        return client in self._votes

    @property
    def is_enough(self) -> bool:
        """Whether three clients have reported."""
        return len(self._votes) >= ENOUGH

    @property
    def examples(self) -> float | None:
        """The median number of claimed examples. None: no client has reported."""
        return median_low(examples for _, examples in self._votes.values()) if self._votes else None

    def state(self) -> dict[str, Any]:
        """Return the votes and the reference as plain values, for a checkpoint."""
        return {"votes": [[client, *vote] for client, vote in self._votes.items()], "length": self.length}

    def load_state(self, saved: Mapping[str, Any]) -> None:
        """Restore the votes of a checkpoint.

        Raises:
            ValueError: A vote is not a finite number.
        """
        votes = {int(client): (float(length), examples) for client, length, examples in saved["votes"]}
        length = saved["length"]
        if any(not (0 <= length < LATEST and 0 < examples < LATEST) for length, examples in votes.values()):
            raise ValueError("recent: lengths and examples must be finite numbers")
        if length is not None and not 0 < length < LATEST:
            raise ValueError(f"recent: the reference must be a finite number, got {length}")
        self._votes, self.length = votes, length
