import dataclasses
import re
from pathlib import Path

import numpy as np
import pytest

from fadas.report.comparison import compare, table_cells, table_header
from fadas.report.figures import figures, on_common_axis
from fadas.report.html import page
from helpers.folders import FAST_RUN, SLOW_RUN, draw_axes, make_run


def test_comparison():
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
    assert "± is the standard deviation over the seeds, that of the population" in page([FAST_RUN, other])
    assert "±" not in page([FAST_RUN])
    never = make_run("slow", [(1, 1, 0.1), (300, 15, 0.2)], seed=1)
    assert compare([SLOW_RUN, never]).rows[0].time_to_target is None
    assert table_cells(compare([SLOW_RUN, never]))[0][3] == "1 of 2"
    assert table_cells(compare([never]))[0][3] == "never"


def test_runs_that_diverged_are_named_and_never_numbers():
    lost = [(5, 2, 0.99), (6, 4, 0.99)]
    wild, half = make_run("wild", lost, diverged="not finite"), make_run("fast", lost, seed=1, diverged="not <finite>")
    table = compare([FAST_RUN, half, SLOW_RUN, wild])
    assert (table.time, table.updates, table.target) == (30, 10, 0.6), "they do not cut the others short"
    text = table_cells(table)
    assert text[0] == ["fast, seeds: 2", "diverged, 1 of 2", "diverged, 1 of 2", "-", "-", "-", "-"]
    assert text[1][2] == "65.0%"
    assert text[2][:4] == ["wild, seeds: 1", "diverged", "diverged", "-"]
    html = page([FAST_RUN, half, SLOW_RUN, wild])
    assert "fast-1 diverged after step 2: not &lt;finite&gt;" in html
    assert "99.0%" not in html
    assert list(draw_axes(FAST_RUN, wild)) == list(draw_axes(FAST_RUN))
    nothing = make_run("wild", [], diverged="at once")
    assert "wild-0 diverged after step 0: at once" in page([nothing])
    assert table_cells(compare([nothing]))[0][1] == "diverged"
    assert not list(figures([nothing]))


def test_page_is_self_contained_and_has_every_figure():
    html = page([FAST_RUN, SLOW_RUN])
    for name in ("time", "updates", "delays", "eta", "timeline"):
        assert re.search(rf'<figure id="{name}"><svg.*?</svg>', html, re.S), name
    assert not re.search(r'(?:src|href)="(?!#|data:)[^"]', html.replace('href="http://www.w3.org', "")), "outside links"
    assert "<script" not in html
    assert "&lt;b&gt;x&lt;/b&gt;" in html, "names are escaped"
    ids = re.findall(r'\bid="([^"]+)"', html)
    assert len(ids) == len(set(ids)), "two elements of the page share an id"
    assert html == page([FAST_RUN, SLOW_RUN]), "the same runs give the same page"


def test_figures_that_cannot_be_filled_are_left_out():
    html = page([SLOW_RUN])
    assert '<figure id="timeline">' in html
    assert '<figure id="eta">' not in html
    assert '<figure id="delays">' not in html
    blind = page([make_run("blind", [(10, 5, None), (20, 10, None)], target=None)])
    assert '<figure id="time">' not in blind
    assert "<td>-</td>" in blind


def test_runs_with_other_settings_are_not_taken_for_seeds():
    other = make_run("fast", [(10, 5, 0.1), (20, 10, 0.1), (30, 15, 0.1)], seed=1, local={"lr": 9})
    assert [row.algorithm for row in compare([FAST_RUN, other, SLOW_RUN]).rows] == [
        "fast (fast-0)",
        "fast (fast-1)",
        "slow",
    ]


def test_curves_of_seeds_are_averaged_at_equal_time():
    early = np.array([(10, 0.1), (30, 0.9)])
    late = np.array([(20, 0.3), (200, 0.5)])
    x, values = on_common_axis([early, late])
    assert x.tolist() == [20, 30]
    assert values.tolist() == [[0.1, 0.9], [0.3, 0.3]]


def test_figures_show_the_data():
    axes = draw_axes(FAST_RUN, SLOW_RUN)
    time, updates, delays, eta, timeline = (axes[n][0] for n in ("time", "updates", "delays", "eta", "timeline"))
    assert time.lines[0].get_xydata().tolist() == [[10, 0.5], [20, 0.7], [30, 0.8]]
    assert updates.lines[1].get_xydata().tolist() == [[5, 0.3], [10, 0.65]]
    counted = [patch.get_height() for patch in delays.patches]
    assert (counted[0], counted[3], sum(counted)) == (3, 3, 6)
    assert eta.lines[0].get_xydata().tolist() == [[10, 0.1], [20, 0.01], [30, 0.1]]
    # three steps with delays 0 and 3: versions 0, -3, 1, -2, 2, -1
    assert timeline.collections[0].get_array().tolist() == [0, -3, 1, -2, 2, -1]


def test_label_figure():
    shown = dataclasses.replace(FAST_RUN, counts=[[3, 0], [1, 2], [0, 9]])
    (axes, _) = draw_axes(shown)["labels"]
    assert "3 clients; examples 3 to 9, median 3; labels 1 to 2, median 1" in axes.get_title()


def test_lost_work_is_drawn_by_reason_and_left_out_where_there_is_none():
    assert "lost" not in [drawn.name for drawn in figures([FAST_RUN, SLOW_RUN])]
    records = [{**r, "expired": k, "refused": {"not finite": 2 * k}} for k, r in enumerate(FAST_RUN.records)]
    (axes,) = next(d.figure.axes for d in figures([dataclasses.replace(FAST_RUN, records=records)]) if d.name == "lost")
    drawn = {line.get_label(): list(line.get_ydata()) for line in axes.lines}
    assert drawn == {"fast: expired": [0, 1, 2], "fast: not finite": [0, 2, 4]}


def test_a_deployment_has_seconds_on_its_axes():
    real = make_run("fast", [(10, 5, 0.5), (20, 10, 0.7)], task={"name": "flower"})
    shown = {drawn.name: drawn.figure.axes[0].get_xlabel() for drawn in figures([real])}
    assert (shown["time"], shown["timeline"]) == ("seconds", "seconds")
    assert "Compared at 20 seconds" in page([real])
    assert "Compared at virtual time 30" in page([FAST_RUN])


def test_runs_of_a_sweep_are_named_by_their_points_and_measured_on_held_out_data():
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
        dataclasses.replace(one, folder=Path(f"a-{k}"), summary={**one.summary, "seed": k})
        for k, one in enumerate(runs)
    ]
    rows = compare(alike).rows
    assert [row.algorithm for row in rows] == ["a (a-0)", "a (a-2)"], "of folders that differ in the seed, none is lost"
    (axes,) = draw_axes(*runs)["time"]
    assert axes.get_ylabel() == "validation accuracy"
    assert not axes.texts, "they have no target in common"
    assert "<td class=best>-" not in page(runs)
    (axes,) = draw_axes(FAST_RUN)["time"]
    assert axes.get_ylabel() == "test accuracy"
    assert [text.get_text() for text in axes.texts] == ["target 60%"]
