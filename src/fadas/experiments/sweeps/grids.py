"""The points of a search: the values to try of each setting, how they are drawn, and how they are extended.

A grid has one axis per setting: a list of values, or a `Range`. Lists alone give every combination. Ranges need a
number of samples: that many random points are drawn. The draws are a function of (seed, setting, number of the draw).
So more samples keep the earlier points, and methods with the same range try the same values.
"""

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import product
from math import prod
from typing import Any

from fadas.errors import ConfigError
from fadas.registry import Table, build
from fadas.rng import SEARCH, mix
from fadas.runs.serialization import to_json, toml_value
from fadas.validate import MOST_POINTS, InvalidValue, shorten

_TOO_MANY = f"the number of points must be at most {MOST_POINTS}"
_DRAWS = 100  # per sample: then all points of a small grid have been drawn
_OUTER = 0.1  # of a range: a best value in its outer tenth counts as on the edge
_NEAR = 0.1  # of a step: how much a new value of a list may be rounded


@dataclass(frozen=True)
class Range:
    """A range of values to draw from.

    If both ends are whole numbers, so are the values.

    Args:
        low: The smallest value.
        high: The largest value.
        log: Draw the logarithm evenly, as suits learning rates.

    Example:
        >>> Range(1e-4, 1e-1, log=True)
        >>> Range(1, 16)
    """

    low: int | float
    high: int | float
    log: bool = False

    def __post_init__(self) -> None:
        if not -math.inf < self.low < self.high < math.inf:
            raise InvalidValue("high", f"must be a number above low, got low = {self.low} and high = {self.high}")
        if self.log and self.low <= 0:
            raise InvalidValue("low", f"must be positive with log = true, got {self.low}")

    @property
    def is_whole(self) -> bool:
        """Whether the values are whole numbers."""
        return isinstance(self.low, int) and isinstance(self.high, int)

    @property
    def width(self) -> float:
        """The width, in logarithms if these are drawn."""
        return math.log(self.high / self.low) if self.log else self.high - self.low

    def draw(self, share: float) -> int | float:
        """Return the value at this share of the range. Values other than whole numbers are rounded to a few digits."""
        high = self.high + 1 if self.is_whole else self.high
        if self.log:
            value = self.low * (high / self.low) ** share
            grain = value * min(1.0, self.width)
        else:
            value = self.low + share * (high - self.low)
            grain = self.width
        value = math.floor(value) if self.is_whole else _round(value, grain)
        return min(max(value, self.low), self.high)

    def share_below(self, value: float) -> float:
        """Return how much of the range is below a value."""
        return (math.log(value / self.low) if self.log else value - self.low) / self.width

    def beyond(self, upper: bool) -> "tuple[int | float, Range | list[int]]":
        """Return the end of a range that is wider by a quarter on one side, and the new part of it."""
        step = math.exp(self.width / 4) if self.log else self.width / 4
        if upper:
            exact = self.high * step if self.log else self.high + step
            if self.is_whole:
                end = max(int(self.high) + 1, round(exact))
                return end, Range(int(self.high) + 1, end, self.log) if end > self.high + 1 else [end]
            end = _round(exact, exact - self.high)
            return end, Range(self.high, end, self.log)
        exact = self.low / step if self.log else self.low - step
        if self.is_whole:
            end = min(int(self.low) - 1, round(exact))
            return end, Range(end, int(self.low) - 1, self.log and end > 0) if end < self.low - 1 else [end]
        end = _round(exact, self.low - exact)
        return end, Range(end, self.low, self.log)


Axis = list[Any] | Range


@dataclass(frozen=True)
class Beyond:
    """The next value of a setting beyond an edge of its axis.

    Attributes:
        key: The setting.
        upper: Whether this is the upper edge.
        value: The best point's value.
        candidates: The values to try next. The first valid one is used.
    """

    key: str
    upper: bool
    value: int | float
    candidates: tuple[int | float, ...]


