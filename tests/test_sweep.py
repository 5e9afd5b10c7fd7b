from pathlib import Path

import pytest

from fadas.build import ConfigError
from fadas.sweep import Point, grid, points, rank, with_point


def result(label, lr, seed, accuracy):
    return Point(label, seed, {"local.lr": lr}, Path(), {}), {"accuracy": accuracy}


def test_rank_by_the_mean_over_seeds():
    results = [
        result("a", 0.1, 1, 0.9),
        result("a", 0.2, 1, 0.7),
        result("a", 0.1, 2, 0.1),
        result("a", 0.2, 2, 0.7),
        result("b", 0.1, 1, None),
    ]
    ranked = rank(results)
    assert [(r.label, r.point["local.lr"], r.best) for r in ranked] == [
        ("a", 0.2, True),
        ("a", 0.1, False),
        ("b", 0.1, True),
    ]
    assert ranked[1].score == pytest.approx(0.5)
    assert ranked[2].score == 0.0, "a run that diverged scores nothing"


def test_grid():
    tables = {"algorithms": {"a": {}}, "sweep": {"a": {"eta": [1, 2], "local": {"lr": [3, 4, 5]}}}}
    assert len(grid(tables, "a")) == 6
    assert grid(tables, "a")[4] == {"eta": 2, "local.lr": 4}
    assert with_point(tables, "a", {"eta": 2, "local.lr": 4})["algorithms"]["a"] == {"eta": 2, "local": {"lr": 4}}
    assert tables["algorithms"]["a"] == {}
    assert grid(tables, "b") == []


@pytest.mark.parametrize(
    ("table", "message"), [({"eta": 3}, "must be a list"), ({"eta": []}, "must be a list"), (3, "must be a table")]
)
def test_bad_grids(table, message):
    with pytest.raises(ConfigError, match=message):
        grid({"sweep": {"a": table}}, "a")


def test_a_point_below_something_that_is_no_table():
    with pytest.raises(ConfigError, match="is not a table"):
        with_point({"algorithms": {"a": {"optimizer": "yogi"}}}, "a", {"optimizer.beta1": 0.5})
    with pytest.raises(ConfigError, match="between 0 and 1"):
        points({"algorithms": {"a": {}}}, ["a"], [0], Path(), 0.0)
