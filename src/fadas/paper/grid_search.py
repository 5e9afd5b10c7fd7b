"""Where a cell falls outside the paper's spread: the paper's own grid is searched, and the best point is a cell too.

Points are compared on training data that are held out, and on a seed that is not reported.
"""

from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

from fadas.errors import ConfigError
from fadas.experiments import sweep
from fadas.experiments.experiment_file import as_override
from fadas.experiments.halving import HALVING, count_runs, rank_points, search_points
from fadas.experiments.prepare import check_device
from fadas.experiments.provenance import provenance
from fadas.experiments.resolve import resolve
from fadas.paper.agreement import OUTSIDE, measured_accuracy
from fadas.paper.artefacts import Artefact, Cell, Row
from fadas.paper.results import SEED, Search, read_search, search_path
from fadas.paper.run_cells import Places, has_result, make_config, make_tables, write_result
from fadas.runs import lock
from fadas.runs.same_run import same_run

VALIDATION = 0.1
Watch = Callable[[str, int], Callable[[int, str, int], None]]  # (what, its runs) -> whom to tell (done, of what, total)


class Entry(NamedTuple):
    """An entry of a table."""

    artefact: Artefact
    row: Row
    experiment: str

    @property
    def cell(self) -> Cell:
        """Whose grid is searched."""
        return Cell(self.experiment, self.row.method, SEED, self.row.set)


def entries_outside_spread(artefacts: Sequence[Artefact], methods: Container[str], places: Places) -> Iterator[Entry]:
    """The entries of tables that have a result, and not the paper's, and a grid."""
    for artefact in artefacts:
        if artefact.kind != "accuracy" or len({row.method for row in artefact.rows}) < len(artefact.rows):
            raise ConfigError(f"{artefact.name} is not a table of methods and their accuracies, which alone are tuned")
        for column, experiment in enumerate(artefact.columns.values()):
            for row in artefact.rows:
                entry = Entry(artefact, row, experiment)
                if row.method not in methods or not all(has_result(c, places) for c in artefact.cells(row, experiment)):
                    continue
                grid = sweep.grid_points(make_tables(entry.cell, places.experiments), row.method)
                if grid and measured_accuracy(artefact, row, column, places.results).verdict in OUTSIDE:
                    yield entry


def search_grid(cell: Cell, places: Places, overrides: Sequence[str], executor: str | None, watch: Watch) -> Search:
    """Search a cell's grid, from where an earlier attempt was interrupted. What is known is kept after every run."""
    folder = places.work / cell.experiment / "searches" / cell.name
    lock.acquire(folder)
    try:
        return _search(cell, places, overrides, executor, watch, folder)
    finally:
        lock.release(folder)


def _search(
    cell: Cell, places: Places, overrides: Sequence[str], executor: str | None, watch: Watch, folder: Path
) -> Search:
    tables = make_tables(cell, places.experiments, overrides, executor)
    points = sweep.sweep_points(tables, [cell.method], [SEED], folder, VALIDATION)
    config, path = make_config(cell, places.experiments, overrides, executor), search_path(cell, places.results)
    grid = [point.point for point in points]
    found = read_search(path) if path.exists() else None
    if found:
        blank = {"executor": {}} if found.complete else {}  # while it goes on, all points have one precision
        alike = same_run({**found.config, **blank}, {**config.tables, **blank})
        if not (alike and (found.grid, found.validation) == (grid, VALIDATION)):
            raise ConfigError(f"{path} has other settings than {cell.experiment}.toml gives now", "stale")
        if found.complete:
            return found
    check_device(config)
    for point in points:
        _check_settings(cell, point, places)
    origin = provenance(config)
    if found:
        origin["commit"] = ", ".join(dict.fromkeys([*found.commit.split(", "), origin["commit"]]))
    tried = found.tried if found else []
    settings = cell.experiment, cell.method, SEED, list(cell.changes), VALIDATION, grid
    found = Search(*settings, tried, False, None, None, dict(config.tables), **origin)
    known = {(sweep.name_of(point), share): _summary(score) for point, share, score in tried}
    total = count_runs(points, HALVING)
    tell = watch(f"{cell.experiment} {cell.name}", total)
    results: dict[str, tuple[sweep.Point, dict[str, Any]]] = {}
    for number, (point, summary) in enumerate(search_points(points, 1, HALVING, known), 1):
        results[point.name] = point, summary
        score = summary.get("accuracy")
        if (point.name, point.share) not in known:
            tried.append((point.point, point.share, score))
            write_result(asdict(found), path)
        text = "diverged" if score is None else f"{score:.1%}"
        tell(number, f"{point.name}: {text}", max(total, number))
    found, best = replace(found, complete=True), rank_points(list(results.values()))
    if best[0].best:  # of equals, the one that changes least
        equals = [row for row in best if (row.score, row.share) == (best[0].score, best[0].share)]
        winner = min((_beyond(cell, row.point, places) for row in equals), key=len)
        found = replace(found, winner=winner, score=best[0].score)
    write_result(asdict(found), path)
    return found


def _summary(score: float | None) -> dict[str, Any]:
    """What a run amounted to, as far as a search must know it."""
    return {"diverged": "before"} if score is None else {"accuracy": score}


def _changes(cell: Cell, point: dict[str, Any]) -> list[str]:
    return [as_override(f"algorithms.{cell.method}.{key}", value) for key, value in point.items()]


def _check_settings(cell: Cell, point: sweep.Point, places: Places) -> None:
    """An error where a point, told as a cell's changes, would not be the same run."""
    tables = make_tables(cell, places.experiments)
    meant = resolve(sweep.with_point(tables, cell.method, point.point), cell.method, SEED).tables
    told = make_config(replace(cell, changes=(*cell.changes, *_changes(cell, point.point))), places.experiments).tables
    if not same_run(meant, told):
        raise ConfigError(f"{cell.experiment}.toml: the point {point.name} cannot be told as settings")


def _beyond(cell: Cell, point: dict[str, Any], places: Places) -> list[str]:
    """Those of a point's settings that the cell has not anyway."""

    def made(some: list[str]) -> Any:
        return make_config(replace(cell, changes=(*cell.changes, *some)), places.experiments).tables

    changes = _changes(cell, point)
    whole = made(changes)
    for change in list(changes):
        rest = [one for one in changes if one != change]
        with suppress(ConfigError):  # some make sense only beside others
            if same_run(made(rest), whole):
                changes = rest
    return changes
