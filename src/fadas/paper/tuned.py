"""On the reproduction's page: what searches over the paper's grids have found."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from fadas.paper.agreement import OUTSIDE, Measured, measured_accuracy, published_text
from fadas.paper.artefacts import Artefact, short
from fadas.paper.blocks import Block
from fadas.paper.results import Search, find_search

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
                winning = search.winning(row)
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
    if search.winner is None:
        return "all diverged" if search.complete else f"not searched to the end ({len(search.tried)} runs)"
    return ", ".join(map(short, search.winner)) or _PUBLISHED


def _difference(settings: str, before: Measured, after: Measured) -> str:
    if settings == _PUBLISHED:
        return "the published settings are the best of the grid"
    if after.text.startswith("diverged"):
        return f"{settings} {after.text}"
    return f"{settings} brings {after.text} instead of {before.text}, which {_VERDICTS[after.verdict]} the paper"
