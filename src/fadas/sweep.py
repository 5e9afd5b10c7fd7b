"""Sweeps: every point of an algorithm's grid, tuned on data held out from the training set, never on the test set."""

import copy
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby, product
from math import ceil
from pathlib import Path
from statistics import fmean
from typing import Any

from fadas import runs
from fadas.build import ConfigError, Interrupted
from fadas.config import resolve
from fadas.parallel import each
from fadas.simulator import Record
from fadas.summary import summarise
from fadas.tables import Table, flatten, put

HALVING = (1 / 8, 1 / 2, 1.0)  # rungs, as shares of a run


def grid(tables: Table, label: str) -> list[dict[str, Any]]:
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
        put(changed["algorithms"][label], key, value, f"sweep.{label}.{key}")
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
        return ", ".join(f"{key}={value}" for key, value in self.point.items())


def points(tables: Table, labels: Sequence[str], seeds: Sequence[int], out: Path, validation: float) -> list[Point]:
    """All runs of a sweep, each checked; a run is stored under out/<algorithm>/<point>-<seed>."""
    held_out = copy.deepcopy(dict(tables))
    if not 0 < validation < 1:
        raise ConfigError(f"the held-out share must lie between 0 and 1, not {validation}")
    held_out.setdefault("task", {})["validation"] = validation
    found: list[Point] = []
    for label in labels:
        combinations = grid(tables, label)
        if not combinations:
            raise ConfigError(f"there is no grid for {label}; add a table such as [sweep.{label}]")
        for point in combinations:
            for seed in seeds:
                changed = with_point(held_out, label, point)
                resolve(changed, label, seed)
                found.append(Point(label, seed, point, out / label / f"{_file_name(point)}-{seed}", changed))
    return found


def _file_name(point: Table) -> str:
    name = ",".join(f"{key}={value}" for key, value in point.items()).replace("/", "_")
    if len(name.encode()) <= 200:  # file systems end at 255 bytes
        return name
    return f"{name.encode()[:180].decode(errors='ignore')}...{hashlib.sha256(name.encode()).hexdigest()[:12]}"


def run_point(tasks: dict[str, Any], point: Point) -> dict[str, Any]:
    """What a point's run, or the share of it that is asked for, amounts to. It is run unless it is there already.

    `tasks` keeps the data for the next point.
    """
    from fadas.experiment import execute, make_plan, make_simulation, shared_task

    config = resolve(point.tables, point.label, point.seed)
    finished = runs.check(point.folder, config.tables, resume=True)
    if finished and point.share == 1:
        return runs.read(point.folder).summary
    task = shared_task(config, tasks)
    timeline = make_plan(config, task)
    enough = point.share * timeline.arrivals.size  # client updates
    if point.share < 1 and (summary := _so_far(point.folder, enough)):
        return summary
    if finished:  # before it got that far: it diverged, or reached its target
        return runs.read(point.folder).summary
    simulation = make_simulation(config, task, timeline)
    paused = False

    def pause(record: Record) -> None:
        nonlocal paused
        if point.share < 1 and record.updates >= enough and not simulation.stopped:  # by Ctrl-C
            paused = True
            simulation.stop()

    try:
        return execute(config, simulation, point.folder, pause, resume=True)
    except Interrupted:
        if paused and (summary := _so_far(point.folder, enough)):
            return summary
        raise


def _so_far(folder: Path, updates: float) -> dict[str, Any] | None:
    """What a run amounted to when it had that many updates, if it has got so far."""
    with suppress(OSError, ValueError):  # it has not begun, or was killed while it wrote a line
        lines = runs.read_lines(folder / "metrics.jsonl")
        for count, line in enumerate(lines, 1):
            if line["updates"] >= updates:
                return summarise(lines[:count])
    return None


def run_all(todo: Sequence[Point], jobs: int) -> Iterator[tuple[Point, dict[str, Any]]]:
    """Results as they come, `jobs` runs at a time. A point that another process is at is tried once more at the end.

    However it ends, what runs is interrupted and keeps a checkpoint; no further point begins.
    """
    total = len(todo)
    for _ in range(2):
        busy: list[Point] = []
        with closing(each(partial(run_point, {}), todo, jobs)) as results:
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


@dataclass(frozen=True)
class Ranked:
    label: str
    name: str
    point: dict[str, Any]
    score: float | None  # the seeds' mean accuracy; none: a seed diverged, or there is no accuracy
    diverged: int  # seeds
    share: float  # of the run, after which it was judged
    best: bool


def rank(results: Sequence[tuple[Point, Mapping[str, Any]]]) -> list[Ranked]:
    """Per algorithm, its points from best to worst by the mean score over the seeds. Without a score, none is best.

    A point that went further is better than one that was left behind.
    """
    found: dict[str, dict[str, list[tuple[Point, Mapping[str, Any]]]]] = {}
    for point, summary in results:
        found.setdefault(point.label, {}).setdefault(point.name, []).append((point, summary))
    ranked: list[Ranked] = []
    for label, by_point in found.items():
        rows: list[Ranked] = []
        for name, seeds in by_point.items():
            known = [summary["accuracy"] for _, summary in seeds if summary.get("accuracy") is not None]
            mean = fmean(known) if len(known) == len(seeds) else None
            diverged = sum(bool(summary.get("diverged")) for _, summary in seeds)
            rows.append(Ranked(label, name, seeds[0][0].point, mean, diverged, seeds[0][0].share, False))
        rows.sort(key=lambda row: (-row.share, row.score is None, -(row.score or 0.0), row.name))
        ranked += [replace(row, best=place == 0 and row.score is not None) for place, row in enumerate(rows)]
    return ranked


def search(
    todo: Sequence[Point],
    jobs: int,
    rungs: Sequence[float],
    known: Callable[[Point], dict[str, Any] | None] = lambda point: None,
) -> Iterator[tuple[Point, dict[str, Any]]]:
    """Run the points in rungs: of each algorithm only the best quarter goes on to the next one.

    A point comes once for every rung that it gets to; the last time counts. Those first whose outcome is `known`, and
    that are not run. Folders that cannot be written to or read are an error before anything is run.
    """
    runs.finished({p.folder: resolve(p.tables, p.label, p.seed).tables for p in todo}, overwrite=False, resume=True)
    for share in rungs:
        rung = [replace(point, share=share) for point in todo]
        results = [(point, summary) for point in rung if (summary := known(point))]
        yield from results
        for result in run_all([point for point in rung if not known(point)], jobs):
            results.append(result)
            yield result
        best: set[tuple[str, str]] = set()
        for label, rows in groupby(rank(results), key=lambda row: row.label):
            ranked = list(rows)
            if share < 1 and ranked[0].score is None and not all(row.diverged for row in ranked):
                raise ConfigError(f"{label} has no accuracy after {share:.1%} of a run: lower run.eval_every")
            best.update((label, row.name) for row in ranked[: survivors(len(ranked))])
        todo = [point for point in todo if (point.label, point.name) in best]


def count(todo: Sequence[Point], rungs: Sequence[float]) -> int:
    """How many results `search` gives."""
    total = 0
    for label in {point.label for point in todo}:
        names, seeds = ({getattr(p, key) for p in todo if p.label == label} for key in ("name", "seed"))
        left = len(names)
        for _ in rungs:
            total += left * len(seeds)
            left = survivors(left)
    return total


def survivors(points: int) -> int:
    """How many of so many points go on to the next rung."""
    return ceil(points / 4)
