"""Searches that extend their grids, on made-up results, and what points are judged by."""

from dataclasses import replace
from pathlib import Path

import pytest

from fadas.core.metrics import Metric
from fadas.experiments.sweeps.grids import make_grid
from fadas.experiments.sweeps.halving import HALVING, climb_rungs, search_points
from fadas.experiments.sweeps.points import Point, sweep_points
from fadas.experiments.sweeps.ranking import Edge, Ranked, rank_points
from fadas.experiments.sweeps.search import Search
from fadas.runs.reader import written_records
from fadas.runs.summary import summarise
from helpers.experiments import make_sweep


def run_search(grid, score, valid=lambda point: True, rungs=(1.0,), seeds=(1,), **options):
    """Search a grid of the algorithm "a". `score(point, share)` is the accuracy; None: the run diverges."""

    def make_points(label, grid):
        return [Point(label, seed, point, Path(), {}) for point in grid.points for seed in seeds]

    def run_rung(rung):
        for point in rung:
            value = score(point.point, point.share)
            yield point, replace(summarise([], diverged="why" if value is None else None), accuracy=value)

    search = Search({"a": grid}, make_points, lambda label, point: None if valid(point) else "no", **options)
    rounds = []
    while todo := search.next_points():
        rounds.append([tuple(point.point.values()) for point in todo])
        for _ in search.record(climb_rungs(todo, rungs, run_rung)):
            pass
    return search, rounds


def peak_at(*best):
    return lambda point, share: (
        1 - sum((value - wanted) ** 2 for value, wanted in zip(point.values(), best, strict=True))
    )


def test_search_widens_until_the_best_point_is_inside():
    search, rounds = run_search(make_grid("a", {"x": [1, 2]}), peak_at(8), widenings=6)
    assert rounds == [[(1,), (2,)], [(1,), (2,), (4,)], [(1,), (2,), (4,), (8,)], [(1,), (2,), (4,), (8,), (16,)]]
    assert search.ranked()[0].point == {"x": 8}
    assert search.ranked()[0].edges == ()
    assert search.edges_left() == []
    assert [edge.next for edge in search.extended["a"]] == [4, 8, 16]


def test_tie_goes_to_the_point_inside_the_grid():
    """As for tau_c: 0 gives the runs of 1, so the smaller value is no better and not at a bound."""
    grid, score = make_grid("a", {"x": [1, 2]}), lambda point, share: 1 - max(1, point["x"])
    search, rounds = run_search(grid, score, lambda point: point["x"] in range(9), widenings=6)
    assert rounds[1:] == [[(0,), (1,), (2,)]]
    assert (search.ranked()[0].point, search.ranked()[0].edges) == ({"x": 1}, ())


def test_search_does_not_widen_unless_told():
    search, rounds = run_search(make_grid("a", {"x": [1, 2], "y": [1, 2, 3]}), peak_at(9, 2))
    assert len(rounds) == 1
    assert search.ranked()[0].edges == (Edge("x", "upper", 2, 4),)
    assert search.edges_left() == [("a", "best at the upper edge of x (2)")]


def test_widening_ends_at_the_limit():
    search, rounds = run_search(make_grid("a", {"x": [1.0, 2.0]}), peak_at(1e9), widenings=3)
    assert len(rounds) == 4
    assert search.edges_left() == [("a", "best at the upper edge of x (16.0) after 3 extensions")]


def test_widening_ends_at_a_bound():
    search, rounds = run_search(make_grid("a", {"x": [2, 4]}), peak_at(0), lambda point: point["x"] >= 1, widenings=6)
    assert len(rounds) == 2
    (edge,) = search.ranked()[0].edges
    assert (edge.key, edge.side, edge.value, edge.next, edge.reason) == ("x", "lower", 1, None, "no")
    assert search.edges_left() == []


def test_widening_a_corner_runs_all_combinations():
    _, rounds = run_search(make_grid("a", {"x": [1, 2], "y": [1, 2]}), peak_at(4, 4), widenings=1)
    assert sorted(rounds[1]) == [(x, y) for x in (1, 2, 4) for y in (1, 2, 4)]


