"""Checks of numbers that users give."""

import math
from numbers import Integral


def whole_number(**counts: int | None) -> None:
    """Refuse what counts something and is no whole number. NumPy's integers are."""
    for name, value in counts.items():
        if value is not None and not isinstance(value, Integral):
            raise ValueError(f"{name} must be a whole number, not {value!r}")


Range = tuple[float, float]


def positive(**values: float) -> None:
    for name, value in values.items():
        if not (value > 0 and math.isfinite(value)):
            raise ValueError(f"{name} must be a positive number, not {value}")


def check_range(name: str, bounds: Range) -> None:
    low, high = bounds
    if not (0 < low <= high < math.inf):
        raise ValueError(f"{name} must be a range 0 < low <= high, not {list(bounds)}")


def fraction(**values: float) -> None:
    for name, value in values.items():
        if not 0 <= value < 1:
            raise ValueError(f"{name} must be at least 0 and below 1, not {value}")
