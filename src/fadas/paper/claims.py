"""Check the paper's claims on its figures and tables against what was measured, with a sentence for each claim."""

import math
from pathlib import Path
from statistics import fmean, pstdev
from typing import NamedTuple

from fadas.paper.artefacts import Artefact
from fadas.paper.results import Result, results_of

_AXES = {"step": "rounds", "updates": "client trips", "time": "units of time"}
_LAST = 5  # evaluations, as in the paper's tables


class Reading(NamedTuple):
    """Result of `judge_figure`.

    Attributes:
        verdict: Does the paper's claim hold? "holds", "holds in part", "does not hold" or "is open". " so far" follows
            if lines that the claim names have not been run.
        text: The measured order of the lines, in words.
    """

    verdict: str
    text: str


class _Line(NamedTuple):
    """The value by which a line is compared with another one.

    Attributes:
        score: The line with the larger score is ahead.
        margin: Two lines are level if their scores differ by the larger margin at most.
        text: The value as the page shows it.
    """

    score: float
    margin: float
    text: str


def judge_figure(figure: Artefact, results: Path) -> Reading:
    """Return whether the lines of a figure are in the order that the paper claims."""
    found = {row.name: results_of(figure, row, 0, results) for row in figure.rows}
    pairs = [(pair, 1) for pair in figure.ahead] + [(pair, 0) for pair in figure.alike]
    missing = [name for name, runs in found.items() if not runs and any(name in pair for pair, _ in pairs)]
    ordered: list[bool] = []  # for pairs that should differ: do they differ as claimed? Level pairs are left out
    level: list[bool] = []  # for pairs that should be level: are they?
    parts: list[str] = []
    for (first, second), expected in pairs:
        if first in missing or second in missing:
            continue
        order, text = _compare(figure, first, second, found[first][0], found[second][0])
        parts.append(text)
        if expected and order:
            ordered.append(order == expected)
        elif not expected and order is not None:
            level.append(order == expected)
    if not ordered:  # level pairs alone are too little for "holds"
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
    """Return how the lines of a figure are compared, in words."""
    if figure.targets:
        return f"the virtual time to {figure.targets[0]:.0%}; level: within a tenth"
    return f"the last five evaluations within the {_AXES[figure.axis]} that both have; level: within the larger spread"


def _compare(
    figure: Artefact, first: str, second: str, first_run: Result, second_run: Result
) -> tuple[int | None, str]:
    """Return the order of two lines, as a number and in words.

    | number | the first line                       |
    |--------|--------------------------------------|
    | 1      | is ahead                             |
    | 0      | is level with the second             |
    | -1     | is behind                            |
    | None   | cannot be compared with the second   |
    """
    runs = (first_run, second_run)
    if figure.targets:
        target, times = f"{figure.targets[0]:.0%}", [_time_to(figure.targets[0], run) for run in runs]
        earliest = min(times)
        if math.isinf(earliest):
            return None, f"neither {first} nor {second} reaches {target}"
        for name, run, time in zip((first, second), runs, times, strict=True):
            if math.isinf(time) and not run.diverged and run.curve[-1][2] <= 1.1 * earliest:
                return None, f"{name} ended too early to compare"
        lines = [_Line(-time, 0.1 * earliest, "never" if math.isinf(time) else f"{time:.1f}") for time in times]
    else:
        axis = list(_AXES).index(figure.axis)
        end = min((run.curve[-1][axis] for run in runs if not run.diverged), default=0.0)
        if any(run.curve[0][axis] > end for run in runs if not run.diverged):
            return None, f"{first} and {second} were never measured within the same {_AXES[figure.axis]}"
        lines = [_accuracy(run, axis, end) for run in runs]
    a, b = lines
    level = a.score == b.score or abs(a.score - b.score) <= max(a.margin, b.margin) + 1e-9
    order = 0 if level else 1 if a.score > b.score else -1
    words = {1: "is ahead of", 0: "is level with", -1: "is behind"}[order]
    return order, f"{first} {words} {second} ({a.text} against {b.text})"


def _time_to(target: float, run: Result) -> float:
    """Return the virtual time at which a run first reaches the target accuracy; infinity if it never does."""
    if run.diverged:  # also if it reached the target before
        return math.inf
    return next((time for _, _, time, accuracy in run.curve if accuracy >= target), math.inf)


def _accuracy(run: Result, axis: int, end: float) -> _Line:
    """Return the mean and the spread of the last evaluations up to `end`."""
    if run.diverged:
        return _Line(-math.inf, 0.0, "diverged")
    last = [100 * point[3] for point in run.curve if point[axis] <= end][-_LAST:]
    mean, spread = fmean(last), pstdev(last)
    return _Line(mean, spread, f"{mean:.1f} ± {spread:.1f}")


def nearest_reading(table: Artefact, column: int, results: Path) -> str:
    """Return which row comes nearest to the published entry, in words.

    Empty, unless the table has at least three rows and all of them interpret the same published entry.
    """
    common = table.rows[0].published
    if len(table.rows) < 3 or not common or any(row.published != common for row in table.rows):
        return ""
    published, spread = common[column]
    found: list[tuple[float, str]] = []
    count = 0
    for row in table.rows:
        for run in results_of(table, row, column, results):
            count += 1
            if run.accuracy is not None:
                mean = 100 * run.accuracy
                found.append((abs(mean - published), f"{row.name} ({mean:.1f})"))
    if not found:
        return ""
    distance, name = min(found)
    where = "within" if distance <= spread else "outside"
    share = f"{count} of {len(table.rows)}"
    return f"nearest to the published {published:.2f} is {name}, {where} its spread ({share} have been run)"
