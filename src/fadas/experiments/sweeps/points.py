"""Sweeps: every point of an algorithm's grid, tuned on data held out from the training set, never on the test set."""

import copy
import hashlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fadas.core.metrics import Metric
from fadas.errors import Busy, ConfigError
from fadas.experiments.experiment_file import put_setting
from fadas.experiments.resolve import resolve
from fadas.experiments.sweeps.grids import Grid, make_grid
from fadas.registry import Table, lookup, parameters_of
from fadas.runs.folder import Finished, claim, find_finished
from fadas.runs.reader import written_records
from fadas.runs.summary import Outcome, Tally
from fadas.tasks import TASKS


def read_grid(tables: Table, label: str, samples: int | None = None, seed: int = 0) -> Grid:
    """Return the grid of one algorithm, from its table under [sweep].

    Args:
        tables: The experiment.
        label: The algorithm's label.
        samples: The number of points to draw. None: every combination, which a range does not have.
        seed: The seed of the draws.
    """
    table = tables.get("sweep", {}).get(label, {})
    if not isinstance(table, Mapping):
        raise ConfigError(f"sweep.{label} must be a table, got {table!r}")
    return make_grid(f"sweep.{label}", table, samples, seed)


def grid_points(tables: Table, label: str) -> list[dict[str, Any]]:
    """Return all points of the sweep of one algorithm: dotted keys of its table -> values."""
    return read_grid(tables, label).points


def has_grid(tables: Table, label: str) -> bool:
    """Return whether an algorithm has a table under [sweep]."""
    return bool(tables.get("sweep", {}).get(label))


def with_point(tables: Table, label: str, point: Table) -> dict[str, Any]:
    """Return the tables with one point of the grid put into the algorithm's table."""
    changed = copy.deepcopy(dict(tables))
    for key, value in point.items():
        put_setting(changed["algorithms"][label], key, value, f"sweep.{label}.{key}")
    return changed


@dataclass(frozen=True)
class Point:
    """One point of a grid, for one seed.

    Attributes:
        label: The algorithm's label.
        seed: The run's seed.
        point: The settings that the point changes.
        folder: Where its run is kept.
        tables: The experiment with these settings.
        share: How much of the run to do now. The rest can follow.
    """

    label: str
    seed: int
    point: dict[str, Any]
    folder: Path
    tables: dict[str, Any]
    share: float = 1.0

    @property
    def name(self) -> str:
        """The point in words: "eta=0.1, local.lr=0.01"."""
        return name_of(self.point)


def name_of(point: Table) -> str:
    """Return a point in words: "eta=0.1, local.lr=0.01"."""
    return ", ".join(f"{key}={value}" for key, value in point.items())


def sweep_points(
    tables: Table, labels: Sequence[str], seeds: Sequence[int], out: Path, validation: float
) -> list[Point]:
    """Return all runs of a sweep, each checked. A run is kept in out/<algorithm>/<point>-<seed>.

    Args:
        tables: The experiment.
        labels: The algorithms to sweep.
        seeds: One run per point for each.
        out: The sweep's folder.
        validation: The share of the training data to hold out and to measure on.
    """
    held_out = hold_out(tables, validation)
    return [point for label in labels for point in grid_runs(held_out, label, read_grid(tables, label), seeds, out)]


def hold_out(tables: Table, validation: float) -> dict[str, Any]:
    """Return the tables with a share of the training data held out to measure on."""
    held_out = copy.deepcopy(dict(tables))
    if not isinstance(validation, int | float) or not 0 < validation < 1:
        raise ConfigError(f"the held-out share must lie between 0 and 1, got {validation}")
    _require_validation(tables)
    held_out.setdefault("task", {})["validation"] = validation
    return held_out


def grid_runs(tables: Table, label: str, grid: Grid, seeds: Sequence[int], out: Path) -> list[Point]:
    """Return the runs of one algorithm's points, each checked.

    Args:
        tables: The experiment, from `hold_out`.
        label: The algorithm's label.
        grid: Its grid.
        seeds: One run per point for each.
        out: The sweep's folder.
    """
    if not grid.points:
        raise ConfigError(f"there is no grid for {label}; add a table such as [sweep.{label}]")
    found: list[Point] = []
    for point in grid.points:
        for seed in seeds:
            changed = with_point(tables, label, point)
            if resolve(changed, label, seed).run.stop_at_target:
                raise ConfigError(f"{label}: a sweep compares whole runs; set run.stop_at_target=false")
            found.append(Point(label, seed, point, out / label / f"{point_file_name(point)}-{seed}", changed))
    return found


