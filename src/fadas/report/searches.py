"""What is kept of a search over the paper's grid: the points that were tried, how far each got, and which one won."""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fadas.build import ConfigError
from fadas.intact import DAMAGE
from fadas.report.artefacts import Artefact, Cell, Result, Row, artefacts, load, merged
from fadas.report.artefacts import read as read_result

SEED = 100  # not one of those that are reported
Tried = tuple[list[str], float, float | None]  # a point's settings, the share of a run that it got, its accuracy then


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
    tried: list[Tried]
    complete: bool
    winner: list[str] | None  # what it changes beside; none: all points diverged, or the search is not complete
    config: dict[str, Any]
    device: str
    versions: dict[str, str]
    commit: str

    @property
    def cell(self) -> Cell:
        return Cell(self.experiment, self.method, self.seed, tuple(self.changes))

    @property
    def score(self) -> float | None:
        """The winner's accuracy at the end of its run."""
        return max((accuracy for _, share, accuracy in self.tried if share == 1 and accuracy is not None), default=None)

    def winning(self, row: Row) -> Row | None:
        """The row that was searched, with the winner's settings."""
        if self.winner is None:
            return None
        return Row(row.name, row.method, row.published, merged(*row.set, *self.winner))


def path_of(cell: Cell, results: Path) -> Path:
    return results / cell.experiment / "searches" / f"{cell.name}.json"


def find(row: Row, experiment: str, results: Path) -> Search | None:
    """The search for better settings of a row in one of its columns, complete or not; None where there is none."""
    path = path_of(Cell(experiment, row.method, SEED, row.set), results)
    return read(path) if path.exists() else None


def tuned_cells(artefact: Artefact, results: Path) -> list[Cell]:
    """The cells that searches have found, in the artefact's order and for its seeds."""
    cells: list[Cell] = []
    for seed in range(artefact.seeds):
        for experiment in artefact.columns.values():
            for row in artefact.rows:
                search = find(row, experiment, results)
                if search and (winning := search.winning(row)):
                    cells.append(artefact.cells(winning, experiment)[seed])
    return cells


def read(path: Path) -> Search:
    try:
        search = Search(**json.loads(path.read_text(encoding="utf-8")))
        numbers = [search.validation]
        search.tried[:] = [(settings, share, accuracy) for settings, share, accuracy in search.tried]
        for settings, share, accuracy in search.tried:
            numbers += [share, 0.0 if accuracy is None else accuracy]
            if not all(isinstance(setting, str) for setting in settings):
                raise ValueError("a point's settings are not texts")
        if not all(isinstance(number, int | float) and math.isfinite(number) for number in numbers):
            raise ValueError("a number is missing")
        if path != path_of(search.cell, path.parents[2]):
            raise ValueError(f"it holds {search.experiment} {search.cell.name}")
    except (*DAMAGE, OSError) as error:
        raise ConfigError(f"{path} is not a search of fadas: {type(error).__name__}: {error}", "damaged") from None
    return search


def shown(results: Path) -> list[Result]:
    """All that the page shows: what has been run of the artefacts, tuned too, and `others` of their experiments."""
    cells = _known(results)
    found = [result for result in (load(cell, results) for cell in cells) if result]
    experiments = dict.fromkeys(cell.experiment for cell in cells)
    return found + [one for experiment in experiments for one in others(experiment, results)]


def others(experiment: str, results: Path) -> list[Result]:
    """Results of an experiment that belong to no artefact: other settings, or other seeds.

    Shortened runs are trials, and not shown.
    """
    known = _known(results)
    found = [read_result(path) for path in sorted((results / experiment).glob("*.json"))]
    return [
        one
        for one in found
        if one.cell not in known and not any(change.startswith("rounds=") for change in one.changes)
    ]


def _known(results: Path) -> dict[Cell, None]:
    """The cells that have a place of their own on the page."""
    every = artefacts().values()
    return dict.fromkeys(cell for one in every for cell in (*one.all_cells(), *tuned_cells(one, results)))
