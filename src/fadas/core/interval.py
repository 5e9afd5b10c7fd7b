"""How often something is done: every so many server steps, client updates, or units of time."""

import math
import re
from dataclasses import dataclass
from typing import Literal, NamedTuple

from fadas.validate import MOST_STEPS, InvalidValue, at_least, at_most, positive

Unit = Literal["steps", "updates", "time"]
_TEXT = re.compile(r"\s*(\S+?)\s*(steps?|updates?|time|seconds?)\s*")


class Position(NamedTuple):
    """How far a run is.

    Attributes:
        step: Server steps so far.
        updates: Client updates so far.
        time: Virtual time, or seconds in a deployment.
    """

    step: int
    updates: int
    time: float


@dataclass(frozen=True)
class Interval:
    """An interval between evaluations.

    Args:
        every: The length of the interval.
        unit: What it counts: server steps, client updates or time.

    Example:
        >>> Interval.parse("50 updates")
        Interval(every=50, unit='updates')
        >>> Interval(5).is_due(Position(9, 45, 3.2), Position(10, 50, 3.9))
        True
    """

    every: float
    unit: Unit = "steps"

    def __post_init__(self) -> None:
        if self.unit == "time":
            positive(eval_every=self.every)
            return
        if self.every != int(self.every):
            raise InvalidValue("eval_every", f"must be a whole number of {self.unit}, got {self.every:g}")
        at_least(1, eval_every=int(self.every))
        at_most(MOST_STEPS, eval_every=int(self.every))

    @classmethod
    def parse(cls, value: "int | str | Interval", name: str = "eval_every") -> "Interval":
        """Return the interval that a setting describes.

        Args:
            value: A number of server steps, or a text such as "10 steps", "50 updates" or "2.5 time".
            name: The name of the setting, for error messages.

        Raises:
            InvalidValue: The text is none of these.
        """
        try:
            return cls._parse(value)
        except InvalidValue as error:
            raise InvalidValue(name, error.problem) from None

    @classmethod
    def _parse(cls, value: "int | str | Interval") -> "Interval":
        if isinstance(value, Interval):
            return value
        if not isinstance(value, str):
            at_least(1, eval_every=value)
            return cls(value)
        found = _TEXT.fullmatch(value)
        try:
            every = float(found[1]) if found else math.nan
        except ValueError:
            every = math.nan
        if found is None or not math.isfinite(every):
            hint = 'a number of server steps, or a text such as "50 updates" or "2.5 time"'
            raise InvalidValue("eval_every", f"must be {hint}, got {value!r}")
        unit = found[2].rstrip("s")
        named: dict[str, Unit] = {"step": "steps", "update": "updates"}
        return cls(int(every) if every == int(every) else every, named.get(unit, "time"))

    def is_due(self, before: Position, now: Position) -> bool:
        """Return whether an interval ends between two positions of a run.

        Args:
            before: Where the run was after the server step before.
            now: Where it is.
        """
        begin, end = (getattr(place, "step" if self.unit == "steps" else self.unit) for place in (before, now))
        return end // self.every > begin // self.every

    def count(self, end: Position) -> int:
        """Return how many intervals end until a position."""
        return int(getattr(end, "step" if self.unit == "steps" else self.unit) // self.every)

    def __str__(self) -> str:
        return f"{self.every:g} {self.unit}"
