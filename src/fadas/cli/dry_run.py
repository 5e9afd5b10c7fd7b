"""--dry-run: what a command would run, and about how long it would take. Nothing is written."""

import os
import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import ceil
from pathlib import Path
from typing import Any, NamedTuple

_SECONDS = 4.0  # of the probe, for all methods together
_LEAST = 0.4  # seconds for each method


class Speed(NamedTuple):
    """What a probe found.

    Attributes:
        update: Seconds per client update, server steps included.
        evaluation: Seconds per evaluation.
        updates: How many updates were trained.
        executor: The executor that trained them.
    """

    update: float
    evaluation: float
    updates: int
    executor: str


class Row(NamedTuple):
    """Runs of one method and seed.

    Attributes:
        label: The algorithm's label.
        seed: The seed.
        runs: How many runs there are: several in a sweep.
        finished: How many of them have finished and would be skipped.
        updates: The client updates of each run.
        left: The client updates that are left to train, in all of these runs.
        evaluations: The evaluations that are left.
        state: What would happen, in words.
    """

    label: str
    seed: int
    runs: int
    finished: int
    updates: int
    left: float
    evaluations: float
    state: str


@contextmanager
def without_writing() -> Iterator[None]:
    """Let Python, its worker processes and the tasks write no caches."""
    before, compiled = dict(os.environ), sys.dont_write_bytecode
    os.environ |= {"FADAS_CACHE": "0", "PYTHONDONTWRITEBYTECODE": "1"}
    sys.dont_write_bytecode = True
    try:
        yield
    finally:
        sys.dont_write_bytecode = compiled
        for name in ("FADAS_CACHE", "PYTHONDONTWRITEBYTECODE"):
            os.environ.pop(name)
            if name in before:
                os.environ[name] = before[name]


def preview_runs(configs: Sequence[Any], root: Path, mode: Any, finished: Mapping[Path, Any], json_: bool) -> None:
    """Show what `fadas run` would do.

    Args:
        configs: The settings of the runs.
        root: Where the runs are kept.
        mode: What to do with unfinished runs.
        finished: The summaries of finished runs, by folder.
        json_: Print JSON.
    """
    from fadas.experiments.prepare import count_evaluations, make_plan, shared_task

    tasks: dict[str, Any] = {}
    rows: list[Row] = []
    for config in configs:
        folder = root / config.id
        if folder in finished:
            rows.append(Row(config.label, config.seed, 1, 1, finished[folder].updates, 0, 0, "finished, skipped"))
            continue
        plan = make_plan(config, shared_task(config, tasks) if config.delays.scale_by_data else None)
        updates, (state, done) = int(plan.statistics()["updates"]), _find_state(folder, config, mode)
        left = 1 - done / plan.steps
        evaluations = 1 + ceil(left * count_evaluations(config.run.interval, plan))
        rows.append(Row(config.label, config.seed, 1, 0, updates, left * updates, evaluations, state))
    pending = {c.label: c for c in reversed(configs) if root / c.id not in finished}
    _show(rows, _measure(pending, tasks), root, json_)


def _find_state(folder: Path, config: Any, mode: Any) -> tuple[str, int]:
    """Return what would happen to an unfinished run, and after which step it would begin."""
    from fadas.errors import Busy
    from fadas.runs.folder import checkpoints, find_finished

    try:
        find_finished(folder, config.tables, mode)
    except Busy:
        return "another process is running it", 0
    made = checkpoints(folder) if mode == "resume" else []
    if made and (step := re.search(r"\d+", made[0].name)):
        return f"continues after step {int(step[0]):,}", int(step[0])
    return "overwritten" if mode == "overwrite" and folder.exists() else "new", 0


def preview_points(
    todo: Sequence[Any],
    root: Path,
    jobs: int,
    rungs: Sequence[float],
    json_: bool,
    grids: Mapping[str, Any],
    notes: Sequence[str],
) -> None:
    """Show what `fadas sweep` would do.

    Args:
        todo: The points of the grids.
        root: The sweep's folder.
        jobs: How many run at the same time.
        rungs: Shares of a run, rising to 1.
        json_: Print JSON.
        grids: The grids, by algorithm.
        notes: What else the sweep would do, in sentences.
    """
    from fadas.experiments.prepare import count_evaluations, make_plan, metric_of, shared_task
    from fadas.experiments.queue import find_finished_runs
    from fadas.experiments.resolve import resolve
    from fadas.experiments.sweeps.halving import survivors

    configs = {point.folder: resolve(point.tables, point.label, point.seed) for point in todo}
    finished = find_finished_runs({folder: config.tables for folder, config in configs.items()}, "resume")
    tasks: dict[str, Any] = {}
    if pending := {p.label: configs[p.folder] for p in reversed(todo) if p.folder not in finished}:
        first = next(iter(pending.values()))
        metric_of(first, shared_task(first, tasks))
    rows: list[Row] = []
    for label, seed in dict.fromkeys((point.label, point.seed) for point in todo):
        folders = [point.folder for point in todo if (point.label, point.seed) == (label, seed)]
        share, reached, surviving = 0.0, 0.0, len(folders)
        for rung in rungs:
            share, reached = share + surviving * (rung - reached) / len(folders), rung
            surviving = survivors(surviving)
        updates = left = evaluations = 0.0
        for folder in folders:
            config = configs[folder]
            plan = make_plan(config, shared_task(config, tasks) if config.delays.scale_by_data else None)
            updates = plan.statistics()["updates"]
            if folder not in finished:
                left += share * updates
                evaluations += 1 + share * count_evaluations(config.run.interval, plan)
        skipped = sum(folder in finished for folder in folders)
        state = f"{skipped} finished, skipped" if skipped else "new"
        rows.append(Row(label, seed, len(folders), skipped, int(updates), left, evaluations, state))
    more = {"grids": {label: grid.as_dict() for label, grid in grids.items()}, "notes": list(notes)}
    lines = [f"{label}: {grid.text()}" for label, grid in grids.items()]
    _show(rows, _measure(pending, tasks), root, json_, min(jobs, os.cpu_count() or 1), [*lines, *notes], more)


