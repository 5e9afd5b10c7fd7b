"""Successive halving: all points run part of the way, and the best ones continue."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import ceil
from typing import Any

from fadas.errors import ConfigError
from fadas.experiments.queue import RunQueue, find_finished_runs
from fadas.experiments.resolve import resolve
from fadas.experiments.sweeps.points import Point, run_point
from fadas.experiments.sweeps.ranking import By, Result, rank_points
from fadas.runs import lock
from fadas.runs.folder import checkpoint_name, checkpoints
from fadas.runs.summary import Outcome

HALVING = (1 / 8, 1 / 2, 1.0)  # rungs, as shares of a run


def search_points(
    todo: Sequence[Point],
    jobs: int,
    rungs: Sequence[float],
    known: Mapping[tuple[str, float], Outcome] = {},
    by: By = "mean",
    say: Callable[[str], None] = lambda text: None,
) -> Iterator[Result]:
    """Run the points in rungs: the best quarter of each algorithm's points continues to the next rung.

    If a point diverges, the next best one of the previous rung takes its place. Each point is yielded once per rung;
    its last result counts. No checkpoints are kept of runs that have fallen behind. Points that another process is
    running come last, and are waited for.

    Args:
        todo: The points.
        jobs: How many to run at the same time.
        rungs: Shares of a run, rising to 1.
        known: Outcomes by name and share, of points of one algorithm and seed that need not run again.
        by: What a run is judged by: the mean over the last evaluations, or the last one.
        say: Receives messages, such as that a point of another process is waited for.

    Raises:
        ConfigError: Before anything runs, if a folder cannot be used or an evaluation would come too late.
    """
    wanted = {p.folder: resolve(p.tables, p.label, p.seed).tables for p in todo}
    finished = find_finished_runs(wanted, "resume", waits=True)
    if len(rungs) > 1:
        _check_evaluations(todo, rungs[0])

    def run_rung(rung: Sequence[Point]) -> Iterator[Result]:
        before = [(p, known[p.name, p.share]) for p in rung if (p.name, p.share) in known]
        whole = [p for p in rung if p.share == 1 and p.folder in finished and (p.name, 1) not in known]
        before += [(p, finished[p.folder]) for p in whole]
        yield from before
        judged = {point.folder for point, _ in before}
        queue = RunQueue([point for point in rung if point.folder not in judged], _name, say, _is_held)
        yield from queue.run(partial(run_point, {}), jobs)

    yield from climb_rungs(todo, rungs, run_rung, by, remove_checkpoints_behind)


def climb_rungs(
    todo: Sequence[Point],
    rungs: Sequence[float],
    run_rung: Callable[[Sequence[Point]], Iterator[Result]],
    by: By = "mean",
    on_result: Callable[[Sequence[Result], Mapping[str, int], By], None] = lambda results, wanted, by: None,
) -> Iterator[Result]:
    """Run the points in rungs, in whatever way one rung is run.

    Args:
        todo: The points.
        rungs: Shares of a run, rising to 1.
        run_rung: Yields the result of each of these points, up to its share.
        by: What a run is judged by.
        on_result: Receives the rung's results so far, and how many points of each algorithm the rung wants.
    """
    waiting: dict[str, list[str]] = {}  # by algorithm: its points, the best first
    for point in todo:
        names = waiting.setdefault(point.label, [])
        names += [point.name] if point.name not in names else []
    wanted = {label: len(names) for label, names in waiting.items()}
    for share in rungs:
        results: list[Result] = []
        while chosen := _choose_next(waiting, wanted, results, by):
            waiting = {label: [n for n in names if (label, n) not in chosen] for label, names in waiting.items()}
            rung = [replace(point, share=share) for point in todo if (point.label, point.name) in chosen]
            for result in run_rung(rung):
                results.append(result)
                yield result
                on_result(results, wanted, by)
        ranked = rank_points(results, by)
        waiting = {label: [r.name for r in ranked if r.label == label and r.score is not None] for label in waiting}
        wanted = {label: survivors(number) for label, number in wanted.items()}


def _is_held(point: Point) -> bool:
    return lock.is_held(point.folder)


def _name(point: Point) -> str:
    return f"{point.label}/{point.folder.name}"


def _choose_next(
    waiting: Mapping[str, Sequence[str]], wanted: Mapping[str, int], results: Sequence[Result], by: By
) -> set[tuple[str, str]]:
    """Return the points to run on this rung, in place of those that have no score."""
    good = Counter(row.label for row in rank_points(results, by) if row.score is not None)
    return {(label, name) for label, names in waiting.items() for name in names[: wanted[label] - good[label]]}


def remove_checkpoints_behind(results: Sequence[Result], wanted: Mapping[str, int], by: By) -> None:
    """Remove the checkpoints of points that have fallen behind. A point that is needed after all starts over."""
    ranked = rank_points(results, by)
    for label, number in wanted.items():
        behind = [row.name for row in ranked if row.label == label][survivors(number) :]
        for point, outcome in results:
            made = checkpoints(point.folder) if point.label == label and point.name in behind else []
            if made and made[0].name == checkpoint_name(outcome.step):  # the run has not got further before
                for path in made:
                    path.unlink(missing_ok=True)


def _check_evaluations(todo: Sequence[Point], share: float) -> None:
    """Raise an error if the first rung ends before the first evaluation."""
    from fadas.experiments.prepare import count_evaluations, make_plan

    planned: set[Any] = set()
    for point in todo:
        config = resolve(point.tables, point.label, point.seed)
        kind = (point.label, config.schedule, replace(config.run, seeds=(0,)))
        if kind in planned:  # a plan of a million updates takes seconds
            continue
        planned.add(kind)
        timeline = make_plan(config)
        if not count_evaluations(config.run.interval, timeline, share):
            steps = ceil(share * timeline.steps)
            which = f"{point.label}, {point.name}"
            raise ConfigError(f"{which}: {share:.1%} of a run is {steps} steps; run.eval_every must be at most {steps}")


def count_runs(todo: Sequence[Point], rungs: Sequence[float]) -> int:
    """Return how many results `search_points` yields if nothing diverges."""
    total = 0
    for label in {point.label for point in todo}:
        names, seeds = ({getattr(p, key) for p in todo if p.label == label} for key in ("name", "seed"))
        left = len(names)
        for _ in rungs:
            total += left * len(seeds)
            left = survivors(left)
    return total


def survivors(points: int) -> int:
    """Return how many of these points continue to the next rung."""
    return ceil(points / 4)
