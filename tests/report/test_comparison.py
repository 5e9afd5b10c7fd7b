"""The table that compares runs."""

import dataclasses
from pathlib import Path

import pytest

from fadas.core.metrics import Metric
from fadas.errors import ConfigError
from fadas.report.comparison import compare, join_folders
from fadas.report.figures import figures
from fadas.report.html import page
from fadas.report.table import table_cells, table_header, table_notes
from helpers.folders import FAST_RUN, SLOW_RUN, draw_axes, make_measured_run, make_run

POINTS = [(10, 5, 0.5), (20, 10, 0.7)]


def columns(table, name):
    """The cells of a column, by a word of its heading."""
    (place,) = (k for k, title in enumerate(table_header(table)) if name in title)
    return [cells[place] for cells in table_cells(table)]


def test_comparison_at_equal_time_and_updates():
    table = compare([FAST_RUN, SLOW_RUN])
    assert (table.time, table.updates, table.target) == (30, 10, 0.6)
    fast, slow = table.rows
    assert (fast.at_time, fast.at_updates, fast.time_to_target) == (0.8, 0.7, 20)
    assert (slow.at_time, slow.at_updates, slow.time_to_target) == (None, 0.65, 200)
    assert (fast.tau_max, slow.tau_max) == (3, 0)
    assert table_cells(table)[0][:5] == ["fast", "66.7%", "80.0%", "70.0%", "20.0"]
    assert table_cells(table)[1][:5] == ["slow", "47.5%", "-", "65.0%", "200.0"]
    assert table_header(table)[:5] == [
        "algorithm",
        "final\naccuracy",
        "accuracy\nat time 30",
        "accuracy at\n10 updates",
        "time to\n60%",
    ]


def test_final_value_is_mean_over_last_evaluations_as_in_summary():
    run = make_run("a", [(10 * k, k, k / 10) for k in range(1, 9)])
    table = compare([run])
    assert table.rows[0].final == run.summary.score == pytest.approx(0.6)
    assert table.evaluations == (5, 5)
    assert table_notes(table) == ["final accuracy: mean of the last 5 evaluations"]
    assert "mean of the last 2 to 3 evaluations" in table_notes(compare([FAST_RUN, SLOW_RUN]))[0]


def test_initial_model_is_in_columns_and_not_in_final_value():
    """A synchronous method has not been evaluated since then when the others end."""
    initial = dataclasses.replace(SLOW_RUN.records[0], step=0, time=0.0, updates=0, jobs=(), metrics={"accuracy": 0.1})
    row = compare([FAST_RUN, dataclasses.replace(SLOW_RUN, initial=initial)]).rows[1]
    assert (row.at_time, row.final) == (0.1, pytest.approx(0.475))


def test_report_shows_diverged_instead_of_numbers():
    lost = [(5, 2, 0.99), (6, 4, 0.99)]
    wild, half = make_run("wild", lost, diverged="not finite"), make_run("fast", lost, seed=1, diverged="not <finite>")
    table = compare([FAST_RUN, half, SLOW_RUN, wild])
    assert (table.time, table.updates, table.target) == (30, 10, 0.6), "diverged runs do not shorten the comparison"
    text = table_cells(table)
    assert text[0] == ["fast, seeds: 2", "diverged, 1 of 2 seeds", *["-"] * 6]
    assert text[1][3] == "65.0%"
    assert text[2][:4] == ["wild, seeds: 1", "diverged", "-", "-"]
    html = page([FAST_RUN, half, SLOW_RUN, wild])
    assert "fast-1 diverged after step 2: not &lt;finite&gt;" in html
    assert "Diverged runs are not compared." in html
    assert "99.0%" not in html
    assert list(draw_axes(FAST_RUN, wild)) == list(draw_axes(FAST_RUN))
    nothing = make_run("wild", [], diverged="at once")
    assert "wild-0 diverged after step 0: at once" in page([nothing])
    assert table_cells(compare([nothing]))[0][1] == "diverged"
    assert not list(figures([nothing]))


def test_other_settings_are_not_averaged_as_seeds():
    other = make_run("fast", [(10, 5, 0.1), (20, 10, 0.1), (30, 15, 0.1)], seed=1, local={"lr": 9})
    assert [row.algorithm for row in compare([FAST_RUN, other, SLOW_RUN]).rows] == [
        "fast (fast-0)",
        "fast (fast-1)",
        "slow",
    ]


def test_sweep_runs_are_named_by_points_and_marked_validation():
    task = {"clients": 3, "validation": 0.2}
    runs = [
        dataclasses.replace(
            make_run("a", POINTS, seed, target=lr, task=task, local={"lr": lr}), folder=Path(f"lr={lr}-{seed}")
        )
        for lr in (0.1, 0.2)
        for seed in (1, 2)
    ]
    assert [row.algorithm for row in compare(runs).rows] == ["a (lr=0.1)", "a (lr=0.2)"]
    alike = [
        dataclasses.replace(one, folder=Path(f"a-{k}"), summary=dataclasses.replace(one.summary, seed=k))
        for k, one in enumerate(runs)
    ]
    rows = compare(alike).rows
    assert [row.algorithm for row in rows] == ["a (a-0)", "a (a-2)"], "every folder that differs in the seed is shown"
    (axes,) = draw_axes(*runs)["time"]
    assert axes.get_ylabel() == "validation accuracy"
    assert [text.get_text() for text in axes.texts] == ["a (lr=0.1)", "a (lr=0.2)"], "the runs have no common target"
    assert "time to" not in "".join(table_header(compare(runs)))
    (axes,) = draw_axes(FAST_RUN)["time"]
    assert axes.get_ylabel() == "test accuracy"
    assert [text.get_text() for text in axes.texts] == ["target 60%", "fast"]