def _measure(pending: Mapping[str, Any], tasks: dict[str, Any]) -> dict[str, Speed]:
    """Train each method for a moment."""
    from fadas.executors.torch_settings import torch_threads
    from fadas.experiments.prepare import make_plan, make_simulation, shared_task
    from fadas.experiments.run import training_threads

    seconds = max(_LEAST, _SECONDS / max(1, len(pending)))
    found: dict[str, Speed] = {}
    for label, config in sorted(pending.items(), key=lambda item: item[1].place):
        task = shared_task(config, tasks)
        simulation = make_simulation(config, task, make_plan(config, task))
        with torch_threads(training_threads(config, simulation)):
            found[label] = probe(simulation, seconds)
    return found


def probe(simulation: Any, seconds: float) -> Speed:
    """Train in memory for about this many seconds. At least one update is trained.

    An executor may train many jobs when the first of them is collected. So time is measured from the beginning of one
    slow call to the beginning of another.
    """
    from fadas.errors import Diverged

    executor = simulation.executor
    collect, evaluate = executor.collect, executor.evaluate
    calls: list[tuple[float, float]] = []  # (when a collection began, how long it took), without evaluations
    evaluations: list[float] = []
    begin = time.perf_counter()

    def timed_collect(job: Any) -> Any:
        start = time.perf_counter()
        update = collect(job)
        taken = time.perf_counter() - start
        calls.append((start - begin - sum(evaluations), taken))
        elapsed = time.perf_counter() - begin
        if elapsed > seconds and (taken > _slow(calls) or elapsed > 3 * seconds):
            simulation.stop()
        return update

    def timed_evaluate(model: Any) -> Any:
        start = time.perf_counter()
        try:
            return evaluate(model)
        finally:
            evaluations.append(time.perf_counter() - start)

    executor.collect, executor.evaluate = timed_collect, timed_evaluate
    try:
        for _ in simulation:
            pass
    except Diverged:
        pass  # the run would say so; its speed is known
    if not evaluations:
        timed_evaluate(simulation.server.model)
    slow = [index for index, (_, taken) in enumerate(calls) if taken > _slow(calls)]
    first = next((index for index in slow if index >= len(calls) // 2), 0)
    last = slow[-1]
    if first >= last:
        total = calls[-1][0] + calls[-1][1]
        update = total / len(calls)
    else:
        update = (calls[last][0] - calls[first][0]) / (last - first)
    return Speed(update, min(evaluations), len(calls), type(executor).__name__.lower())


def _slow(calls: Sequence[tuple[float, float]]) -> float:
    """Return from how many seconds on a call counts as slow: it trained, the others were trained before."""
    return sum(taken for _, taken in calls) / len(calls) / 4


def _show(
    rows: Sequence[Row],
    speeds: Mapping[str, Speed],
    root: Path,
    json_: bool,
    side_by_side: int = 1,
    lines: Sequence[str] = (),
    more: Mapping[str, Any] = {},
) -> None:
    from fadas.cli.terminal import print_json, print_line, print_table

    seconds = [_seconds_of(row, speeds) / side_by_side for row in rows]
    if json_:
        runs = [row._asdict() | {"seconds": round(each, 1)} for row, each in zip(rows, seconds, strict=True)]
        probes = {label: speed._asdict() for label, speed in speeds.items()}
        print_json({"runs": runs, "seconds": round(sum(seconds), 1), "probe": probes, "folder": str(root), **more})
        return
    cells = [[row.label, str(row.seed), str(row.runs), f"{row.updates:,}", row.state] for row in rows]
    times = [describe_time(each) if each else "-" for each in seconds]
    head = ["algorithm", "seed", "runs", "updates\neach", "state", "time"]
    print_table(head, [[*row, each] for row, each in zip(cells, times, strict=True)])
    for line in lines:
        print_line(line)
    total, skipped = sum(row.runs for row in rows), sum(row.finished for row in rows)
    left = f"{sum(row.left for row in rows):,.0f} updates left to train"
    print_line(f"runs in {root}: {total}; finished, would be skipped: {skipped}; {left}")
    if speeds:
        print_line(f"estimate: {describe_time(sum(seconds))}")
        trained = ", ".join(f"{label} {speed.updates:,} updates" for label, speed in speeds.items())
        used = " and ".join(dict.fromkeys(speed.executor for speed in speeds.values()))
        jobs = f" Runs at a time: {side_by_side}, as if none slowed down another." if side_by_side > 1 else ""
        print_line(
            f"The estimate comes from a trial in memory with the executor {used} ({trained}). Reading data, starting "
            f"workers and writing files are not counted.{jobs}"
        )
    print_line("Nothing was written.")


def _seconds_of(row: Row, speeds: Mapping[str, Speed]) -> float:
    speed = speeds.get(row.label)
    return 0.0 if speed is None else row.left * speed.update + row.evaluations * speed.evaluation


def describe_time(seconds: float) -> str:
    """Return seconds in words: "less than 1 s", "about 40 s", "about 2.5 minutes", "about 3 hours"."""
    if seconds < 60:
        return f"about {round(seconds)} s" if seconds >= 1 else "less than 1 s"
    return f"about {seconds / 60:.1f} minutes" if seconds < 3600 else f"about {seconds / 3600:.1f} hours"
