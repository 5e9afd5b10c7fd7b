"""Where a cell falls outside the paper's spread: the paper's own grid is searched, and the best point is a cell too.

Points are compared on training data that are held out, and on a seed that is not reported.
"""

from collections.abc import Callable, Container, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from fadas import lock, runs, sweep
from fadas.build import ConfigError
from fadas.config import resolve
from fadas.identity import same
from fadas.provenance import provenance
from fadas.report.artefacts import Artefact, Cell
from fadas.report.searches import SEED, Search, path_of, read
from fadas.report.verdicts import accuracy
from fadas.reproduce import Places, keep, make_config, make_tables

VALIDATION = 0.1
Watch = Callable[[str, int], Callable[[int, str], None]]  # (what is searched, its runs) -> whom to tell (done, of what)


def outside(artefacts: Sequence[Artefact], methods: Container[str], places: Places) -> list[Cell]:
    """The cells to search for: of those entries of the tables that have a result, and not the paper's, and a grid."""
    cells: dict[Cell, None] = {}
    for artefact in artefacts:
        if artefact.kind != "accuracy":
            raise ConfigError(f"{artefact.name} is no table of accuracies, which alone can be tuned")
        for column, experiment in enumerate(artefact.columns.values()):
            for row in artefact.rows:
                cell = Cell(experiment, row.method, SEED, row.set)
                verdict = accuracy(artefact, row, column, places.results).verdict
                tables = make_tables(cell, places.experiments)
                if row.method in methods and verdict in ("better", "worse") and sweep.grid(tables, row.method):
                    cells[cell] = None
    return list(cells)


def search(cell: Cell, places: Places, overrides: Sequence[str], executor: str | None, watch: Watch) -> Search:
    """Search a cell's grid, from where an earlier attempt was interrupted. What is known is kept after every run."""
    tables = make_tables(cell, places.experiments, overrides, executor)
    folder = places.work / cell.experiment / "searches" / cell.name
    points = sweep.points(tables, [cell.method], [SEED], folder, VALIDATION)
    config = resolve(points[0].tables, cell.method, SEED)
    settings = make_config(cell, places.experiments, overrides, executor).tables
    origin = provenance(config)
    found = Search(
        cell.experiment, cell.method, SEED, list(cell.changes), VALIDATION, [], False, None, dict(settings), **origin
    )
    path = path_of(cell, places.results)
    lock.take(folder)
    try:
        if path.exists():
            found = _continued(read(path), found, path)
        if found.complete:
            return found
        known = {
            (tuple(point), share): {"accuracy": score, **({} if score is not None else {"diverged": "before"})}
            for point, share, score in found.tried
        }
        look_up = lambda point: known.get((tuple(_changes(cell, point.point)), point.share))  # noqa: E731
        left, rung, results = len(points), 0.0, []
        tell = watch(f"{cell.experiment} {cell.name}", sweep.count(points, sweep.HALVING))
        for done, (point, summary) in enumerate(sweep.search(points, 1, sweep.HALVING, look_up), 1):
            if point.share > rung:
                rung, left, results = point.share, sweep.survivors(left), []
            score = summary.get("accuracy")
            results.append((point, summary))
            if not look_up(point):
                found.tried.append((_changes(cell, point.point), point.share, score))
                keep(asdict(found), path)
            tell(done, f"{point.name}: {'diverged' if score is None else f'{score:.1%}'}")
            for row in sweep.rank(results)[left:]:  # which cannot go on any more; checkpoints are large
                runs.remove(next(one.folder for one, _ in results if one.name == row.name))
        best = sweep.rank(results)[0]
        winner = _beyond(cell, _changes(cell, best.point), places) if best.best else None
        found = replace(found, complete=True, winner=winner)
        keep(asdict(found), path)
        return found
    finally:
        lock.release(folder)


def _continued(earlier: Search, now: Search, path: Path) -> Search:
    """An earlier search, if it is the same; its last runs are those of now."""
    if not same({**earlier.config, "executor": {}}, {**now.config, "executor": {}}):
        raise ConfigError(f"{path} has other settings than {now.experiment}.toml gives now", "stale")
    commits = dict.fromkeys([*earlier.commit.split(", "), now.commit])
    return earlier if earlier.complete else replace(now, tried=earlier.tried, commit=", ".join(commits))


def _changes(cell: Cell, point: dict[str, Any]) -> list[str]:
    """A point of a grid, as --set takes it."""
    return [f"algorithms.{cell.method}.{key}={value}" for key, value in point.items()]


def _beyond(cell: Cell, changes: list[str], places: Places) -> list[str]:
    """Those of a point's settings that the cell has not anyway."""

    def made(some: list[str]) -> Any:
        return make_config(replace(cell, changes=(*cell.changes, *some)), places.experiments).tables

    for change in list(changes):
        rest = [one for one in changes if one != change]
        if same(made(rest), made(changes)):
            changes = rest
    return changes
