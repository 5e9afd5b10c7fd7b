"""What is kept of the paper's cells: a result for each finished cell, and a search for each tuned one.

Both are small JSON files. In the files, `changes` and `winner` are strings as `--set` takes them; in memory they are
values.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Self

from fadas.core.records import TAUS
from fadas.errors import ConfigError, Damaged
from fadas.experiments.experiment_file import as_override, parse_change
from fadas.paper.artefacts import Artefact, Cell, Row, Settings, all_artefacts
from fadas.runs.formats import FORMAT, format_of, upgrade_table
from fadas.runs.serialization import from_table, strict_json, to_json, write_text

SEARCH_SEED = 100  # not one of the seeds that are reported
_ROUNDS = "rounds"  # stands among the changes in a file


@dataclass(frozen=True)
class Result:
    """The saved result of a finished cell.

    Attributes:
        experiment: The cell's experiment.
        method: Its method.
        seed: Its seed.
        changes: Its changed settings, as `--set` takes them.
        accuracy: Mean of the last five evaluations; None if the run diverged.
        accuracy_std: Their standard deviation.
        time_to_target: When the target was first reached; None: never.
        target: The target accuracy.
        delays: tau_max, tau_avg and tau_med.
        curve: [step, client updates, virtual time, accuracy] of each evaluation.
        config: All settings.
        device: What the clients were trained on.
        versions: Versions of fadas, torch and Python.
        wall: Seconds of computing.
        commit: The commits of the code that trained it.
        diverged: Why the run ended early, if it diverged.
        format: The format of the file.
    """

    experiment: str
    method: str
    seed: int
    changes: list[str]
    accuracy: float | None
    accuracy_std: float | None
    time_to_target: float | None
    target: float | None
    delays: dict[str, float]
    curve: list[tuple[float, float, float, float]]
    config: dict[str, Any]
    device: str
    versions: dict[str, str]
    wall: float
    commit: str
    diverged: str | None = None
    format: int = FORMAT

    def __post_init__(self) -> None:
        if missing := [key for key in TAUS if key not in self.delays]:
            raise ValueError(f"delays.{missing[0]} is missing")
        if self.diverged is None and (self.accuracy is None or self.accuracy_std is None or not self.curve):
            raise ValueError("it has no accuracy, but did not diverge")

    @property
    def cell(self) -> Cell:
        """The cell that was run."""
        return _make_cell(self.experiment, self.method, self.seed, self.changes)


@dataclass(frozen=True)
class Tried:
    """A point of a search that was run.

    Attributes:
        point: The settings that the point changes.
        share: How much of the run was done.
        accuracy: The accuracy on held-out data; None: the run diverged.
    """

    point: dict[str, Any]
    share: float
    accuracy: float | None


@dataclass(frozen=True)
class Search:
    """The saved state of a search over the paper's grid.

    Attributes:
        experiment: The experiment of the cell whose grid is searched.
        method: Its method.
        seed: The seed that points run on.
        changes: Its changed settings, as `--set` takes them.
        validation: The share of the training data that is held out.
        grid: All points.
        tried: The points that were run, in that order. A point that ran on several rungs appears several times.
        complete: Is the search done?
        winner: The best point's changed settings, as `--set` takes them. None: not complete, or all points diverged.
        score: The winner's accuracy on held-out data.
        config: All settings.
        device: What the clients were trained on.
        versions: Versions of fadas, torch and Python.
        commit: The commits of the code that trained it.
    """

    experiment: str
    method: str
    seed: int
    changes: list[str]
    validation: float
    grid: list[dict[str, Any]]
    tried: list[Tried]
    complete: bool
    winner: list[str] | None
    score: float | None
    config: dict[str, Any]
    device: str
    versions: dict[str, str]
    commit: str

    def __post_init__(self) -> None:
        if self.winner is not None and not (self.complete and self.score is not None):
            raise ValueError("it has a winner, but no score")
        for change in (*self.changes, *(self.winner or ())):
            parse_change(change)

    @property
    def cell(self) -> Cell:
        """The cell whose grid is searched."""
        return _make_cell(self.experiment, self.method, self.seed, self.changes)

    @property
    def winning_settings(self) -> Settings | None:
        """The settings of the best point, without the cell's own changes."""
        return None if self.winner is None else dict(map(parse_change, self.winner))

    def winning_row(self, row: Row) -> Row | None:
        """Return the row that was searched, with the winner's settings."""
        settings = self.winning_settings
        if settings is None:
            return None
        return Row(row.name, row.method, row.published, {**row.set, **settings}, rounds=row.rounds)

    def as_table(self) -> dict[str, Any]:
        """Return the content of the file."""
        tried = [[one.point, one.share, one.accuracy] for one in self.tried]
        return {**vars(self), "tried": tried}

    @classmethod
    def from_table(cls, table: Mapping[str, Any]) -> Self:
        """Return a search from the content of its file."""
        names = [field.name for field in fields(Tried)]
        tried = [dict(zip(names, entry, strict=True)) for entry in table["tried"]]
        return from_table(cls, {**table, "tried": tried}, "the search")


