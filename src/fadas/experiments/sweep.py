"""Sweeps: every point of an algorithm's grid, tuned on data held out from the training set, never on the test set."""

import copy
import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from math import ceil
from pathlib import Path
from statistics import fmean
from typing import Any

from fadas.errors import ConfigError
from fadas.experiments.experiment_file import put
from fadas.experiments.parallel_runs import each
from fadas.experiments.resolve import resolve
from fadas.experiments.settings import RunConfig
from fadas.registry import Table
from fadas.runs import writer as runs
from fadas.runs.folder import checkpoint, checkpoints
from fadas.runs.serialization import flatten
from fadas.runs.summary import summarise

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
        return name_of(self.point)


def name_of(point: Table) -> str:
    return ", ".join(f"{key}={value}" for key, value in point.items())


def points(tables: Table, labels: Sequence[str], seeds: Sequence[int], out: Path, validation: float) -> list[Point]:
    """All runs of a sweep, each checked; a run is stored under out/<algorithm>/<point>-<seed>."""
    held_out = copy.deepcopy(dict(tables))
    if not isinstance(validation, int | float) or not 0 < validation < 1:
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
        finished = runs.check(point.folder, config.tables, resume=True)
    except ConfigError as error:
        if error.matter != "busy":
            raise
        finished, busy = False, error
    if finished and point.share == 1:
        return runs.read(point.folder).summary
    timeline = make_plan(config, shared_task(config, tasks) if config.delays.scale_by_data else None)
    enough = point.share * timeline.arrivals.size  # client updates
    if point.share < 1 and (summary := _so_far(point.folder, enough)):
        return summary  # whoever may be at the rest
    if busy:
        raise busy
    if finished:  # before it got that far: it diverged
        return runs.read(point.folder).summary
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

    A point that went further is better than one that was left behind, unless it diverged.
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
        rows.sort(key=lambda row: (row.score is None, -row.share, -(row.score or 0.0), row.name))
        ranked += [replace(row, best=place == 0 and row.score is not None) for place, row in enumerate(rows)]
    return ranked


def search(
    todo: Sequence[Point],
    jobs: int,
    rungs: Sequence[float],
    known: Mapping[tuple[str, float], dict[str, Any]] = {},
) -> Iterator[tuple[Point, dict[str, Any]]]:
    """Run the points in rungs: of each algorithm only the best quarter goes on to the next one.

    For each that diverges there, the next best of the rung before goes on. A point comes once for every rung that it
    gets to; the last time counts. Those first whose outcome is `known`, by name and share (of one algorithm and seed),
    and that are not run. Of runs that have fallen behind no checkpoint is kept. What cannot work is an error before
    anything is run: folders that cannot be written to or read, late evaluations.
    """
    runs.finished({p.folder: resolve(p.tables, p.label, p.seed).tables for p in todo}, overwrite=False, resume=True)
    if len(rungs) > 1:
        _check_evaluations(todo, rungs[0])
    waiting: dict[str, list[str]] = {}  # by algorithm: its points, the best first
    for point in todo:
        names = waiting.setdefault(point.label, [])
        names += [point.name] if point.name not in names else []
    wanted = {label: len(names) for label, names in waiting.items()}
    for share in rungs:
        results: list[tuple[Point, dict[str, Any]]] = []
        while True:
            good = Counter(row.label for row in rank(results) if row.score is not None)
            chosen = {
                (label, name) for label, names in waiting.items() for name in names[: wanted[label] - good[label]]
            }
            if not chosen:
                break
            waiting = {label: [n for n in names if (label, n) not in chosen] for label, names in waiting.items()}
            rung = [replace(point, share=share) for point in todo if (point.label, point.name) in chosen]
            there = [(point, known[point.name, share]) for point in rung if (point.name, share) in known]
            results += there
            yield from there
            for result in run_all([point for point in rung if (point.name, share) not in known], jobs):
                results.append(result)
                yield result
                _give_up_behind(results, wanted)
        ranked = rank(results)
        waiting = {label: [r.name for r in ranked if r.label == label and r.score is not None] for label in waiting}
        wanted = {label: survivors(number) for label, number in wanted.items()}


def _give_up_behind(results: Sequence[tuple[Point, Mapping[str, Any]]], wanted: Mapping[str, int]) -> None:
    """Checkpoints are large, and grids too. Who is needed after all, because others diverge, begins anew."""
    ranked = rank(results)
    for label, number in wanted.items():
        behind = [row.name for row in ranked if row.label == label][survivors(number) :]
        for point, summary in results:
            made = checkpoints(point.folder) if point.label == label and point.name in behind else []
            if made and made[0].name == checkpoint(summary["step"]):  # it ends here, and did not get further before
                for path in made:
                    path.unlink(missing_ok=True)


def _check_evaluations(todo: Sequence[Point], share: float) -> None:
    """An error where the first rung ends before the first evaluation."""
    from fadas.experiments.prepare import make_plan

    planned: set[Any] = set()
    for point in todo:
        config = resolve(point.tables, point.label, point.seed)
        kind = (point.label, config.schedule, replace(config.run, seeds=(0,)))
        if kind in planned:  # plans of a million updates take seconds
            continue
        planned.add(kind)
        steps, every = ceil(share * make_plan(config).steps), config.run.eval_every
        if steps < every:
            which = f"{point.label}, {point.name}"
            raise ConfigError(f"{which}: {share:.1%} of a run are {steps} steps: run.eval_every must not be {every}")


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