@dataclass(frozen=True)
class Grid:
    """The points of a search for one algorithm.

    Attributes:
        where: What to call the grid in messages: "sweep.fadas".
        axes: The values to try, by setting.
        points: The points: settings -> values.
        samples: How many points are drawn. None: every combination.
        seed: The seed of the draws.
        drawn: How many draws have been made.
    """

    where: str
    axes: dict[str, Axis]
    points: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    samples: int | None = None
    seed: int = 0
    drawn: int = 0

    def text(self) -> str:
        """Return the grid on one line: "eta in [0.1, 0.3], tau_c from 1 to 8; 20 samples"."""
        axes = [f"{key} {self.axis_text(key)}" for key in self.axes]
        samples = f"; {len(self.points)} samples" if self.samples is not None else ""
        return ", ".join(axes) + samples

    def axis_text(self, key: str) -> str:
        """Return an axis as text: "in [0.1, 0.3]", "from 1 to 8"."""
        axis = self.axes[key]
        if isinstance(axis, Range):
            return f"from {axis.low} to {axis.high}{' (log)' if axis.log else ''}"
        return f"in {toml_value(axis)}"

    def as_dict(self) -> dict[str, Any]:
        """Return the axes and the points as plain values."""
        axes = {key: asdict(axis) if isinstance(axis, Range) else axis for key, axis in self.axes.items()}
        return {"axes": axes, "samples": self.samples, "points": self.points}

    def edges_at(self, point: Table) -> list[Beyond]:
        """Return the edges on which a point lies. Names, booleans and single values have no edges."""
        found: list[Beyond] = []
        for key, axis in self.axes.items():
            value = point[key]
            if isinstance(axis, Range):
                share = axis.share_below(value)
                if not _OUTER < share < 1 - _OUTER:
                    found.append(Beyond(key, share > 0.5, value, (axis.beyond(share > 0.5)[0],)))
            elif len(axis) > 1 and all(isinstance(one, int | float) and not isinstance(one, bool) for one in axis):
                values = sorted(axis)
                if value in (values[0], values[-1]):
                    upper = value == values[-1]
                    nearest = values[-2] if upper else values[1]
                    found.append(Beyond(key, upper, value, _values_beyond(value, nearest)))
        return found

    def extended(self, key: str, upper: bool, value: int | float) -> "Grid":
        """Return the grid with an axis extended to a value, and with the points of the new part.

        Without samples, the new part is a whole slice: the new value with every combination of the others. With
        samples, as many points are drawn in the new part as the search has elsewhere on the same width.
        """
        axis = self.axes[key]
        if isinstance(axis, Range):
            wider: Axis = replace(axis, high=value) if upper else replace(axis, low=value, log=axis.log and value > 0)
            part: Axis = axis.beyond(upper)[1]
            share = 1 / 4
        else:
            wider = [*axis, value] if upper else [value, *axis]
            part, share = [value], 1 / len(axis)
        grid = replace(self, axes={**self.axes, key: wider})
        if self.samples is None:
            return grid.with_combinations()
        return grid.with_samples(max(1, math.ceil(share * self.samples)), {**grid.axes, key: part})

    def with_combinations(self) -> "Grid":
        """Return the grid with every combination of the values."""
        lists = {key: list(axis) for key, axis in self.axes.items() if not isinstance(axis, Range)}
        if (points := prod(map(len, lists.values()))) > MOST_POINTS.most:
            raise ConfigError(
                f"{self.where}: the number of points must be at most {MOST_POINTS}, got {shorten(points)}"
            )
        return replace(self, points=[dict(zip(lists, point, strict=True)) for point in product(*lists.values())])

    def with_samples(self, number: int, axes: Mapping[str, Axis]) -> "Grid":
        """Return the grid with this many more points, drawn from these axes. No point is drawn twice."""
        if len(self.points) + number > MOST_POINTS.most:
            raise ConfigError(f"{self.where}: {_TOO_MANY}, got {shorten(len(self.points) + number)}")
        found = {to_json(point): point for point in self.points}
        wanted, drawn = len(found) + number, self.drawn
        while len(found) < wanted and drawn < self.drawn + _DRAWS * number:
            point = {key: _draw(axis, self.seed, key, drawn) for key, axis in axes.items()}
            found.setdefault(to_json(point), point)
            drawn += 1
        return replace(self, points=list(found.values()), drawn=drawn)


