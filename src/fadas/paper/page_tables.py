"""The tables of the reproduction page: published and measured values side by side."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from statistics import fmean

from fadas.paper.agreement import OUTSIDE, Measured, measured_accuracy, published_text, time_to_target
from fadas.paper.artefacts import Artefact, short_setting
from fadas.paper.blocks import Block, Curves, Point
from fadas.paper.claims import judge_figure, measured_by, nearest_reading
from fadas.paper.results import Result, Search, find_search, known_cells, results_of, unlisted_results

Readings = list[Artefact]  # an artefact as printed and, if there is one, its version with the released code's settings


def measured_entries(artefact: Artefact, results: Path) -> dict[str, list[Measured]]:
    """Return the entries of each row, by the row's name: one per column."""
    measure = time_to_target if artefact.kind == "time" else measured_accuracy
    columns = range(len(artefact.columns))
    return {row.name: [measure(artefact, row, column, results) for column in columns] for row in artefact.rows}


def figure_blocks(readings: Readings, results: Path) -> Iterator[Block]:
    """Yield the blocks of a figure: its claim, a table, verdicts and curves."""
    yield Block("text", f"The paper's reading: {readings[0].claim}")
    yield _comparison(readings, results)
    verdicts = {
        label: judge_figure(artefact, results)
        for label, artefact in zip(reading_labels(readings), readings, strict=True)
    }
    sentences = [f"**{label.capitalize()}, this {verdict}**: {text}." for label, (verdict, text) in verdicts.items()]
    yield Block("text", f"{' '.join(sentences)} (Compared: {measured_by(readings[0])}.)")
    for artefact in readings:
        curves = _curves(artefact, 0, results)
        counts = Counter(row.method for row in artefact.rows if curves[row.name])
        if max(counts.values(), default=0) > 1:  # at least two lines of one method can be compared
            yield Block("figure", artefact.name, head=(artefact.title, artefact.axis), curves=curves)


def _curves(artefact: Artefact, column: int, results: Path) -> Curves:
    """Return the curve of each row's first seed. It is empty if the row has not been run, or diverged."""
    found = {row.name: results_of(artefact, row, column, results) for row in artefact.rows}
    return {name: runs[0].curve if runs and not runs[0].diverged else [] for name, runs in found.items()}


def time_blocks(readings: Readings, results: Path) -> Iterator[Block]:
    """Yield the table of times to a target. It has a line for each data set, as in the paper."""
    original = readings[0]
    labels = ["paper", "measured"] if original.compared else ["measured"]
    measured = [measured_entries(artefact, results) for artefact in readings]
    rows: list[tuple[str, ...]] = []
    for column, heading in enumerate(original.columns):
        for artefact, by_row in zip(readings, measured, strict=True):
            suffix = ", released code" if artefact.original else ""
            entries = [f"{heading}{suffix}", f"{original.targets[column]:.0%}"]
            for row in original.rows:
                entries += [published_text(row, column)] if original.compared else []
                entries.append(_entry(by_row, row.name, column))
            rows.append(tuple(entries))
    head = ("", "target", *_headings([row.name for row in original.rows], labels))
    yield Block("table", head=head, rows=tuple(rows))


def accuracy_blocks(readings: Readings, results: Path) -> Iterator[Block]:
    """Yield the blocks of a table of accuracies: the table, tuned settings, steadiness, curves and further results."""
    artefact = readings[0]
    yield _comparison(readings, results)
    nearest = {heading: nearest_reading(artefact, column, results) for column, heading in enumerate(artefact.columns)}
    if sentences := [f"{heading}: {text}." for heading, text in nearest.items() if text]:
        yield Block("text", " ".join(sentences))
    yield from tuned_blocks(zip(readings, reading_labels(readings), strict=True), results)
    if artefact.seeds > 1:
        return  # the same table with one seed shows the rest
    yield from _last_fifth(readings, results)
    if len({row.method for row in artefact.rows}) < len(artefact.rows):
        return  # too many lines for a figure
    for version in readings:
        for column, heading in enumerate(version.columns):
            # rows that only the first version has keep their place, so that a method has the same colour in both
            curves = {row.name: [] for row in artefact.rows} | _curves(version, column, results)
            if any(curves.values()):
                title = f"{version.title}: {heading}"
                yield Block("figure", f"{version.name}-{column + 1}", (title, "updates"), (), curves)
    if any(row.set for row in artefact.rows):
        return  # further results are shown with the table of the published settings
    known = known_cells(results)
    further = [
        (", ".join([result.method, *result.changes]), f"{heading}, seed {result.seed}", _format_accuracy(result))
        for heading, experiment in artefact.columns.items()
        for result in unlisted_results(experiment, results, known)
    ]
    if further:
        yield Block("text", "With other settings than the published ones, or other seeds:")
        yield Block("table", head=("method and settings", "", "measured"), rows=tuple(further))


