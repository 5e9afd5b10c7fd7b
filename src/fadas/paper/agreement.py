"""What was measured, as a table shows it, and how it compares with what the paper says."""

from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, pstdev

from fadas.errors import Damaged
from fadas.paper.artefacts import Artefact, Row
from fadas.paper.results import Result, results_of

OUTSIDE = ("better", "worse")
MARKS = {"agrees": "=", "better": "▲", "worse": "▼", "not run": "·", "": ""}  # not run: or not far enough to tell


@dataclass(frozen=True)
class Measured:
    """A table's entry: its text, and how it compares with the paper's."""

    text: str
    verdict: str  # a key of MARKS; empty where the paper has nothing to compare with

    @property
    def marked(self) -> str:
        return f"{self.text} {MARKS[self.verdict]}".strip()


def measured_accuracy(artefact: Artefact, row: Row, column: int, results: Path) -> Measured:
    found = results_of(artefact, row, column, results)
    if not found:
        return Measured("not run", "not run")
    values = [100 * result.accuracy for result in found if result.accuracy is not None]
    if len(values) < len(found):
        return _diverged(found, artefact, row)
    if artefact.seeds > 1:
        mean, spread = fmean(values), pstdev(values)
        if len(values) < artefact.seeds:
            return Measured(f"{mean:.1f} ({len(values)} of {artefact.seeds} seeds)", "not run")
    else:
        mean, spread = values[0], 100 * (found[0].accuracy_std or 0.0)
    text = f"{mean:.1f} ± {spread:.1f}"
    if row.published is None:
        return Measured(text, "")
    published, its = row.published[column]
    near = abs(mean - published) <= max(spread, its) + 1e-9  # the edge belongs to it, however it is rounded
    return Measured(text, "agrees" if near else "better" if mean > published else "worse")


def time_to_target(artefact: Artefact, row: Row, column: int, results: Path) -> Measured:
    """Less is better; the paper gives no spread, so only a tenth more or less counts as agreement."""
    found = results_of(artefact, row, column, results)
    if not found:
        return Measured("not run", "not run")
    if found[0].accuracy is None:
        return _diverged(found[:1], artefact, row)
    if found[0].target != artefact.targets[column]:
        path, theirs = found[0].cell.path(results), artefact.targets[column]
        raise Damaged(f"{path} has the time to an accuracy of {found[0].target}, not {theirs}")
    time, end = found[0].time_to_target, found[0].curve[-1][2]
    text = f"not by {end:.0f} ({100 * found[0].accuracy:.1f} %)" if time is None else f"{time:.1f}"
    published = row.published[column] if row.published else None
    if published is None:
        verdict = ""
    elif time is None:  # a run that ended before it could have agreed says nothing
        verdict = "agrees" if published == "never" else "worse" if end > 1.1 * published else "not run"
    elif published == "never" or time < 0.9 * published - 1e-9:  # the edges belong to it, however they are rounded
        verdict = "better"
    else:
        verdict = "agrees" if time <= 1.1 * published + 1e-9 else "worse"
    return Measured(text, verdict)


def _diverged(found: list[Result], artefact: Artefact, row: Row) -> Measured:
    """No number: a mean over the other seeds would flatter it."""
    count = sum(bool(result.diverged) for result in found)
    text = f"diverged ({count} of {artefact.seeds} seeds)" if artefact.seeds > 1 else "diverged"
    return Measured(text, "worse" if row.published else "")


def published_text(row: Row, column: int) -> str:
    if row.published is None:
        return "-"
    entry = row.published[column]
    return f"{entry[0]:.2f} ± {entry[1]:.2f}" if isinstance(entry, list) else str(entry)
