"""Successive halving."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from statistics import fmean
from typing import Any

from fadas.errors import ConfigError
from fadas.experiments.resolve import resolve
from fadas.experiments.sweep import Point, run_points
from fadas.runs.folder import checkpoint_name, checkpoints
from fadas.runs.run_reader import finished

HALVING = (1 / 8, 1 / 2, 1.0)  # rungs, as shares of a run


@dataclass(frozen=True)
class Ranked:
    label: str
    name: str
    point: dict[str, Any]
    score: float | None  # the seeds' mean accuracy; none: a seed diverged, or there is no accuracy
    diverged: int  # seeds
    share: float  # of the run, after which it was judged
    best: bool


def rank_points(results: Sequence[tuple[Point, Mapping[str, Any]]]) -> list[Ranked]:
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


def search_points(
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
    finished({p.folder: resolve(p.tables, p.label, p.seed).tables for p in todo}, overwrite=False, resume=True)
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
            good = Counter(row.label for row in rank_points(results) if row.score is not None)
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
            for result in run_points([point for point in rung if (point.name, share) not in known], jobs):
                results.append(result)
                yield result
                _give_up_behind(results, wanted)
        ranked = rank_points(results)
        waiting = {label: [r.name for r in ranked if r.label == label and r.score is not None] for label in waiting}
        wanted = {label: survivors(number) for label, number in wanted.items()}


def _give_up_behind(results: Sequence[tuple[Point, Mapping[str, Any]]], wanted: Mapping[str, int]) -> None:
    """Checkpoints are large, and grids too. Who is needed after all, because others diverge, begins anew."""
    ranked = rank_points(results)
    for label, number in wanted.items():
        behind = [row.name for row in ranked if row.label == label][survivors(number) :]
        for point, summary in results:
            made = checkpoints(point.folder) if point.label == label and point.name in behind else []
            if made and made[0].name == checkpoint_name(
                summary["step"]
            ):  # it ends here, and did not get further before
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


def count_runs(todo: Sequence[Point], rungs: Sequence[float]) -> int:
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