def _make_cell(experiment: str, method: str, seed: int, changes: Iterable[str]) -> Cell:
    settings = dict(map(parse_change, changes))
    return Cell(experiment, method, seed, settings, settings.pop(_ROUNDS, None))


def written_changes(cell: Cell) -> list[str]:
    """Return a cell's changes as its file holds them."""
    rounds = {} if cell.rounds is None else {_ROUNDS: cell.rounds}
    return [as_override(key, value) for key, value in {**cell.changes, **rounds}.items()]


def search_path(cell: Cell, results: Path) -> Path:
    """Return where the search over a cell's grid is kept."""
    return results / cell.experiment / "searches" / f"{cell.name}.json"


def _parse(path: Path) -> Any:
    try:
        return strict_json(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise Damaged(f"cannot read {path}: {error.strerror}") from None


def read_result(path: Path) -> Result:
    """Return the result of a cell.

    Args:
        path: The JSON file.

    Raises:
        Damaged: The file is not what fadas wrote.
    """
    try:
        table = _parse(path)
        result = from_table(Result, {**upgrade_table(table, str(path)), "format": format_of(table)}, "the result")
        if path != result.cell.path(path.parents[1]):
            raise ValueError(f"it holds {result.experiment} {result.cell.name}")
    except Damaged:
        raise
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise Damaged(f"{path} is not a result of fadas: {error}") from None
    return result


def read_search(path: Path) -> Search:
    """Return a search.

    Raises:
        Damaged: The file is not what fadas wrote.
    """
    try:
        search = Search.from_table(upgrade_table(_parse(path), str(path)))
        if path != search_path(search.cell, path.parents[2]):
            raise ValueError(f"it holds {search.experiment} {search.cell.name}")
    except Damaged:
        raise
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise Damaged(f"{path} is not a search of fadas: {error}") from None
    return search


def write_result(result: Result, results: Path) -> None:
    """Keep a result."""
    _write(vars(result), result.cell.path(results))


def write_search(search: Search, results: Path) -> None:
    """Keep a search."""
    _write(search.as_table(), search_path(search.cell, results))


def _write(table: Mapping[str, Any], path: Path) -> None:
    """Write a JSON file with one key per line, so that diffs are readable."""
    lines = (f"{to_json(key)}: {to_json(item)}" for key, item in {**table, "format": FORMAT}.items())
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, "{\n" + ",\n".join(lines) + "\n}\n")


def find_result(cell: Cell, results: Path) -> Result | None:
    """Return the result of a cell, if it has been run."""
    path = cell.path(results)
    return read_result(path) if path.exists() else None


def results_of(artefact: Artefact, row: Row, column: int, results: Path) -> list[Result]:
    """Return what has been run of a table's entry: a result for each seed."""
    cells = artefact.cells(row, list(artefact.columns.values())[column])
    return [result for result in (find_result(cell, results) for cell in cells) if result]


def find_search(row: Row, experiment: str, results: Path) -> Search | None:
    """Return the search for better settings of a row in one of its columns, complete or not."""
    path = search_path(Cell(experiment, row.method, SEARCH_SEED, row.set, row.rounds), results)
    return read_search(path) if path.exists() else None


def tuned_cells(artefact: Artefact, row: Row, experiment: str, results: Path) -> list[Cell]:
    """Return the cells that a search has found for a row, one for each of the artefact's seeds."""
    search = find_search(row, experiment, results)
    winning = search.winning_row(row) if search else None
    return artefact.cells(winning, experiment) if winning else []


def shown_results(results: Path) -> list[Result]:
    """Return all that the reproduction's page shows: artefacts, what was tuned, and `unlisted_results`."""
    cells = known_cells(results)
    found = [result for result in (find_result(cell, results) for cell in cells) if result]
    experiments = dict.fromkeys(cell.experiment for cell in cells)
    return found + [one for experiment in experiments for one in unlisted_results(experiment, results, cells)]


def unlisted_results(experiment: str, results: Path, known: Iterable[Cell]) -> list[Result]:
    """Return results that belong to no artefact: other settings, or other seeds. Shortened trials are left out."""
    listed = {cell.path(results) for cell in known}
    found = [read_result(path) for path in sorted((results / experiment).glob("*.json")) if path not in listed]
    return [one for one in found if one.cell.rounds is None]


def known_cells(results: Path) -> list[Cell]:
    """Return the cells that the page lists, each once."""
    cells: dict[Path, Cell] = {}
    for artefact in all_artefacts().values():
        for cell in artefact.all_cells():
            cells.setdefault(cell.path(results), cell)
        for experiment in artefact.columns.values():
            for row in artefact.rows:
                for cell in tuned_cells(artefact, row, experiment, results):
                    cells.setdefault(cell.path(results), cell)
    return list(cells.values())


def require_results(results: Path) -> None:
    """Raise a ConfigError if there is no folder of results."""
    if not results.is_dir():
        raise ConfigError(f"there is no folder {results}; --results says where results are kept")
