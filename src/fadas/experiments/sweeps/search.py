"""A search: run the points of some grids, extend the grids whose best point lies on an edge, and run again."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from fadas.core.metrics import Metric
from fadas.experiments.sweeps.grids import Grid
from fadas.experiments.sweeps.points import Point
from fadas.experiments.sweeps.ranking import By, Edge, Ranked, Result, find_edges, join_words, rank_points

WIDENINGS = 6  # how often a grid is extended unless the user says otherwise


class Search:
    """The points of some algorithms and their results so far.

    Args:
        grids: The grids, by algorithm.
        make_points: Returns the runs of an algorithm's grid.
        why_invalid: Returns why a point of an algorithm cannot be run, or None if it can.
        by: What a run is judged by: the mean over the last evaluations, or the last one.
        widenings: How often a grid may be extended. 0: never.

    Attributes:
        grids: The grids, with what they were extended by.
        extended: The edges that were extended, by algorithm, in this order.

    Example:
        >>> search = Search(grids, make_points, why_invalid)
        >>> while todo := search.next_points():
        ...     for point, outcome in search.record(search_points(todo, jobs=2, rungs=HALVING)):
        ...         print(point.name, outcome.score)
        >>> search.ranked()[0].point
    """

    def __init__(
        self,
        grids: Mapping[str, Grid],
        make_points: Callable[[str, Grid], list[Point]],
        why_invalid: Callable[[str, dict[str, Any]], str | None],
        by: By = "mean",
        widenings: int = 0,
    ) -> None:
        self.grids = dict(grids)
        self.extended: dict[str, list[Edge]] = {label: [] for label in grids}
        self._make_points, self._why_invalid = make_points, why_invalid
        self._by: By = by
        self._widenings = widenings
        self._rounds = dict.fromkeys(grids, 0)  # how often each grid was extended
        self._todo: dict[str, list[Point]] = {label: make_points(label, grid) for label, grid in grids.items()}
        self._results: dict[str, dict[tuple[str, int], Result]] = {label: {} for label in grids}
        self._begun = False

    @property
    def results(self) -> list[Result]:
        """The furthest result of each point and seed."""
        return [result for results in self._results.values() for result in results.values()]

    @property
    def metric(self) -> Metric:
        """The metric that the points are judged by. There must be a result."""
        return self.results[0][1].judged_by

    def next_points(self) -> list[Point]:
        """Return the points to run now: at first all, then all of each algorithm whose grid was extended.

        Points that have run before are among them: halving compares them with the new ones. The list is empty at the
        end.
        """
        if not self._begun:
            self._begun = True
            return [point for points in self._todo.values() for point in points]
        return [point for row in self.ranked() if row.best for point in self._extend(row)]

    def _extend(self, best: Ranked) -> list[Point]:
        """Extend the grid of an algorithm where its best point lies on an edge. Return its points, or none."""
        label, wider = best.label, [edge for edge in best.edges if edge.next is not None]
        if not wider or self._rounds[label] >= self._widenings:
            return []
        self._rounds[label] += 1
        for edge in wider:
            assert edge.next is not None
            self.grids[label] = self.grids[label].extended(edge.key, edge.side == "upper", edge.next)
        self.extended[label] += wider
        return self._make_points(label, self.grids[label])

    def record(self, results: Iterator[Result]) -> Iterator[Result]:
        """Pass results on, and keep the furthest of each run.

        When a grid was extended, halving may leave behind a point that ran further before.
        """
        for point, outcome in results:
            kept, key = self._results[point.label], (point.name, point.seed)
            if key not in kept or kept[key][0].share <= point.share:
                kept[key] = point, outcome
            yield point, outcome

    def ranked(self) -> list[Ranked]:
        """Return the points of each algorithm from best to worst. The best ones know on which edges they lie."""
        return [self._with_edges(row) if row.best else row for row in rank_points(self.results, self._by, self.grids)]

    def _with_edges(self, row: Ranked) -> Ranked:
        def why_invalid(point: dict[str, Any]) -> str | None:
            return self._why_invalid(row.label, point)

        return replace(row, edges=tuple(find_edges(self.grids[row.label], row.point, why_invalid)))

    def edges_left(self) -> list[tuple[str, str]]:
        """Return a sentence for each algorithm whose best point lies on an edge that could be extended, by label."""
        return [(row.label, text) for row in self.ranked() if (text := _describe(row.edges, self._rounds[row.label]))]


def _describe(edges: Sequence[Edge], rounds: int) -> str:
    places = [f"the {edge.side} edge of {edge.key} ({edge.value})" for edge in edges if edge.next is not None]
    after = f" after {rounds} extension{'s' if rounds > 1 else ''}" if rounds else ""
    return f"best at {join_words(places)}{after}" if places else ""
