"""The entries of a table: the measured value as text, and how it compares with the published value."""

from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, pstdev

from fadas.errors import Damaged
from fadas.paper.artefacts import Artefact, Row
from fadas.paper.results import Result, results_of

OUTSIDE = ("better", "worse")
MARKS = {"agrees": "=", "better": "▲", "worse": "▼", "not run": "·", "": ""}  # "not run": also if a run was too short


@dataclass(frozen=True)
class Measured:
    """A measured entry of a table.

    Attributes:
        text: The value as the table shows it.
        verdict: How it compares with the published entry: a key of `MARKS`. Empty if the paper has no such entry.
    """

    text: str
    verdict: str

    @property
    def marked(self) -> str:
        """The text with the mark of the verdict."""
        return f"{self.text} {MARKS[self.verdict]}".strip()


def measured_accuracy(artefact: Artefact, row: Row, column: int, results: Path) -> Measured:
    """Return the accuracy of an entry, in percent.

    It agrees with the paper if the means differ by at most the larger of the two standard deviations.

    Args:
        artefact: The table.
        row: The entry's row.
        column: The index of the entry's column.
        results: The folder of results.
    """
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
    published, published_spread = row.published[column]
    close = abs(mean - published) <= max(spread, published_spread) + 1e-9  # includes the bound, however it is rounded
    return Measured(text, "agrees" if close else "better" if mean > published else "worse")


def time_to_target(artefact: Artefact, row: Row, column: int, results: Path) -> Measured:
    """Return the virtual time to the target accuracy of an entry. Less is better.

    It agrees with the paper if it is at most a tenth more or less. The paper gives no spread for times.

    Args:
        artefact: The table.
        row: The entry's row.
        column: The index of the entry's column.
        results: The folder of results.

    Raises:
        Damaged: The result holds the time to another target accuracy.
    """
    found = results_of(artefact, row, column, results)
    if not found:
        return Measured("not run", "not run")
    if found[0].accuracy is None:
        return _diverged(found[:1], artefact, row)
    if found[0].target != artefact.targets[column]:
        path, expected = found[0].cell.path(results), artefact.targets[column]
        raise Damaged(f'{path}: "target" must be {expected}, got {found[0].target}')
    time, end = found[0].time_to_target, found[0].curve[-1][2]
    text = f"not by {end:.0f} ({100 * found[0].accuracy:.1f} %)" if time is None else f"{time:.1f}"
    published = row.published[column] if row.published else None
    if published is None:
        verdict = ""
    elif time is None:  # no verdict if the run ended before it could have agreed
        verdict = "agrees" if published == "never" else "worse" if end > 1.1 * published else "not run"
    elif published == "never" or time < 0.9 * published - 1e-9:  # both bounds agree, however they are rounded
        verdict = "better"
    else:
        verdict = "agrees" if time <= 1.1 * published + 1e-9 else "worse"
    return Measured(text, verdict)


def _diverged(found: list[Result], artefact: Artefact, row: Row) -> Measured:
    """Return an entry without a number, because the mean of the other seeds would flatter the method."""
    count = sum(bool(result.diverged) for result in found)
    text = f"diverged ({count} of {artefact.seeds} seeds)" if artefact.seeds > 1 else "diverged"
    return Measured(text, "worse" if row.published else "")


def published_text(row: Row, column: int) -> str:
    """Return the published entry as the table shows it; "-" if the paper has none."""
    if row.published is None:
        return "-"
    entry = row.published[column]
    return f"{entry[0]:.2f} ± {entry[1]:.2f}" if isinstance(entry, list) else str(entry)
