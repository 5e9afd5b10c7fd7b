"""Sweeps: every point of an algorithm's grid, tuned on data held out from the training set, never on the test set."""

import copy
import hashlib
import multiprocessing
import os
import signal
import traceback
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import product
from multiprocessing.connection import wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from statistics import fmean
from typing import Any

from fadas import runs
from fadas.build import ConfigError, Interrupted
from fadas.config import resolve
from fadas.tables import Table, flatten, put


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
        for point in grid(tables, label):
            for seed in seeds:
                changed = with_point(held_out, label, point)
                resolve(changed, label, seed)
                found.append(Point(label, seed, point, out / label / f"{_file_name(point)}-{seed}", changed))
    if not found:
        raise ConfigError(f"there is no grid for {', '.join(labels)}; add a table such as [sweep.{labels[0]}]")
    return found


def _file_name(point: Table) -> str:
    name = ",".join(f"{key}={value}" for key, value in point.items()).replace("/", "_")
    if len(name.encode()) <= 200:  # file systems end at 255 bytes
        return name
    return f"{name.encode()[:180].decode(errors='ignore')}...{hashlib.sha256(name.encode()).hexdigest()[:12]}"


def run_point(point: Point) -> dict[str, Any]:
    """Run one point, or read it if it is there already."""
    from fadas.experiment import execute, make_plan, make_simulation, make_task

    config = resolve(point.tables, point.label, point.seed)
    if runs.check(point.folder, config.tables, resume=True):
        return runs.read(point.folder).summary
    task = make_task(config)
    simulation = make_simulation(config, task, make_plan(config, task))
    return execute(config, simulation, point.folder, lambda record: None, resume=True)


def _work(pipe: Any, threads: int) -> None:
    """A worker process's life: it runs the points that it is sent until the pipe ends or its run is interrupted."""
    import torch

    torch.set_num_threads(threads)
    with suppress(EOFError, ConnectionError):
        while True:
            point = pipe.recv()
            try:
                result = run_point(point)
            except Interrupted:
                return
            except Exception as error:
                error.add_note(traceback.format_exc())  # a traceback does not travel, its text does
                result = error
            pipe.send(result)


def run_all(todo: Sequence[Point], jobs: int) -> Iterator[tuple[Point, dict[str, Any]]]:
    """Results as they come, `jobs` runs at a time, the machine's cores shared among them.

    However it ends, no worker is left: what runs is interrupted and keeps a checkpoint; no further point begins.
    """
    if jobs == 1:
        yield from ((point, run_point(point)) for point in todo)
        return
    threads = max(1, (os.cpu_count() or 1) // jobs)
    workers: dict[Any, SpawnProcess] = {}  # by the pipe to each
    at_work: dict[Any, Point] = {}
    waiting = deque(todo)
    try:
        for _ in range(min(jobs, len(todo))):
            _start_worker(workers, threads)
        while waiting or at_work:
            for pipe in workers.keys() - at_work.keys():
                if waiting:
                    at_work[pipe] = waiting.popleft()
                    pipe.send(at_work[pipe])
            for pipe in wait(list(at_work)):
                point = at_work.pop(pipe)
                yield point, _receive(pipe, point)
    finally:
        for pipe, worker in workers.items():
            pipe.close()
            worker.terminate()
        try:
            for worker in workers.values():
                worker.join()
        finally:  # a second Ctrl-C waits for no checkpoint
            for worker in workers.values():
                worker.kill()


def _start_worker(workers: dict[Any, SpawnProcess], threads: int) -> None:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    worker = context.Process(target=_work, args=(theirs, threads))
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # inherited: Ctrl-C is for the parent, which ends its workers
    try:
        worker.start()
    finally:
        signal.signal(signal.SIGINT, before)
    theirs.close()
    workers[ours] = worker


def _receive(pipe: Any, point: Point) -> dict[str, Any]:
    try:
        result = pipe.recv()
    except (EOFError, ConnectionError):
        raise ConfigError(f"{point.folder}: its process died: out of memory?") from None
    if isinstance(result, Exception):
        raise result
    return result


@dataclass(frozen=True)
class Ranked:
    label: str
    name: str
    point: dict[str, Any]
    score: float | None  # the seeds' mean accuracy; none: a seed diverged, or there is no accuracy
    diverged: int  # seeds
    best: bool


def rank(results: Sequence[tuple[Point, Mapping[str, Any]]]) -> list[Ranked]:
    """Per algorithm, its points from best to worst by the mean score over the seeds. Without a score, none is best."""
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
            rows.append(Ranked(label, name, seeds[0][0].point, mean, diverged, False))
        rows.sort(key=lambda row: (row.score is None, -(row.score or 0.0), row.name))
        ranked += [replace(row, best=place == 0 and row.score is not None) for place, row in enumerate(rows)]
    return ranked
