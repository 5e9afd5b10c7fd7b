"""Sweeps: every point of an algorithm's grid, tuned on data held out from the training set, never on the test set."""

import copy
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from fadas.errors import ConfigError
from fadas.experiments.experiment_file import put_setting
from fadas.experiments.parallel_runs import run_in_processes
from fadas.experiments.resolve import resolve
from fadas.experiments.settings import RunConfig
from fadas.registry import Table
from fadas.runs.folder import is_finished
from fadas.runs.run_reader import read_run
from fadas.runs.serialization import flatten
from fadas.runs.summary import summarise


def grid_points(tables: Table, label: str) -> list[dict[str, Any]]:
    """The points of the sweep of one algorithm: dotted keys of its table -> values."""
    table = tables.get("sweep", {}).get(label, {})
    if not isinstance(table, Mapping):
        raise ConfigError(f"sweep.{label} must be a table, not {table!r}")
    axes = flatten(table)
    for key, values in axes.items():
        if not isinstance(values, list) or not values:
            raise ConfigError(f"sweep.{label}.{key} must be a list of values, not {values!r}")
        if twice := [value for k, value in enumerate(values) if value in values[:k]]:
            raise ConfigError(f"sweep.{label}.{key} holds {twice[0]!r} twice")
    return [dict(zip(axes, point, strict=True)) for point in product(*axes.values())] if axes else []


def with_point(tables: Table, label: str, point: Table) -> dict[str, Any]:
    """The tables with one point of the grid put into the algorithm's table."""
    changed = copy.deepcopy(dict(tables))
    for key, value in point.items():
        put_setting(changed["algorithms"][label], key, value, f"sweep.{label}.{key}")
    return changed


@dataclass(frozen=True)
class Point:
    """One point of a grid, for one seed."""

    label: str
    seed: int
    point: dict[str, Any]
    folder: Path
    tables: dict[str, Any]
    share: float = 1.0  # of the run; the rest can follow

    @property
    def name(self) -> str:
        return name_of(self.point)


def name_of(point: Table) -> str:
    return ", ".join(f"{key}={value}" for key, value in point.items())


def sweep_points(
    tables: Table, labels: Sequence[str], seeds: Sequence[int], out: Path, validation: float
) -> list[Point]:
    """All runs of a sweep, each checked; a run is stored under out/<algorithm>/<point>-<seed>."""
    held_out = copy.deepcopy(dict(tables))
    if not isinstance(validation, int | float) or not 0 < validation < 1:
        raise ConfigError(f"the held-out share must lie between 0 and 1, not {validation}")
    held_out.setdefault("task", {})["validation"] = validation
    found: list[Point] = []
    for label in labels:
        combinations = grid_points(tables, label)
        if not combinations:
            raise ConfigError(f"there is no grid for {label}; add a table such as [sweep.{label}]")
        for point in combinations:
            for seed in seeds:
                changed = with_point(held_out, label, point)
                if _resolved(changed, label, seed, tables).run.stop_at_target:
                    raise ConfigError(f"{label}: a sweep compares whole runs; set run.stop_at_target=false")
                found.append(Point(label, seed, point, out / label / f"{_file_name(point)}-{seed}", changed))
    return found


def _resolved(changed: Table, label: str, seed: int, tables: Table) -> RunConfig:
    try:
        return resolve(changed, label, seed)
    except ConfigError as error:
        if "'task.validation'" not in str(error) or "validation" in tables.get("task", {}):
            raise
        hint = "a share of the training data to hold out and to measure on"
        raise ConfigError(f"to be swept, a task must take `validation`, {hint}") from None


def _file_name(point: Table) -> str:
    name = ",".join(f"{key}={value}" for key, value in point.items()).replace("/", "_")
    if len(name.encode()) <= 200:  # file systems end at 255 bytes
        return name
    return f"{name.encode()[:180].decode(errors='ignore')}...{hashlib.sha256(name.encode()).hexdigest()[:12]}"


def run_point(tasks: dict[str, Any], point: Point) -> dict[str, Any]:
    """What a point's run, or the share of it that is asked for, amounts to. It is run unless it is there already.

    `tasks` keeps the data for the next point.
    """
    from fadas.experiments.prepare import make_plan, make_simulation, shared_task
    from fadas.experiments.run import execute

    config = resolve(point.tables, point.label, point.seed)
    busy: ConfigError | None = None
    try:
        finished = is_finished(point.folder, config.tables, resume=True)
    except ConfigError as error:
        if error.matter != "busy":
            raise
        finished, busy = False, error
    if finished and point.share == 1:
        return read_run(point.folder).summary
    timeline = make_plan(config, shared_task(config, tasks) if config.delays.scale_by_data else None)
    enough = point.share * timeline.arrivals.size  # client updates
    if point.share < 1 and (summary := _so_far(point.folder, enough)):
        return summary  # whoever may be at the rest
    if busy:
        raise busy
    if finished:  # before it got that far: it diverged
        return read_run(point.folder).summary
    task = shared_task(config, tasks)
    if "accuracy" not in task.measured:
        raise ConfigError("the task measures no accuracy, by which the best points could be told")
    simulation = make_simulation(config, task, timeline)
    until = enough if point.share < 1 else None
    return execute(config, simulation, point.folder, lambda record: None, resume=True, pause_at=until)


def _so_far(folder: Path, updates: float) -> dict[str, Any] | None:
    """What a run amounted to when it had that many updates, if it has got so far."""
    lines: list[dict[str, Any]] = []
    with suppress(OSError, ValueError):  # it has not begun, or was killed while it wrote its last line
        for text in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines():
            lines.append(json.loads(text))
            if lines[-1]["updates"] >= updates:
                return summarise(lines)
    return None


def run_points(todo: Sequence[Point], jobs: int) -> Iterator[tuple[Point, dict[str, Any]]]:
    """Results as they come, `jobs` runs at a time. A point that another process is at is tried once more at the end.

    However it ends, what runs is interrupted and keeps a checkpoint; no further point begins.
    """
    total = len(todo)
    for _ in range(2):
        busy: list[Point] = []
        with closing(run_in_processes(partial(run_point, {}), todo, jobs)) as results:
            for point, result in results:
                if isinstance(result, ConfigError) and result.matter in ("busy", "written"):
                    busy.append(point)
                elif isinstance(result, ChildProcessError):
                    raise ConfigError(f"{point.folder}: {result}")
                elif isinstance(result, Exception):
                    raise result
                else:
                    yield point, result
        if not busy:
            return
        todo = busy
    names = ", ".join(f"{point.label}/{point.folder.name}" for point in todo)
    raise ConfigError(f"{len(todo)} of {total} runs left out, in use by another process: {names}", "busy")
