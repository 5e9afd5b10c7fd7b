"""The table that compares runs."""

import dataclasses
from pathlib import Path

import pytest

from fadas.report.comparison import compare, table_cells, table_header
from fadas.report.figures import figures
from fadas.report.html import page
from helpers.folders import FAST_RUN, SLOW_RUN, draw_axes, make_run


def test_comparison_at_equal_time_and_updates():
    table = compare([FAST_RUN, SLOW_RUN])
    assert (table.time, table.updates, table.target) == (30, 10, 0.6)
    fast, slow = table.rows
    assert (fast.at_time, fast.at_updates, fast.time_to_target) == (0.8, 0.7, 20)
    assert (slow.at_time, slow.at_updates, slow.time_to_target) == (None, 0.65, 200)
    assert (fast.tau_max, slow.tau_max) == (3, 0)
    text = table_cells(table)
    assert text[0][:4] == ["fast", "80.0%", "70.0%", "20.0"]
    assert text[1][:4] == ["slow", "-", "65.0%", "200.0"]
    assert "60%" in " ".join(table_header(table))


def test_seeds_are_averaged():
    other = make_run("fast", [(10, 5, 0.5), (20, 10, 0.5), (30, 15, 0.6)], seed=1)
    table = compare([FAST_RUN, other, SLOW_RUN])
    row = table.rows[0]
    assert row.seeds == 2
    assert row.at_updates == pytest.approx(0.6)
    assert row.at_updates_std == pytest.approx(0.1)
    assert row.time_to_target == pytest.approx(25)
    assert table_cells(table)[0][2] == "60.0% ± 10.0"
    assert "The number after ± is the population standard deviation over the seeds." in page([FAST_RUN, other])
    assert "±" not in page([FAST_RUN])
    never = make_run("slow", [(1, 1, 0.1), (300, 15, 0.2)], seed=1)
    assert compare([SLOW_RUN, never]).rows[0].time_to_target is None
    assert table_cells(compare([SLOW_RUN, never]))[0][3] == "1 of 2"
    assert table_cells(compare([never]))[0][3] == "never"


def test_report_shows_diverged_instead_of_numbers():
    lost = [(5, 2, 0.99), (6, 4, 0.99)]
    wild, half = make_run("wild", lost, diverged="not finite"), make_run("fast", lost, seed=1, diverged="not <finite>")
    table = compare([FAST_RUN, half, SLOW_RUN, wild])
    assert (table.time, table.updates, table.target) == (30, 10, 0.6), "diverged runs do not shorten the comparison"
    text = table_cells(table)
    assert text[0] == ["fast, seeds: 2", "diverged, 1 of 2", "diverged, 1 of 2", "-", "-", "-", "-"]
    assert text[1][2] == "65.0%"
    assert text[2][:4] == ["wild, seeds: 1", "diverged", "diverged", "-"]
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
    points = [(10, 5, 0.5), (20, 10, 0.7)]
    task = {"clients": 3, "validation": 0.2}
    runs = [
        dataclasses.replace(
            make_run("a", points, seed, target=lr, task=task, local={"lr": lr}), folder=Path(f"lr={lr}-{seed}")
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
    assert "<td class=best>-" not in page(runs)
    (axes,) = draw_axes(FAST_RUN)["time"]
    assert axes.get_ylabel() == "test accuracy"
    assert [text.get_text() for text in axes.texts] == ["target 60%", "fast"]