def make_rmse_run(label, values, seed=0, target=0.4, **further):
    points = [(10 * k + 10, 5 * k + 5, value) for k, value in enumerate(values)]
    return make_measured_run(label, points, Metric("rmse"), seed, target, **further)


def test_metric_where_lower_is_better_ranks_and_reaches_downwards():
    good = [make_rmse_run("good", [0.9, 0.5, 0.3 + seed / 100], seed) for seed in range(3)]
    poor = [make_rmse_run("poor", [0.9, 0.8, 0.7 + seed / 50], seed) for seed in range(3)]
    table = compare([*poor, *good])
    assert table.metric == Metric("rmse")
    assert table.ranking.winner == "good"
    assert [row.reached for row in table.rows] == [0, 3]
    assert table_header(table)[1:5] == ["final\nrmse", "rmse\nat time 30", "rmse at\n15 updates", "time to\nrmse 0.4"]
    assert columns(table, "time to") == ["0 of 3 seeds", "30.0"]
    assert columns(table, "final") == ["0.8067 ± 0.0067", "0.5700 ± 0.0033"]
    html = page([*poor, *good])
    assert "Lower rmse is better." in html
    assert "%" not in "".join(map("".join, table_cells(table)))
    (axes,) = draw_axes(*poor, *good)["time"]
    assert axes.get_ylabel() == "test rmse"
    assert axes.texts[0].get_text() == "target 0.4"


def test_further_metrics_are_columns_and_figures_on_demand():
    runs = [make_rmse_run(name, [0.9, 0.5, 0.3], r2=value) for name, value in (("a", 0.25), ("b", 0.75))]
    table = compare(runs, columns=["r2", "train_loss"])
    assert columns(table, "final\nr2") == ["0.2500", "0.7500"]
    assert columns(table, "train_loss") == ["1.000", "1.000"]
    drawn = {one.name: one for one in figures(runs)}
    assert drawn["time"].title == "RMSE against time"
    assert list(drawn)[:4] == ["time", "updates", "metric-r2", "train-loss"]
    names = [one.name for one in figures([make_rmse_run("a", [0.9], **{"top 5": 0.1, "top_5": 0.2, "r2": 0.3})])]
    assert names[2:5] == ["metric-top-5", "metric-top-5-1", "metric-r2"], "numbered only where names would be equal"
    assert drawn["metric-r2"].figure.axes[0].get_ylabel() == "test r2"
    table = compare(runs, metric="r2")
    assert (table.metric.better, table.target, table.rows[1].final) == ("higher", None, 0.75)
    with pytest.raises(ConfigError, match=r'do not measure "mae"; choose one of: rmse, r2, train_loss, interval$'):
        compare(runs, columns=["mae"])
    with pytest.raises(ConfigError, match=r'do not measure "train_loss"; choose one of: rmse, r2$'):
        compare(runs, metric="train_loss")


def test_mixed_metrics_are_one_line():
    runs = [make_rmse_run("a", [0.9, 0.5], accuracy=0.5), make_run("b", POINTS)]
    with pytest.raises(ConfigError, match=r"different metrics: rmse \(a-0\), accuracy \(b-0\); --metric accuracy "):
        compare(runs)
    assert compare(runs, metric="accuracy").rows[0].final == 0.5
    with pytest.raises(ConfigError, match=r"compare them one by one$"):
        compare([make_rmse_run("a", [0.9, 0.5]), make_run("b", POINTS)])
    assert compare([make_rmse_run("a", [0.9, 0.5]), make_run("b", [], diverged="at once")]).metric.name == "rmse"


def test_label_of_two_folders_gets_names_of_folders():
    runs = join_folders({Path("runs/one"): [FAST_RUN, SLOW_RUN], Path("runs/two"): [FAST_RUN]})
    assert [run.label for run in runs] == ["fast (one)", "slow", "fast (two)"]
    assert [row.algorithm for row in compare(runs).rows] == ["fast (one)", "slow", "fast (two)"]
    deep = join_folders({Path("a/runs"): [FAST_RUN], Path("b/runs"): [FAST_RUN]})
    assert [run.label for run in deep] == ["fast (a/runs)", "fast (b/runs)"]


def test_runs_without_measurements_say_so():
    comparison = compare([make_run("a", [(1, 2, None), (2, 4, None)], target=None)])
    assert table_notes(comparison) == ["nothing was measured: the task has no test data, or no value is a number"]