def _comparison(readings: Readings, results: Path) -> Block:
    """Return a table with published and measured entries for each row and column."""
    artefact = readings[0]
    measured = [measured_entries(version, results) for version in readings]
    rows: list[tuple[str, ...]] = []
    for row in artefact.rows:
        entries = [row.name]
        for column in range(len(artefact.columns)):
            entries += [published_text(row, column)] if artefact.compared else []
            entries += [_entry(by_row, row.name, column) for by_row in measured]
        rows.append(tuple(entries))
    labels = ["paper", *reading_labels(readings)] if artefact.compared else reading_labels(readings)
    return Block("table", head=("method", *_headings(artefact.columns, labels)), rows=tuple(rows))


def _last_fifth(readings: Readings, results: Path) -> Iterator[Block]:
    """Yield a table of accuracies over the last fifth of the runs.

    Accuracies swing for longer than the last five evaluations, which may be a good or a bad moment.
    """
    artefact = readings[0]
    rows: list[tuple[str, ...]] = []
    curves = [_curves(version, column, results) for column in range(len(artefact.columns)) for version in readings]
    for row in artefact.rows:
        entries = [_steadiness(by_row.get(row.name, [])) for by_row in curves]
        if any(entries):
            rows.append((row.name, *entries))
    if rows:
        yield Block("text", "How steady that is: the mean and the range over the last fifth of the run.")
        yield Block("table", head=("method", *_headings(artefact.columns, reading_labels(readings))), rows=tuple(rows))


def _steadiness(curve: list[Point]) -> str:
    """Return the mean and the range of the accuracy over the last fifth of a curve, in percent."""
    last = [100 * value for _, updates, _, value in curve if updates > 0.8 * curve[-1][1]]
    return f"{fmean(last):.1f} ({min(last):.1f} to {max(last):.1f})" if last else ""


def reading_labels(readings: Readings) -> list[str]:
    """Return the column heading of each version of an artefact."""
    return ["as printed", "released code"] if len(readings) > 1 else ["measured"]


def _headings(names: Iterable[str], labels: Sequence[str]) -> list[str]:
    return [f"{name}, {label}" if len(labels) > 1 else name for name in names for label in labels]


def _entry(measured: dict[str, list[Measured]], row: str, column: int) -> str:
    if row not in measured:  # the released code has no such method
        return "-"
    return measured[row][column].marked


def _format_accuracy(result: Result) -> str:
    if result.accuracy is None:
        return "diverged"
    return f"{100 * result.accuracy:.1f} ± {100 * (result.accuracy_std or 0.0):.1f}"


_PUBLISHED = "the published ones"

_TUNED = (
    "Where that falls outside the paper's spread, its grids were searched (`--tune`): on a seed that is not reported "
    "(100), on a tenth of the training data held out, and by halving: all points ran an eighth of the way, the best "
    "quarter to half, its best quarter to the end. The best point then ran as the others did."
)

_VERDICTS = {"agrees": "agrees with", "better": "is better than", "worse": "is worse than"}


def tuned_blocks(readings: Iterable[tuple[Artefact, str]], results: Path) -> Iterator[Block]:
    """Yield a table and sentences on the entries outside the paper's spread whose grids were searched.

    Args:
        readings: The versions of an artefact, each with its label.
        results: The folder of results.
    """
    rows: list[tuple[str, ...]] = []
    sentences: list[str] = []
    for artefact, label in readings:
        for column, (heading, experiment) in enumerate(artefact.columns.items()):
            for row in artefact.rows:
                before = measured_accuracy(artefact, row, column, results)
                search = find_search(row, experiment, results)
                if not search or before.verdict not in OUTSIDE:
                    continue  # the search may belong to another table
                name = row.name if label != "released code" else f"{row.name}, {label}"
                winning = search.winning_row(row)
                after = measured_accuracy(artefact, winning, column, results) if winning else None
                line = name, heading, published_text(row, column), before.marked
                score = "-" if search.score is None else f"{100 * search.score:.1f}"
                rows.append((*line, _best_settings(search), score, after.marked if after else "-"))
                if after and after.verdict != "not run":
                    sentences.append(f"{name}, {heading}: {_difference(_best_settings(search), before, after)}.")
    if rows:
        yield Block("text", _TUNED)
        head = ("method", "", "paper", "published settings", "best of the grid", "on held-out data", "tuned")
        yield Block("table", head=head, rows=tuple(rows))
    if sentences:
        yield Block("text", " ".join(sentences))


def _best_settings(search: Search) -> str:
    settings = search.winning_settings
    if settings is None:
        return "all diverged" if search.complete else f"not searched to the end ({len(search.tried)} runs)"
    return ", ".join(short_setting(key, value) for key, value in settings.items()) or _PUBLISHED


def _difference(settings: str, before: Measured, after: Measured) -> str:
    if settings == _PUBLISHED:
        return "the published settings are the best of the grid"
    if after.text.startswith("diverged"):
        return f"{settings} {after.text}"
    return f"{settings} brings {after.text} instead of {before.text}, which {_VERDICTS[after.verdict]} the paper"
