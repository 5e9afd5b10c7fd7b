"""Grids: lists, ranges, samples, edges and what lies beyond them."""

import math

import pytest

from fadas.errors import ConfigError
from fadas.experiments.sweeps.grids import Range, make_grid
from fadas.experiments.sweeps.ranking import find_edges

RATE = {"low": 1e-4, "high": 1e-1, "log": True}


def points_of(samples, seed=0, **values):
    return make_grid("sweep.a", values, samples, seed).points


def next_value(values, best):
    """The candidates beyond the best of some values."""
    return [beyond.candidates for beyond in make_grid("sweep.a", {"x": values}).edges_at({"x": best})]


@pytest.mark.parametrize(
    ("values", "best", "candidates"),
    [
        ([0.1, 0.3], 0.3, (0.9,)),
        ([0.01, 0.03, 0.1], 0.1, (0.3,)),
        ([0.3, 1.0], 1.0, (3.0,)),
        ([0.7, 1.0], 1.0, (1.4,)),
        ([0.25, 0.5], 0.25, (0.125,)),
        ([0.5, 0.25], 0.25, (0.125,)),
        ([0.003, 0.005, 0.007], 0.003, (0.0018,)),
        ([12, 16], 16, (21,)),
        ([1, 2, 4], 4, (8,)),
        ([5, 6], 6, (7,)),
        ([2, 4], 2, (1,)),
        ([1, 2], 1, (0.5, 0)),
        ([0, 1], 0, (-1,)),
        ([0.0, 0.01, 0.1], 0.1, (1.0,)),
        ([0.0, 0.01], 0.0, (-0.01,)),
        ([-4, -2], -2, (-1,)),
        ([1, 0.1], 0.1, (0.01,)),
    ],
)
def test_list_is_extended_by_its_own_ratio(values, best, candidates):
    (found,) = next_value(values, best)
    assert found == candidates
    assert [type(value) for value in found] == [type(value) for value in candidates]


@pytest.mark.parametrize("values", [["a", "b"], [True, False], [0.1], [1, "a"], [{"name": "x"}, {"name": "y"}]])
def test_axis_without_order_has_no_edges(values):
    assert next_value(values, values[-1]) == []


def test_inner_value_is_no_edge():
    assert next_value([3, 1, 2], 2) == []


def test_edge_without_valid_value_is_a_bound():
    grid = make_grid("sweep.a", {"tau_c": [1, 2, 4], "local.lr": [0.1, 0.2]})

    def why_invalid(point):
        return "tau_c must be at least 1" if point["tau_c"] < 1 else None

    bound, edge = find_edges(grid, {"tau_c": 1, "local.lr": 0.2}, why_invalid)
    assert (bound.key, bound.side, bound.value, bound.next) == ("tau_c", "lower", 1, None)
    assert bound.reason == "tau_c must be at least 1"
    assert (edge.key, edge.side, edge.value, edge.next, edge.reason) == ("local.lr", "upper", 0.2, 0.4, None)


def test_extension_adds_whole_slice():
    grid = make_grid("sweep.a", {"eta": [1, 2, 3], "local": {"lr": [0.1, 0.2]}})
    wider = grid.extended("local.lr", True, 0.4)
    assert wider.axes["local.lr"] == [0.1, 0.2, 0.4]
    assert [point for point in wider.points if point not in grid.points] == [
        {"eta": eta, "local.lr": 0.4} for eta in (1, 2, 3)
    ]
    assert grid.extended("eta", False, 0).axes["eta"] == [0, 1, 2, 3]


def test_samples_are_deterministic_and_more_samples_keep_them():
    ten = points_of(10, eta=RATE, beta1={"low": 0.0, "high": 0.99}, form=["scaled", "capped"])
    assert ten == points_of(10, eta=RATE, beta1={"low": 0.0, "high": 0.99}, form=["scaled", "capped"])
    assert ten == points_of(20, eta=RATE, beta1={"low": 0.0, "high": 0.99}, form=["scaled", "capped"])[:10]
    assert ten != points_of(10, 1, eta=RATE, beta1={"low": 0.0, "high": 0.99}, form=["scaled", "capped"])
    assert [point["eta"] for point in ten] == [point["eta"] for point in points_of(10, eta=RATE)], "other axes"
    assert all(1e-4 <= point["eta"] <= 1e-1 and 0 <= point["beta1"] <= 0.99 for point in ten)
    assert {point["form"] for point in ten} == {"scaled", "capped"}


