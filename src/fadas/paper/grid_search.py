"""Search the paper's own grid where a cell falls outside the paper's spread. The best point then runs as a cell too.

Points are compared on training data that are held out, and on a seed that is not reported.
"""

from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from fadas.errors import ConfigError, Stale
from fadas.experiments.experiment_file import as_override
from fadas.experiments.prepare import check_device
from fadas.experiments.provenance import provenance
from fadas.experiments.sweeps.halving import HALVING, count_runs, search_points
from fadas.experiments.sweeps.points import grid_points, name_of, sweep_points
from fadas.experiments.sweeps.ranking import Ranked, Result, rank_points
from fadas.paper.agreement import OUTSIDE, measured_accuracy
from fadas.paper.artefacts import Artefact, Cell, Row, Settings
from fadas.paper.results import SEARCH_SEED, Search, Tried, read_search, search_path, write_search, written_changes
from fadas.paper.run_cells import HowToRun, Places, has_result, make_config, make_tables
from fadas.runs import lock
from fadas.runs.same_run import same_run
from fadas.runs.summary import Outcome, summarise

VALIDATION = 0.1
Watch = Callable[[str, int], Callable[[int, str, int], None]]  # (what, its runs) -> receives (done, of what, total)


class Entry(NamedTuple):
    """An entry of a table."""

    artefact: Artefact
    row: Row
    experiment: str

    @property
    def cell(self) -> Cell:
        """The cell whose grid is searched."""
        return Cell(self.experiment, self.row.method, SEARCH_SEED, self.row.set, self.row.rounds)


def entries_outside_spread(artefacts: Sequence[Artefact], methods: Container[str], places: Places) -> Iterator[Entry]:
    """Yield the entries of tables that have a grid, and whose result is outside the paper's spread."""
    for artefact in artefacts:
        if artefact.kind != "accuracy" or len({row.method for row in artefact.rows}) < len(artefact.rows):
            raise ConfigError(f"{artefact.name} cannot be tuned: only tables of methods and their accuracies can")
        for column, experiment in enumerate(artefact.columns.values()):
            for row in artefact.rows:
                entry = Entry(artefact, row, experiment)
                if row.method not in methods or not all(has_result(c, places) for c in artefact.cells(row, experiment)):
                    continue
                grid = grid_points(make_tables(entry.cell, places.experiments), row.method)
                if grid and measured_accuracy(artefact, row, column, places.results).verdict in OUTSIDE:
                    yield entry


def search_grid(cell: Cell, places: Places, how: HowToRun, watch: Watch) -> Search:
    """Search a cell's grid, or continue an interrupted search. The search is saved after every run.

    Raises:
        Busy: Another process is searching it.
        Stale: An earlier search had other settings.
    """
    folder = places.work / cell.experiment / "searches" / cell.name
    lock.acquire(folder)
    try:
        return _search(cell, places, how, watch, folder)
    finally:
        lock.release(folder)


def _search(cell: Cell, places: Places, how: HowToRun, watch: Watch, folder: Path) -> Search:
    tables = make_tables(cell, places.experiments, how)
    points = sweep_points(tables, [cell.method], [SEARCH_SEED], folder, VALIDATION)
    search = _begin(cell, places, how, [point.point for point in points])
    if search.complete:
        return search
    known = {(name_of(one.point), one.share): _as_outcome(one) for one in search.tried}
    total = count_runs(points, HALVING)
    show = watch(f"{cell.experiment} {cell.name}", total)
    results: dict[str, Result] = {}
    for number, (point, outcome) in enumerate(search_points(points, 1, HALVING, known), 1):
        results[point.name] = point, outcome
        if (point.name, point.share) not in known:
            search.tried.append(Tried(point.point, point.share, outcome.accuracy))
            write_search(search, places.results)
        text = "diverged" if outcome.accuracy is None else f"{outcome.accuracy:.1%}"
        show(number, f"{point.name}: {text}", max(total, number))
    search = _with_winner(search, cell, places, rank_points(list(results.values())))
    write_search(search, places.results)
    return search


def _begin(cell: Cell, places: Places, how: HowToRun, grid: list[dict[str, Any]]) -> Search:
    """Return the search so far, or a new one."""
    config, path = make_config(cell, places.experiments, how), search_path(cell, places.results)
    found = read_search(path) if path.exists() else None
    if found:
        # A search that continues needs one precision for all points.
        ignored = ("executor", "precision", "format") if found.complete else ("format",)
        before, now = ({k: v for k, v in c.items() if k not in ignored} for c in (found.config, config.tables))
        if not (same_run(before, now) and (found.grid, found.validation) == (grid, VALIDATION)):
            raise Stale(f"{path} has other settings than {cell.experiment}.toml gives now")
        if found.complete:
            return found
    check_device(config)
    origin = provenance(config)
    if found:
        origin["commit"] = ", ".join(dict.fromkeys([*found.commit.split(", "), origin["commit"]]))
    return Search(
        experiment=cell.experiment,
        method=cell.method,
        seed=SEARCH_SEED,
        changes=written_changes(cell),
        validation=VALIDATION,
        grid=grid,
        tried=list(found.tried) if found else [],
        complete=False,
        winner=None,
        score=None,
        config=dict(config.tables),
        **origin,
    )


def _as_outcome(tried: Tried) -> Outcome:
    """Return a tried point as an outcome."""
    outcome = summarise([], diverged=None if tried.accuracy is not None else "in an earlier part of the search")
    return replace(outcome, accuracy=tried.accuracy)


def _with_winner(search: Search, cell: Cell, places: Places, ranked: Sequence[Ranked]) -> Search:
    """Return the complete search. Among equally good points, the one with the fewest changes wins."""
    search = replace(search, complete=True)
    if not ranked[0].best:
        return search
    equals = [row for row in ranked if (row.score, row.share) == (ranked[0].score, ranked[0].share)]
    winner = min((_effective_changes(cell, row.point, places) for row in equals), key=len)
    return replace(search, winner=[as_override(*change) for change in winner.items()], score=ranked[0].score)


def _effective_changes(cell: Cell, point: Settings, places: Places) -> Settings:
    """Return the settings that differ from the cell's."""

    def tables_with(changes: Settings) -> Any:
        return make_config(replace(cell, changes={**cell.changes, **changes}), places.experiments).tables

    changes = {f"algorithms.{cell.method}.{key}": value for key, value in point.items()}
    complete = tables_with(changes)
    for key in list(changes):
        rest = {k: v for k, v in changes.items() if k != key}
        with suppress(ConfigError):  # some settings make sense only beside others
            if same_run(tables_with(rest), complete):
                changes = rest
    return changes
