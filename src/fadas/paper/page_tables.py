"""The tables of the reproduction's page: what the paper says beside what was measured."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from statistics import fmean

from fadas.paper.agreement import OUTSIDE, Measured, measured_accuracy, published_text, time_to_target
from fadas.paper.artefacts import Artefact, short_setting
from fadas.paper.blocks import Block, Curves, Point
from fadas.paper.claims import judge_figure, measured_by, nearest_reading
from fadas.paper.results import Result, Search, find_search, known_cells, results_of, unlisted_results

Readings = list[Artefact]  # the paper as printed and, where there is that, as in the released code


def _measured(artefact: Artefact, results: Path) -> dict[str, list[Measured]]:
    """By the names of its rows: an entry for each column."""
    measure = time_to_target if artefact.kind == "time" else measured_accuracy
    columns = range(len(artefact.columns))
    return {row.name: [measure(artefact, row, column, results) for column in columns] for row in artefact.rows}


def _figures(readings: Readings, results: Path) -> Iterator[Block]:
    yield Block("text", f"The paper's reading: {readings[0].claim}")
    yield _comparison(readings, results)
    verdicts = {kind: judge_figure(one, results) for kind, one in zip(_kinds(readings), readings, strict=True)}
    sentences = [f"**{kind.capitalize()}, this {verdict}**: {text}." for kind, (verdict, text) in verdicts.items()]
    yield Block("text", f"{' '.join(sentences)} (Compared: {measured_by(readings[0])}.)")
    for artefact in readings:
        curves = _curves(artefact, 0, results)
        run = Counter(row.method for row in artefact.rows if curves[row.name])
        if max(run.values(), default=0) > 1:  # there is something to compare
            yield Block("figure", artefact.name, head=(artefact.title, artefact.axis), curves=curves)


def _curves(artefact: Artefact, column: int, results: Path) -> Curves:
    found = {row.name: results_of(artefact, row, column, results) for row in artefact.rows}
    return {name: runs[0].curve if runs and not runs[0].diverged else [] for name, runs in found.items()}


def _times(readings: Readings, results: Path) -> Iterator[Block]:
    """As the paper has it: a line for each data set."""
    original = readings[0]
    kinds = ["paper", "measured"] if original.compared else ["measured"]
    measured = [_measured(one, results) for one in readings]
    rows: list[tuple[str, ...]] = []
    for column, heading in enumerate(original.columns):
        for artefact, ours in zip(readings, measured, strict=True):
            reading = ", released code" if artefact.original else ""
            entries = [f"{heading}{reading}", f"{original.targets[column]:.0%}"]
            for row in original.rows:
                entries += [published_text(row, column)] if original.compared else []
                entries.append(_entry(ours, row.name, column))
            rows.append(tuple(entries))
    head = ("", "target", *_headings([row.name for row in original.rows], kinds))
    yield Block("table", head=head, rows=tuple(rows))


def _accuracies(readings: Readings, results: Path) -> Iterator[Block]:
    artefact = readings[0]
    yield _comparison(readings, results)
    near = {heading: nearest_reading(artefact, column, results) for column, heading in enumerate(artefact.columns)}
    if sentences := [f"{heading}: {text}." for heading, text in near.items() if text]:
        yield Block("text", " ".join(sentences))
    yield from tuned_blocks(zip(readings, _kinds(readings), strict=True), results)
    if artefact.seeds > 1:
        return  # the table of one seed shows the rest
    yield from _last_fifth(readings, results)
    if len({row.method for row in artefact.rows}) < len(artefact.rows):
        return  # too many lines for a figure
    for one in readings:
        for column, heading in enumerate(one.columns):
            # a row that only the first reading has keeps its place: a method has the same colour in both
            curves = {row.name: [] for row in artefact.rows} | _curves(one, column, results)
            if any(curves.values()):
                yield Block("figure", f"{one.name}-{column + 1}", (f"{one.title}: {heading}", "updates"), (), curves)
    if any(row.set for row in artefact.rows):
        return  # and what was searched stands with the published settings
    known = known_cells(results)
    beside = [
        (", ".join([one.method, *one.changes]), f"{heading}, seed {one.seed}", _percent(one))
        for heading, experiment in artefact.columns.items()
        for one in unlisted_results(experiment, results, known)
    ]
    if beside:
        yield Block("text", "With other settings than the published ones, or other seeds:")
        yield Block("table", head=("method and settings", "", "measured"), rows=tuple(beside))


def _comparison(readings: Readings, results: Path) -> Block:
    """A line for each row; in each column what the paper says, where it does, and what was measured."""
    artefact = readings[0]
    measured = [_measured(one, results) for one in readings]
    rows: list[tuple[str, ...]] = []
    for row in artefact.rows:
        entries = [row.name]
        for column in range(len(artefact.columns)):
            entries += [published_text(row, column)] if artefact.compared else []
            entries += [_entry(one, row.name, column) for one in measured]
        rows.append(tuple(entries))
    kinds = ["paper", *_kinds(readings)] if artefact.compared else _kinds(readings)
    return Block("table", head=("method", *_headings(artefact.columns, kinds)), rows=tuple(rows))


def _last_fifth(readings: Readings, results: Path) -> Iterator[Block]:
    """The last five evaluations may be a good or a bad moment; accuracies swing for longer than that."""
    artefact = readings[0]
    rows: list[tuple[str, ...]] = []
    curves = [[_curves(one, column, results) for one in readings] for column in range(len(artefact.columns))]
    for row in artefact.rows:
        entries = [_steadiness(one.get(row.name, [])) for column in curves for one in column]
        if any(entries):
            rows.append((row.name, *entries))
    if rows:
        yield Block("text", "How steady that is: the mean and the range over the last fifth of the run.")
        yield Block("table", head=("method", *_headings(artefact.columns, _kinds(readings))), rows=tuple(rows))


def _steadiness(curve: list[Point]) -> str:
    last = [100 * value for _, updates, _, value in curve if updates > 0.8 * curve[-1][1]]
    return f"{fmean(last):.1f} ({min(last):.1f} to {max(last):.1f})" if last else ""


def _kinds(readings: Readings) -> list[str]:
    return ["as printed", "released code"] if len(readings) > 1 else ["measured"]


def _headings(names: Iterable[str], kinds: Sequence[str]) -> list[str]:
    return [f"{name}, {kind}" if len(kinds) > 1 else name for name in names for kind in kinds]


def _entry(measured: dict[str, list[Measured]], row: str, column: int) -> str:
    if row not in measured:  # the released code has no such method
        return "-"
    return measured[row][column].marked


def _percent(result: Result) -> str:
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
    """What the paper's grids hold for entries that are not the paper's: both numbers, and a sentence on each."""
    rows: list[tuple[str, ...]] = []
    sentences: list[str] = []
    for artefact, kind in readings:
        for column, (heading, experiment) in enumerate(artefact.columns.items()):
            for row in artefact.rows:
                before, search = (
                    measured_accuracy(artefact, row, column, results),
                    find_search(row, experiment, results),
                )
                if not search or before.verdict not in OUTSIDE:
                    continue  # a search may have been made for another table
                name = row.name if kind != "released code" else f"{row.name}, {kind}"
                winning = search.winning_row(row)
                after = measured_accuracy(artefact, winning, column, results) if winning else None
                line = name, heading, published_text(row, column), before.marked
                score = "-" if search.score is None else f"{100 * search.score:.1f}"
                rows.append((*line, _best(search), score, after.marked if after else "-"))
                if after and after.verdict != "not run":
                    sentences.append(f"{name}, {heading}: {_difference(_best(search), before, after)}.")
    if rows:
        yield Block("text", _TUNED)
        head = ("method", "", "paper", "published settings", "best of the grid", "on held-out data", "tuned")
        yield Block("table", head=head, rows=tuple(rows))
    if sentences:
        yield Block("text", " ".join(sentences))


def _best(search: Search) -> str:
    settings = search.winning_settings
    if settings is None:
        return "all diverged" if search.complete else f"not searched to the end ({len(search.tried)} runs)"
    return ", ".join(short_setting(*one) for one in settings.items()) or _PUBLISHED


def _difference(settings: str, before: Measured, after: Measured) -> str:
    if settings == _PUBLISHED:
        return "the published settings are the best of the grid"
    if after.text.startswith("diverged"):
        return f"{settings} {after.text}"
    return f"{settings} brings {after.text} instead of {before.text}, which {_VERDICTS[after.verdict]} the paper"