def make_grid(where: str, values: Table, samples: int | None = None, seed: int = 0) -> Grid:
    """Return the grid of one algorithm, with its points.

    Args:
        where: What to call the grid in messages: "sweep.fadas".
        values: The values of each setting: a list, a `Range`, or a table such as {low = 1, high = 8}. Tables of such
            values stand for dotted keys.
        samples: The number of points to draw, or all combinations if there are fewer. None: all combinations.
        seed: The seed of the draws.

    Raises:
        ConfigError: The grid cannot be used. A range needs a number of samples.
    """
    axes = dict(_read_axes(values, where))
    grid = Grid(where, axes, [], samples, seed)
    lists = {key: list(axis) for key, axis in axes.items() if not isinstance(axis, Range)}
    if len(lists) == len(axes) and (samples is None or prod(map(len, lists.values())) <= samples):
        return replace(grid.with_combinations() if axes else grid, samples=None)
    if samples is None:
        key = next(key for key, axis in axes.items() if isinstance(axis, Range))
        raise ConfigError(f"{where}.{key} is a range: say with --samples N how many points to draw")
    return grid.with_samples(samples, axes)


def _read_axes(values: Table, where: str) -> list[tuple[str, Axis]]:
    found: list[tuple[str, Axis]] = []
    for key, value in values.items():
        name = f"{where}.{key}"
        if isinstance(value, Mapping) and _is_range(value):
            value = build(Range, value, name)
        if isinstance(value, Mapping):
            found += [(f"{key}.{inner}", axis) for inner, axis in _read_axes(value, name)]
            continue
        if isinstance(value, Sequence) and not isinstance(value, str):
            value = list(value)
        if not isinstance(value, Range) and not (isinstance(value, list) and value):
            raise ConfigError(f"{name} must be a list of values or a range {{low = ..., high = ...}}, got {value!r}")
        if isinstance(value, list) and (twice := [one for k, one in enumerate(value) if one in value[:k]]):
            raise ConfigError(f"{name} holds {twice[0]!r} twice")
        found.append((key, value))
    return found


def _is_range(table: Table) -> bool:
    """Return whether a table is meant as a range. The tables of dotted keys hold lists and tables only."""
    return any(isinstance(value, int | float) for value in table.values())


def _draw(axis: Axis, seed: int, key: str, number: int) -> Any:
    words = int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big")
    share = mix(seed, SEARCH, words, number) / 2**64
    return axis.draw(share) if isinstance(axis, Range) else axis[math.floor(share * len(axis))]


def _values_beyond(edge: int | float, nearest: int | float) -> tuple[int | float, ...]:
    """Return the values to try beyond the edge of a list: a step of the same ratio; around zero, of the same width."""
    whole = isinstance(edge, int) and isinstance(nearest, int)
    if edge * nearest <= 0:
        value = edge + (edge - nearest)
        return (value if whole else float(f"{value:.12g}"),)
    exact = edge * (edge / nearest)
    value = _round_within(exact, _NEAR * abs(math.log(edge / nearest))) if math.isfinite(exact) else exact
    if not whole:
        return (value,)
    step = 1 if edge > nearest else -1
    if round(exact) == 0:  # half of 1: the setting may take fractions
        return value, edge + step
    return ((max if step > 0 else min)(edge + step, round(value)),)


def _round_within(value: float, tolerance: float) -> float:
    """Return a value with few digits, whose logarithm differs by no more than the tolerance."""
    if math.isclose(short := float(f"{value:.3g}"), value, rel_tol=1e-9):  # 0.125 stays 0.125
        return short
    for digits in range(1, 12):
        short = float(f"{value:.{digits}g}")
        if short and abs(math.log(short / value)) <= tolerance:
            return short
    return value


def _round(value: float, grain: float) -> float:
    """Return a value rounded to about a thousandth of the grain."""
    digits = 4 + math.floor(math.log10(abs(value))) - math.floor(math.log10(grain)) if value else 1
    return float(f"{value:.{min(15, max(1, digits))}g}")