def test_diverged_neighbour_closes_the_edge():
    search, rounds = run_search(
        make_grid("a", {"x": [1, 2]}), lambda point, share: None if point["x"] > 2 else point["x"], widenings=6
    )
    assert len(rounds) == 2
    assert search.ranked()[0].point == {"x": 2}
    assert search.edges_left() == []


def test_search_without_any_score_ends():
    search, rounds = run_search(make_grid("a", {"x": [1, 2]}), lambda point, share: None, widenings=6)
    assert len(rounds) == 1
    assert not any(row.best for row in search.ranked())


def test_widened_samples_stay_in_the_new_part():
    grid = make_grid("a", {"x": {"low": 1.0, "high": 16.0, "log": True}}, 8)
    search, rounds = run_search(grid, peak_at(30), widenings=1)
    assert rounds[1][:8] == rounds[0]
    assert len(rounds[1]) == 10
    assert all(16 <= x <= 32 for (x,) in rounds[1][8:])
    assert search.grids["a"].axes["x"].high == 32


def test_halving_keeps_full_results_when_the_grid_is_extended():
    """A point that ran to the end stays, also if points of the new part begin better."""

    def score(point, share):
        return point["x"] / 100 if share < 1 else 1 / point["x"]

    search, rounds = run_search(make_grid("a", {"x": [4, 5, 6, 7]}), score, rungs=HALVING, widenings=1)
    assert len(rounds) == 2
    assert [(row.point["x"], row.share) for row in search.ranked()[:2]] == [(7, 1), (8, 1)]


def test_spread_is_the_sample_deviation_over_seeds():
    point = Point("a", 1, {"x": 1}, Path(), {})
    results = [
        (replace(point, seed=seed), replace(summarise([]), accuracy=value)) for seed, value in ((1, 0.5), (2, 0.7))
    ]
    (row,) = rank_points(results)
    assert (row.score, row.seeds) == (pytest.approx(0.6), 2)
    assert row.spread == pytest.approx(0.02**0.5)
    assert row.score_text(Metric("accuracy")) == "60.00% ± 14.14"
    assert row.score_text(Metric("rmse")) == "0.6000 ± 0.1414"
    (alone,) = rank_points(results[:1])
    assert (alone.spread, alone.seeds, alone.score_text(Metric("accuracy"))) == (None, 1, "50.00%")


def test_marks_name_edges_and_bounds():
    edge, bound = Edge("local.lr", "upper", 0.3, 0.9), Edge("tau_c", "lower", 1, None, "no")
    row = Ranked("a", "", {}, 0.5, 0, 1.0, True)
    assert row.mark() == "best"
    assert replace(row, edges=(edge,)).mark() == "best, at the edge of local.lr"
    assert replace(row, edges=(bound,)).mark() == "best, at the bound of tau_c"
    both = replace(row, edges=(edge, replace(edge, key="eta"), bound))
    assert both.mark() == "best, at the edge of local.lr and eta and the bound of tau_c"
    assert replace(both, best=False).mark() == ""


@pytest.mark.parametrize("share", [1 / 8, 1.0])
def test_last_evaluation_is_that_of_the_records(tmp_path, share):
    todo = sweep_points(make_sweep(eval_every=3, metric="loss"), ["fedbuff"], [1], tmp_path, 0.2)[1:3]
    ranked = rank_points(list(search_points([replace(p, share=share) for p in todo], 1, (share,))), "last")
    by_name = {row.name: row.score for row in ranked}
    assert ranked[0].score == min(by_name.values()), "the loss: lower is better"
    for point in todo:
        records = [r for r in written_records(point.folder) if r.step and r.metrics and r.updates <= 80 * share]
        assert by_name[point.name] == records[-1].metrics["loss"]
        mean = rank_points(list(search_points([point], 1, (share,))), "mean")[0].score
        assert mean == pytest.approx(sum(r.metrics["loss"] for r in records[-5:]) / len(records[-5:]))