def test_samples_spread_evenly_over_logarithms():
    logs = sorted(math.log10(point["eta"]) for point in points_of(900, eta=RATE))
    for decade in (-3, -2):
        assert abs(sum(log < decade for log in logs) - 300 * (decade + 4)) < 60


@pytest.mark.parametrize(("log", "least"), [(False, 60), (True, 20)])
def test_whole_range_gives_every_whole_number(log, least):
    drawn = [Range(1, 4, log).draw(number / 400) for number in range(400)]
    assert all(isinstance(value, int) for value in drawn)
    assert sorted(set(drawn)) == [1, 2, 3, 4]
    assert min(drawn.count(value) for value in (1, 2, 3, 4)) >= least


def test_samples_have_few_digits_and_no_duplicates():
    points = points_of(50, n={"low": 1, "high": 9}, m=[1, 2, 3, 4, 5, 6])
    assert len({tuple(point.values()) for point in points}) == 50
    assert len(points_of(100, n={"low": 1, "high": 9})) == 9, "there are no more"
    assert all(
        len(f"{point['eta']:.3e}") and point["eta"] == float(f"{point['eta']:.4g}") for point in points_of(9, eta=RATE)
    )


def test_small_grid_is_not_sampled():
    assert points_of(6, x=[1, 2], y=[1, 2, 3]) == points_of(None, x=[1, 2], y=[1, 2, 3])
    assert len(points_of(4, x=[1, 2], y=[1, 2, 3])) == 4


def test_range_is_extended_by_samples_at_the_same_density():
    grid = make_grid("sweep.a", {"eta": RATE, "x": [1, 2]}, 8)
    best = {"eta": 0.09, "x": 1}
    (beyond, _) = grid.edges_at(best)
    assert beyond.candidates == (0.5623,)
    wider = grid.extended("eta", True, 0.5623)
    assert wider.points[:8] == grid.points
    assert len(wider.points) == 10
    assert all(0.1 <= point["eta"] <= 0.5623 for point in wider.points[8:])
    assert grid.edges_at({"eta": 0.01, "x": 1})[0].key == "x", "far from both ends"
    assert grid.extended("x", True, 4).points[8:] == [
        {**point, "x": 4} for point in grid.extended("x", True, 4).points[8:]
    ]
    assert len(grid.extended("x", True, 4).points) == 12


@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize("upper", [False, True])
def test_whole_range_is_extended_by_whole_numbers(log, upper):
    end, part = Range(2, 3, log).beyond(upper)
    assert (end, part) == ((4, [4]) if upper else (1, [1]))
    end, part = Range(16, 256, log).beyond(upper)
    assert end == {(False, False): -44, (False, True): 316, (True, False): 8, (True, True): 512}[log, upper]
    assert part == (Range(257, end, log) if upper else Range(end, 15, log and end > 0))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"eta": {"lo": 1, "high": 2}}, "unknown key 'sweep.a.eta.lo'; did you mean 'sweep.a.eta.low'?"),
        ({"eta": {"low": 1}}, "sweep.a.eta.high is missing"),
        ({"local": {"lr": {"low": 2, "high": 1}}}, "sweep.a.local.lr.high must be a number above low"),
        ({"eta": {"low": 0.0, "high": 1.0, "log": True}}, "sweep.a.eta.low must be positive with log = true"),
        ({"eta": {"low": 0.0, "high": math.inf}}, "sweep.a.eta.high must be a number above low"),
        ({"eta": RATE}, "sweep.a.eta is a range: say with --samples N how many points to draw"),
        ({"eta": {"name": "x"}}, "sweep.a.eta.name must be a list of values or a range"),
    ],
)
def test_bad_range_is_refused(values, message):
    with pytest.raises(ConfigError) as error:
        make_grid("sweep.a", values)
    assert str(error.value).startswith(message)


def test_too_many_points_are_refused():
    with pytest.raises(ConfigError, match=r"sweep\.a: the number of points must be at most 10,000 .* got 20,000"):
        make_grid("sweep.a", {"eta": RATE}, 20_000)