@dataclass(frozen=True)
class Sweep:
    """The sweep of an experiment file.

    Attributes:
        tables: The experiment, from `hold_out`.
        grids: The grid of each algorithm.
        seeds: One run per point for each.
        root: The sweep's folder.
    """

    tables: Table
    grids: dict[str, Grid]
    seeds: Sequence[int]
    root: Path

    @property
    def name(self) -> str:
        """The experiment's name."""
        return self.tables["name"]

    def make_points(self, label: str, grid: Grid) -> list[Point]:
        """Return the runs of an algorithm's points."""
        return grid_runs(self.tables, label, grid, self.seeds, self.root)

    def why_invalid(self, label: str, point: Table) -> str | None:
        """Return why a point cannot be run, or None if it can."""
        try:
            resolve(with_point(self.tables, label, point), label, self.seeds[0])
        except ConfigError as error:
            return str(error)
        return None


def _require_validation(tables: Table) -> None:
    """Raise an error if the task cannot hold out data. Other mistakes in [task] are for `resolve`."""
    section = tables.get("task", {})
    if not isinstance(section, Mapping) or "name" not in section or "validation" in section:
        return
    takes, _ = parameters_of(lookup(TASKS, "task", section["name"]), "task")
    if "validation" not in takes and not any(p.kind is p.VAR_KEYWORD for p in takes.values()):
        hint = "a share of the training data to hold out and to measure on"
        raise ConfigError(f"to be swept, a task must take `validation`, {hint}")


def point_file_name(point: Table) -> str:
    """Return the name of a point's folder: "eta=0.1,local.lr=0.01"."""
    name = ",".join(f"{key}={value}" for key, value in point.items()).replace("/", "_")
    if len(name.encode()) <= 200:  # file systems end at 255 bytes
        return name
    return f"{name.encode()[:180].decode(errors='ignore')}...{hashlib.sha256(name.encode()).hexdigest()[:12]}"


def run_point(tasks: dict[str, Any], point: Point) -> Outcome:
    """Return the outcome of a point's run, up to the requested share. Train what is missing.

    Args:
        tasks: Keeps the data for the next point.
        point: The point.

    Raises:
        Busy: Another process is running it, and has not got as far as the share.
    """
    from fadas.experiments.prepare import make_plan, make_simulation, metric_of, shared_task
    from fadas.experiments.run import execute_until

    config = resolve(point.tables, point.label, point.seed)
    run = config.run
    metric = Metric(run.metric, run.better, run.format) if run.metric else None  # pyright: ignore[reportArgumentType]
    timeline = enough = None  # how many client updates; None: the whole run
    if point.share < 1:
        timeline = make_plan(config, shared_task(config, tasks) if config.delays.scale_by_data else None)
        enough = point.share * timeline.arrivals.size
        with suppress(Busy):  # another process may be running the rest
            find_finished(point.folder, config.tables, "resume")
        if outcome := outcome_at(point.folder, enough, metric):
            return outcome
    task = shared_task(config, tasks)
    if task.test is None:
        raise ConfigError("a sweep ranks points by a metric, but the task has no test data to measure it on")
    metric_of(config, task)
    claimed = claim(point.folder, config.tables, "resume")
    if isinstance(claimed, Finished):  # by another process, or it diverged before it got as far as the share
        return claimed.summary
    with claimed:
        simulation = make_simulation(config, task, timeline or make_plan(config, task))
        outcome = execute_until(config, simulation, claimed, enough)
    return outcome if enough is None else outcome_at(point.folder, enough, metric) or outcome


def outcome_at(folder: Path, updates: float, metric: Metric | None) -> Outcome | None:
    """Return the outcome after that many updates, with the last evaluation so far. None: it has not got so far.

    Args:
        folder: The run's folder.
        updates: The number of client updates.
        metric: What the run is judged by. None: chosen at the first evaluation.
    """
    tally = Tally(metric=metric)
    last: dict[str, Any] | None = None
    with suppress(OSError, ValueError):  # it has not begun, or was killed while it wrote its last line
        for record in written_records(folder):
            tally.add(record)
            last = record.metrics or last if record.step else None
            if record.updates >= updates:
                return replace(tally.outcome(), metrics=last)
    return None
