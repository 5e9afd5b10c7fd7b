"""The points of a search from best to worst, and whether the best one lies on an edge of its grid."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, stdev
from typing import Any, Literal

from fadas.core.metrics import Metric
from fadas.experiments.sweeps.grids import Beyond, Grid
from fadas.experiments.sweeps.points import Point
from fadas.runs.summary import Outcome

Result = tuple[Point, Outcome]
By = Literal["mean", "last"]


@dataclass(frozen=True)
class Edge:
    """An edge of a grid on which the best point lies.

    Attributes:
        key: The setting.
        side: Which edge it is: "lower" or "upper".
        value: The best point's value.
        next: The next value to try. None: this is a bound of the setting, and no value beyond it is valid.
        reason: Why the values beyond are not valid.
    """

    key: str
    side: Literal["lower", "upper"]
    value: int | float
    next: int | float | None
    reason: str | None = None


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
        spread: The sample standard deviation over the seeds. None: there is one seed, or no score.
        seeds: The number of seeds.
        edges: The edges of the grid on which it lies. Only the best point has them.
    """

    label: str
    name: str
    point: dict[str, Any]
    score: float | None
    diverged: int
    share: float
    best: bool
    spread: float | None = None
    seeds: int = 1
    edges: tuple[Edge, ...] = ()

    def score_text(self, metric: Metric) -> str:
        """Return the score with its spread over the seeds, and how much of the run was done: "90.00% ± 0.50"."""
        after = "" if self.share == 1 else f", after {self.share:.1%}"
        if self.diverged or self.score is None:
            return ("diverged" if self.diverged else "-") + after
        if metric.format != "percent":
            text = metric.text(self.score) if self.spread is None else metric.with_spread(self.score, self.spread)
        else:
            text = f"{self.score:.2%}" + ("" if self.spread is None else f" ± {100 * self.spread:.2f}")
        return text + after

    def mark(self) -> str:
        """Return what a table says of the best point, else "": "best", "best, at the edge of local.lr"."""
        if not self.best:
            return ""
        edges = [edge.key for edge in self.edges if edge.next is not None]
        bounds = [edge.key for edge in self.edges if edge.next is None]
        places = [f"the {word} of {join_words(keys)}" for word, keys in (("edge", edges), ("bound", bounds)) if keys]
        return f"best, at {' and '.join(places)}" if places else "best"


def join_words(words: Sequence[str]) -> str:
    """Return words as a text: "a, b and c"."""
    return " and ".join(([", ".join(words[:-1])] if words[1:] else []) + list(words[-1:]))


def score_of(outcome: Outcome, by: By = "mean") -> float | None:
    """Return what a run is judged by. None if it diverged or did not measure it.

    Args:
        outcome: The run's results.
        by: The mean over the last five evaluations, or the last evaluation.
    """
    if by == "mean" or outcome.diverged is not None:
        return outcome.score
    return outcome.judged_by.value(outcome.metrics)


def rank_points(results: Sequence[Result], by: By = "mean", grids: Mapping[str, Grid] = {}) -> list[Ranked]:
    """Return the points of each algorithm from best to worst, by the mean of the metric over the seeds.

    A point that went further is better than one that was left behind. Of two points with the same score, the one on
    fewer edges is better: tau_c = 0 gives the same runs as tau_c = 1. Points without a score come last.

    Args:
        results: The results of the points.
        by: What a run is judged by: the mean over the last five evaluations, or the last evaluation.
        grids: The grids, by algorithm. They have the edges.
    """
    found: dict[str, dict[str, list[Result]]] = {}
    for point, outcome in results:
        found.setdefault(point.label, {}).setdefault(point.name, []).append((point, outcome))
    ranked: list[Ranked] = []
    for label, by_point in found.items():
        rows = [_as_row(label, name, seeds, by) for name, seeds in by_point.items()]
        outcome = next(iter(by_point.values()))[0][1]
        sign = -1 if outcome.judged_by.better == "higher" else 1
        edges = {row.name: len(grids[label].edges_at(row.point)) if label in grids else 0 for row in rows}
        rows.sort(key=lambda row: (row.score is None, -row.share, sign * (row.score or 0.0), edges[row.name], row.name))
        ranked += [replace(row, best=place == 0 and row.score is not None) for place, row in enumerate(rows)]
    return ranked


def _as_row(label: str, name: str, seeds: Sequence[Result], by: By) -> Ranked:
    scores = [score_of(outcome, by) for _, outcome in seeds]
    known = [score for score in scores if score is not None]
    mean = fmean(known) if len(known) == len(seeds) else None
    spread = stdev(known) if mean is not None and len(known) > 1 else None
    diverged = sum(outcome.diverged is not None for _, outcome in seeds)
    first = seeds[0][0]
    return Ranked(label, name, first.point, mean, diverged, first.share, False, spread, len(seeds))


def find_edges(grid: Grid, point: dict[str, Any], why_invalid: Callable[[dict[str, Any]], str | None]) -> list[Edge]:
    """Return the edges of a grid on which a point lies.

    Args:
        grid: The grid.
        point: The settings of the point.
        why_invalid: Returns why a point cannot be run, or None if it can.
    """
    return [_as_edge(beyond, point, why_invalid) for beyond in grid.edges_at(point)]


def _as_edge(beyond: Beyond, point: dict[str, Any], why_invalid: Callable[[dict[str, Any]], str | None]) -> Edge:
    side, reason = "upper" if beyond.upper else "lower", None
    for value in beyond.candidates:
        reason = why_invalid({**point, beyond.key: value})
        if reason is None:
            return Edge(beyond.key, side, beyond.value, value)
    return Edge(beyond.key, side, beyond.value, None, reason)
