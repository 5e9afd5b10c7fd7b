"""Checks of numbers that users give. Each raises an `InvalidValue`, which names the value: `positive(lr=-1)`."""

import math
from numbers import Integral

Range = tuple[float, float]  # 0 < low <= high


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
    """Refuse numbers that are not whole. NumPy's integers are allowed, and so is None."""
    for name, value in values.items():
        if value is not None and (isinstance(value, bool) or not isinstance(value, Integral)):
            raise InvalidValue(name, f"must be a whole number, got {value!r}")


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
