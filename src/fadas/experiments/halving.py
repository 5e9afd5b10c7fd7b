"""Successive halving: all points run part of the way, and the best ones continue."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import ceil
from statistics import fmean
from typing import Any

from fadas.errors import ConfigError
from fadas.experiments.queue import RunQueue, find_finished_runs
from fadas.experiments.resolve import resolve
from fadas.experiments.sweep import Point, run_point
from fadas.runs.folder import checkpoint_name, checkpoints
from fadas.runs.summary import Outcome

HALVING = (1 / 8, 1 / 2, 1.0)  # rungs, as shares of a run
Result = tuple[Point, Outcome]


@dataclass(frozen=True)
class Ranked:
    """A point of a grid beside the others of its algorithm.

    Attributes:
        label: The algorithm's label.
        name: The point in words.
        point: The settings that the point changes.
        score: The mean of the metric over the seeds. None: a seed diverged, or the metric was not measured.
        diverged: How many seeds diverged.
        share: How much of the run was done when the point was judged.
        best: Is it the best point of its algorithm?
    """

    label: str
    name: str
    point: dict[str, Any]
    score: float | None
    diverged: int
    share: float
    best: bool


def rank_points(results: Sequence[Result]) -> list[Ranked]:
    """Return the points of each algorithm from best to worst, by the mean of the metric over the seeds.

    A point that went further is better than one that was left behind. Points without a score come last.
    """
    found: dict[str, dict[str, list[Result]]] = {}
    for point, outcome in results:
        found.setdefault(point.label, {}).setdefault(point.name, []).append((point, outcome))
    ranked: list[Ranked] = []
    for label, by_point in found.items():
        rows: list[Ranked] = []
        for name, seeds in by_point.items():
            known = [outcome.score for _, outcome in seeds if outcome.score is not None]
            mean = fmean(known) if len(known) == len(seeds) else None
            diverged = sum(outcome.diverged is not None for _, outcome in seeds)
            rows.append(Ranked(label, name, seeds[0][0].point, mean, diverged, seeds[0][0].share, False))
        outcome = next(iter(by_point.values()))[0][1]
        sign = -1 if outcome.judged_by.better == "higher" else 1
        rows.sort(key=lambda row: (row.score is None, -row.share, sign * (row.score or 0.0), row.name))
        ranked += [replace(row, best=place == 0 and row.score is not None) for place, row in enumerate(rows)]
    return ranked


def search_points(
    todo: Sequence[Point],
    jobs: int,
    rungs: Sequence[float],
    known: Mapping[tuple[str, float], Outcome] = {},
) -> Iterator[Result]:
    """Run the points in rungs: the best quarter of each algorithm's points continues to the next rung.

    If a point diverges, the next best one of the previous rung takes its place. Each point is yielded once per rung;
    its last result counts. No checkpoints are kept of runs that have fallen behind.

    Args:
        todo: The points.
        jobs: How many to run at the same time.
        rungs: Shares of a run, rising to 1.
        known: Outcomes by name and share, of points of one algorithm and seed that need not run again.

    Raises:
        ConfigError: Before anything runs, if a folder cannot be used or an evaluation would come too late.
    """
    finished = find_finished_runs({p.folder: resolve(p.tables, p.label, p.seed).tables for p in todo}, "resume")
    if len(rungs) > 1:
        _check_evaluations(todo, rungs[0])
    waiting: dict[str, list[str]] = {}  # by algorithm: its points, the best first
    for point in todo:
        names = waiting.setdefault(point.label, [])
        names += [point.name] if point.name not in names else []
    wanted = {label: len(names) for label, names in waiting.items()}
    for share in rungs:
        results: list[Result] = []
        while chosen := _choose_next(waiting, wanted, results):
            waiting = {label: [n for n in names if (label, n) not in chosen] for label, names in waiting.items()}
            rung = [replace(point, share=share) for point in todo if (point.label, point.name) in chosen]
            before = [(point, known[point.name, share]) for point in rung if (point.name, share) in known]
            if share == 1:
                before += [(p, finished[p.folder]) for p in rung if p.folder in finished and (p.name, 1) not in known]
            results += before
            yield from before
            judged = {point.folder for point, _ in before}
            queue = RunQueue([point for point in rung if point.folder not in judged], _name)
            for result in queue.run(partial(run_point, {}), jobs):
                results.append(result)
                yield result
                _remove_checkpoints_behind(results, wanted)
            queue.raise_if_skipped()
        ranked = rank_points(results)
        waiting = {label: [r.name for r in ranked if r.label == label and r.score is not None] for label in waiting}
        wanted = {label: survivors(number) for label, number in wanted.items()}


def _name(point: Point) -> str:
    return f"{point.label}/{point.folder.name}"


def _choose_next(
    waiting: Mapping[str, Sequence[str]], wanted: Mapping[str, int], results: Sequence[Result]
) -> set[tuple[str, str]]:
    """Return the points to run on this rung, in place of those that have no score."""
    good = Counter(row.label for row in rank_points(results) if row.score is not None)
    return {(label, name) for label, names in waiting.items() for name in names[: wanted[label] - good[label]]}


def _remove_checkpoints_behind(results: Sequence[Result], wanted: Mapping[str, int]) -> None:
    """Remove the checkpoints of points that have fallen behind. A point that is needed after all starts over."""
    ranked = rank_points(results)
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
