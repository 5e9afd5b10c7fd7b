"""What the paper reads from its figures and rows, held against what was measured: a sentence for each."""

import math
from pathlib import Path
from statistics import fmean, pstdev
from typing import NamedTuple

from fadas.paper.artefacts import Artefact
from fadas.paper.results import Result, results_of

_AXES = {"step": "rounds", "updates": "client trips", "time": "units of time"}
_LAST = 5  # evaluations, as in the paper's tables


class Reading(NamedTuple):
    verdict: str  # the paper's reading holds, does not hold, holds in part, is open
    text: str  # which lines are ahead of which others, and by what


class _Line(NamedTuple):
    """What a line amounts to: of two, the larger `score` is ahead, but level if they differ by `margin` at most."""

    score: float
    margin: float
    text: str


def judge_figure(figure: Artefact, results: Path) -> Reading:
    """Are the lines of a figure in the order that the paper reads from its own?"""
    found = {row.name: results_of(figure, row, 0, results) for row in figure.rows}
    pairs = [(pair, 1) for pair in figure.ahead] + [(pair, 0) for pair in figure.alike]
    missing = [name for name, runs in found.items() if not runs and any(name in pair for pair, _ in pairs)]
    ordered: list[bool] = []  # is the first ahead of the second? Where they are level, that is open
    level: list[bool] = []
    parts: list[str] = []
    for (one, other), expected in pairs:
        if one in missing or other in missing:
            continue
        order, text = _compare(figure, one, other, found[one][0], found[other][0])
        parts.append(text)
        if expected and order:
            ordered.append(order == expected)
        elif not expected and order is not None:
            level.append(order == expected)
    if not ordered:  # that some are alike means little where no order shows
        verdict = "is open" if all(level) else "does not hold"
    elif not any(ordered):
        verdict = "does not hold"
    else:
        verdict = "holds" if all(ordered + level) and len(ordered + level) == len(parts) else "holds in part"
    if missing and verdict != "is open":
        verdict += " so far"
    if missing:
        parts.append(f"{len(missing)} of {len(figure.rows)} lines have not been run")
    return Reading(verdict, "; ".join(parts))


def measured_by(figure: Artefact) -> str:
    """How lines are compared."""
    if figure.targets:
        return f"the virtual time to {figure.targets[0]:.0%}; level: within a tenth"
    return f"the last five evaluations within the {_AXES[figure.axis]} that both have; level: within the larger spread"


def _compare(figure: Artefact, one: str, other: str, mine: Result, theirs: Result) -> tuple[int | None, str]:
    """1: the first line is ahead; -1: it is behind; 0: level; None: that cannot be told. And the same in words."""
    if figure.targets:
        target, times = f"{figure.targets[0]:.0%}", [_time_to(figure.targets[0], run) for run in (mine, theirs)]
        first = min(times)
        if math.isinf(first):
            return None, f"neither {one} nor {other} reaches {target}"
        for name, run, time in zip((one, other), (mine, theirs), times, strict=True):
            if math.isinf(time) and not run.diverged and run.curve[-1][2] <= 1.1 * first:
                return None, f"{name} ended before it could be told whether it reaches {target} as soon"
        lines = [_Line(-time, 0.1 * first, "never" if math.isinf(time) else f"{time:.1f}") for time in times]
    else:
        axis = list(_AXES).index(figure.axis)
        end = min((run.curve[-1][axis] for run in (mine, theirs) if not run.diverged), default=0.0)
        if any(run.curve[0][axis] > end for run in (mine, theirs) if not run.diverged):
            return None, f"{one} and {other} were never measured within the same {_AXES[figure.axis]}"
        lines = [_accuracy(run, axis, end) for run in (mine, theirs)]
    a, b = lines
    level = a.score == b.score or abs(a.score - b.score) <= max(a.margin, b.margin) + 1e-9
    order = 0 if level else 1 if a.score > b.score else -1
    words = {1: "is ahead of", 0: "is level with", -1: "is behind"}[order]
    return order, f"{one} {words} {other} ({a.text} against {b.text})"


def _time_to(target: float, run: Result) -> float:
    if run.diverged:  # whatever it touched on its way
        return math.inf
    return next((time for _, _, time, accuracy in run.curve if accuracy >= target), math.inf)


def _accuracy(run: Result, axis: int, end: float) -> _Line:
    if run.diverged:
        return _Line(-math.inf, 0.0, "diverged")
    last = [100 * point[3] for point in run.curve if point[axis] <= end][-_LAST:]
    mean, spread = fmean(last), pstdev(last)
    return _Line(mean, spread, f"{mean:.1f} ± {spread:.1f}")


def nearest_reading(table: Artefact, column: int, results: Path) -> str:
    """Of a table whose rows are all readings of one published entry: which of them comes nearest to it?"""
    first = table.rows[0].published
    if len(table.rows) < 3 or not first or any(row.published != first for row in table.rows):
        return ""
    published, spread = first[column]
    found: list[tuple[float, str]] = []
    number = 0
    for row in table.rows:
        for run in results_of(table, row, column, results):
            number += 1
            if run.accuracy is not None:
                mean = 100 * run.accuracy
                found.append((abs(mean - published), f"{row.name} ({mean:.1f})"))
    if not found:
        return ""
    distance, name = min(found)
    where = "within" if distance <= spread else "outside"
    run = f"{number} of {len(table.rows)}"
    return f"nearest to the published {published:.2f} is {name}, {where} its spread ({run} have been run)"
