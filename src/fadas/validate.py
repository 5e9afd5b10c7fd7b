"""Checks of numbers that users give. Each raises an `InvalidValue`, which names the value: `positive(lr=-1)`."""

import math
from numbers import Integral
from typing import NamedTuple

Range = tuple[float, float]  # 0 < low <= high


class Limit(NamedTuple):
    """The largest sensible value of a setting.

    Attributes:
        most: The value.
        why: What is wrong with a larger one.
    """

    most: int
    why: str

    def __str__(self) -> str:
        return f"{self.most:,} ({self.why})"


# Larger values would run or allocate memory without end. Each limit is far above what anyone needs.
MOST_BATCHES = Limit(1_000_000, "one job would train for hours")
MOST_BATCH_SIZE = Limit(100_000_000, "no client has so many examples")
MOST_BUFFER = Limit(1_000_000, "the server would hold so many updates in memory")
MOST_LENGTH = Limit(100_000, "every example would be padded to so many tokens")
MOST_POINTS = Limit(10_000, "each point is a run")
MOST_RANK = Limit(10_000, "no encoder is so wide")
MOST_SCALE = Limit(100, "the benchmark would take hours")
MOST_SEEDS = Limit(1_000, "each seed is a run, and the data of all runs are loaded first")
MOST_STEPS = Limit(1_000_000_000, "no run has so many steps")
MOST_THREADS = Limit(1_024, "threads beyond the number of cores wait for each other")
MOST_UPDATES = Limit(100_000_000, "such a plan takes ten gigabytes")
MOST_WIDTH = Limit(1_000_000, "the network would not fit into memory")
MOST_WORKERS = Limit(1_000, "each is a process with a model of its own")


class InvalidValue(ValueError):
    """A parameter has a value that it must not have.

    Args:
        name: The parameter.
        problem: What is wrong: "must be at least 1, got 0".
    """

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(name, problem)
        self.name, self.problem = name, problem

    def __str__(self) -> str:
        return f"{self.name} {self.problem}"


def whole_number(**values: int | None) -> None:
    """Refuse numbers that are not whole, or do not fit into 64 bits. NumPy's integers are allowed, and so is None."""
    for name, value in values.items():
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, Integral):
            raise InvalidValue(name, f"must be a whole number, got {value!r}")
        if not -(2**63) <= value < 2**63:
            text = "must fit into 64 bits, the size of TOML's whole numbers"
            raise InvalidValue(name, f"{text}, got {shorten(value)}")


def shorten(value: int) -> str:
    """Return a whole number as text. Python refuses to write out numbers of many thousand digits."""
    bits = int(value).bit_length()
    return f"{value:,}" if bits <= 128 else f"a number of {bits:,} bits"


def at_most(limit: Limit, **values: int | None) -> None:
    """Refuse numbers above a limit, and say why. None is allowed."""
    for name, value in values.items():
        if value is not None and value > limit.most:
            raise InvalidValue(name, f"must be at most {limit}, got {shorten(value)}")


def at_least(minimum: int, **values: int | None) -> None:
    """Refuse numbers that are not whole, or are below the minimum. None is allowed."""
    whole_number(**values)
    for name, value in values.items():
        if value is not None and value < minimum:
            raise InvalidValue(name, f"must be at least {minimum}, got {value}")


def positive(**values: float) -> None:
    """Refuse numbers that are not positive and finite."""
    for name, value in values.items():
        if not 0 < value < math.inf:
            raise InvalidValue(name, f"must be a positive number, got {value}")


def not_negative(**values: float) -> None:
    """Refuse numbers that are negative or not finite."""
    for name, value in values.items():
        if not 0 <= value < math.inf:
            raise InvalidValue(name, f"must be at least 0, got {value}")


def fraction(**values: float) -> None:
    """Refuse numbers outside [0, 1)."""
    for name, value in values.items():
        if not 0 <= value < 1:
            raise InvalidValue(name, f"must be at least 0 and below 1, got {value}")


def check_range(name: str, bounds: Range) -> None:
    """Refuse anything but 0 < low <= high < infinity."""
    low, high = bounds
    if not 0 < low <= high < math.inf:
        raise InvalidValue(name, f"must be a range 0 < low <= high, got {list(bounds)}")


def one_of(choices: tuple[str, ...], **values: str) -> None:
    """Refuse words that are not among the choices."""
    for name, value in values.items():
        if value not in choices:
            raise InvalidValue(name, f"must be one of {', '.join(choices)}, got {value!r}")
