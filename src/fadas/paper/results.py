"""What is kept of a search over the paper's grid: the points that were tried, how far each got, and which one won."""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fadas.errors import ConfigError
from fadas.paper.artefacts import Artefact, Cell, Row, merged
from fadas.runs.reader import DAMAGE

SEED = 100  # not one of those that are reported
Tried = tuple[dict[str, Any], float, float | None]  # a point, the share of a run that it got, its accuracy then


@dataclass(frozen=True)
class Search:
    """`tried` is in the order in which it was run; who is there several times went on. Without an accuracy: diverged.

    Accuracies are those on training data that were held out, a share of `validation` of them.
    """

    experiment: str
    method: str
    seed: int
    changes: list[str]  # of the cell whose grid it is
    validation: float
    grid: list[dict[str, Any]]  # all points
    tried: list[Tried]
    complete: bool
    winner: list[str] | None  # what it changes beside, as --set takes it; none: all diverged, or it is not complete
    score: float | None  # the winner's accuracy
    config: dict[str, Any]
    device: str
    versions: dict[str, str]
    commit: str

    @property
    def cell(self) -> Cell:
        return Cell(self.experiment, self.method, self.seed, tuple(self.changes))

    def winning(self, row: Row) -> Row | None:
        """The row that was searched, with the winner's settings."""
        if self.winner is None:
            return None
        return Row(row.name, row.method, row.published, merged(*row.set, *self.winner))


def search_path(cell: Cell, results: Path) -> Path:
    return results / cell.experiment / "searches" / f"{cell.name}.json"


def find_search(row: Row, experiment: str, results: Path) -> Search | None:
    """The search for better settings of a row in one of its columns, complete or not; None where there is none."""
    path = search_path(Cell(experiment, row.method, SEED, row.set), results)
    return read_search(path) if path.exists() else None


def tuned_cells(artefact: Artefact, row: Row, experiment: str, results: Path) -> list[Cell]:
    """The cells that a search has found for a row, one for each of the artefact's seeds."""
    search = find_search(row, experiment, results)
    winning = search.winning(row) if search else None
    return artefact.cells(winning, experiment) if winning else []


_KINDS = {
    "changes": list,
    "grid": list,
    "tried": list,
    "complete": bool,
    "winner": list | None,
    "config": dict,
    "device": str,
    "versions": dict,
    "commit": str,
}


def read_search(path: Path) -> Search:
    try:
        search = Search(**json.loads(path.read_text(encoding="utf-8")))
        if wrong := [name for name, kind in _KINDS.items() if not isinstance(getattr(search, name), kind)]:
            raise ValueError(f"its {wrong[0]} is not one")
        if not all(isinstance(change, str) and "=" in change for change in (*search.changes, *(search.winner or []))):
            raise ValueError("a setting is not one")
        if search.winner is not None and not (search.complete and isinstance(search.score, float)):
            raise ValueError("a winner without a score")
        search.tried[:] = [(point, share, accuracy) for point, share, accuracy in search.tried]
        numbers = [search.validation, *(share for _, share, _ in search.tried)]
        numbers += [accuracy for _, _, accuracy in search.tried if accuracy is not None]
        if not all(isinstance(number, int | float) and math.isfinite(number) for number in numbers):
            raise ValueError("a number is missing")
        if not all(isinstance(point, dict) for point in (*search.grid, *(point for point, _, _ in search.tried))):
            raise ValueError("a point is not one")
        if path != search_path(search.cell, path.parents[2]):
            raise ValueError(f"it holds {search.experiment} {search.cell.name}")
    except (*DAMAGE, OSError) as error:
        raise ConfigError(f"{path} is not a search of fadas: {type(error).__name__}: {error}", "damaged") from None
    return search
