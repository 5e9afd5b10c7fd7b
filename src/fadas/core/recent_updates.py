"""What recent updates look like: the reference for the relative checks of an update."""

import math
from collections.abc import Iterable, Sequence
from statistics import median_low

_CLIENTS = 100  # whose last updates are remembered
_ENOUGH = 3  # clients: among two, nobody can say which of them is wrong


class RecentUpdates:
    """The length and the claimed examples of the last update of each of the last 100 clients that reported.

    Each client has one vote in the medians, however often it reports. Refused updates count too: where most clients
    send longer updates than before, the bound follows them.

    Example:
        >>> recent = RecentUpdates()
        >>> recent.add(client=0, length=2.5, examples=40)
    """

    def __init__(self) -> None:
        self._votes: dict[int, tuple[float, float]] = {}  # by client, the latest last

    def add(self, client: int, length: float, examples: float) -> None:
        """Count a client's update instead of its last one."""
        self._votes.pop(client, None)
        self._votes[client] = (length, examples)
        if len(self._votes) > _CLIENTS:
            del self._votes[next(iter(self._votes))]

    @property
    def length(self) -> float | None:
        """The median length. None: fewer than three clients have reported, or most updates are zero."""
        if len(self._votes) < _ENOUGH:
            return None
        return median_low(length for length, _ in self._votes.values()) or None

    @property
    def examples(self) -> float | None:
        """The median number of claimed examples. None: no client has reported."""
        return median_low(examples for _, examples in self._votes.values()) if self._votes else None

    def state(self) -> list[list[float]]:
        """Return the votes as plain values, for a checkpoint."""
        return [[client, *vote] for client, vote in self._votes.items()]

    def load_state(self, votes: Iterable[Sequence[float]]) -> None:
        """Restore the votes of a checkpoint.

        Raises:
            ValueError: A vote is not a finite number.
        """
        restored = {int(client): (float(length), examples) for client, length, examples in votes}
        if any(not (0 <= length < math.inf and 0 < examples < math.inf) for length, examples in restored.values()):
            raise ValueError("recent: lengths and examples must be finite numbers")
        self._votes = restored
