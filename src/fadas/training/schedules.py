"""Learning rates of clients that change with the server's version: factors of `local.lr`."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from fadas.validate import MOST_STEPS, at_least, at_most, fraction, positive


class RateSchedule(Protocol):
    """The learning rate of a job, as a factor of `local.lr`.

    Example:
        >>> LocalSGD(lr=0.1, schedule=Cosine(steps=500))
    """

    def __call__(self, version: int) -> float:
        """Return the factor for a job that starts from this server version.

        Args:
            version: The version: how many server steps were taken before.
        """
        ...


@dataclass(frozen=True)
class Steps:
    """The rate is multiplied by `factor` at regular intervals.

    Args:
        every: The number of server steps between two changes.
        factor: What the rate is multiplied by.

    Example:
        >>> Steps(every=100, factor=0.5)
    """

    every: int
    factor: float = 0.1

    def __post_init__(self) -> None:
        at_least(1, every=self.every)
        at_most(MOST_STEPS, every=self.every)
        positive(factor=self.factor)

    def __call__(self, version: int) -> float:
        """Return factor ** (version // every)."""
        return self.factor ** (version // self.every)


@dataclass(frozen=True)
class Cosine:
    """The rate falls along half a cosine from 1 to `floor`, and stays there.

    Args:
        steps: The server steps until the floor is reached.
        floor: The last factor, above 0.

    Example:
        >>> Cosine(steps=500, floor=0.1)
    """

    steps: int
    floor: float = 0.01

    def __post_init__(self) -> None:
        at_least(1, steps=self.steps)
        at_most(MOST_STEPS, steps=self.steps)
        positive(floor=self.floor)
        fraction(floor=self.floor)

    def __call__(self, version: int) -> float:
        """Return floor + (1 - floor) * (1 + cos(pi * version / steps)) / 2."""
        done = min(1.0, version / self.steps)
        return self.floor + (1 - self.floor) * (1 + math.cos(math.pi * done)) / 2


@dataclass(frozen=True)
class InverseSqrt:
    """The rate falls as 1 / sqrt(1 + version / after).

    Args:
        after: The server step at which the rate has fallen to 1 / sqrt(2).

    Example:
        >>> InverseSqrt(after=50)
    """

    after: int = 1

    def __post_init__(self) -> None:
        at_least(1, after=self.after)
        at_most(MOST_STEPS, after=self.after)

    def __call__(self, version: int) -> float:
        """Return 1 / sqrt(1 + version / after)."""
        return 1 / math.sqrt(1 + version / self.after)


RATE_SCHEDULES: Mapping[str, Callable[..., RateSchedule]] = {"steps": Steps, "cosine": Cosine, "sqrt": InverseSqrt}
