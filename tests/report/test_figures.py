"""Figures show the data of the runs."""

import dataclasses
from itertools import pairwise

import numpy as np

from fadas.report.figures import figures, on_common_axis
from fadas.report.html import page
from helpers.folders import FAST_RUN, SLOW_RUN, draw_axes, make_run


def test_curves_of_seeds_are_averaged_at_equal_time():
    early = np.array([(10, 0.1), (30, 0.9)])
    late = np.array([(20, 0.3), (200, 0.5)])
    x, values = on_common_axis([early, late])
    assert x.tolist() == [20, 30]
    assert values.tolist() == [[0.1, 0.9], [0.3, 0.3]]


def test_figures_show_data():
    axes = draw_axes(FAST_RUN, SLOW_RUN)
    time, updates, delays, eta, timeline = (axes[n][0] for n in ("time", "updates", "delays", "eta", "timeline"))
    assert time.lines[0].get_xydata().tolist() == [[10, 0.5], [20, 0.7], [30, 0.8]]
    assert updates.lines[1].get_xydata().tolist() == [[5, 0.3], [10, 0.65]]
    counted = [patch.get_height() for patch in delays.patches]
    assert (counted[0], counted[3], sum(counted)) == (3, 3, 6)
    assert eta.lines[0].get_xydata().tolist() == [[10, 0.1], [20, 0.01], [30, 0.1]]
    # three steps with delays 0 and 3: versions 0, -3, 1, -2, 2, -1
    assert timeline.collections[0].get_array().tolist() == [0, -3, 1, -2, 2, -1]


def test_label_figure_has_counts_in_title():
    shown = dataclasses.replace(FAST_RUN, counts=[[3, 0], [1, 2], [0, 9]])
    (axes, _) = draw_axes(shown)["labels"]
    assert "3 clients; examples 3 to 9, median 3; labels 1 to 2, median 1" in axes.get_title()


def test_lost_work_is_drawn_by_reason_or_omitted():
    assert "lost" not in [drawn.name for drawn in figures([FAST_RUN, SLOW_RUN])]
    records = [
        dataclasses.replace(record, expired=k, refused={"not finite": 2 * k})
        for k, record in enumerate(FAST_RUN.records)
    ]
    (axes,) = next(d.figure.axes for d in figures([dataclasses.replace(FAST_RUN, records=records)]) if d.name == "lost")
    drawn = {line.get_label(): list(line.get_ydata()) for line in axes.lines}
    assert drawn == {"fast: expired": [0, 1, 2], "fast: not finite": [0, 2, 4]}


def test_deployment_axes_are_in_seconds():
    real = make_run("fast", [(10, 5, 0.5), (20, 10, 0.7)], task={"name": "flower"})
    shown = {drawn.name: drawn.figure.axes[0].get_xlabel() for drawn in figures([real])}
    assert (shown["time"], shown["timeline"]) == ("seconds", "seconds")
    assert "Compared at 20 seconds" in page([real])
    assert "Compared at virtual time 30" in page([FAST_RUN])


def test_names_stand_at_ends_of_curves_without_overlap():
    runs = [make_run(name, [(10, 5, 0.5), (30, 10, 0.7 + k / 1000)]) for k, name in enumerate(["a", "bb", "ccc"])]
    (axes,) = draw_axes(*runs, make_run("early", [(10, 5, 0.5)]))["time"]
    names = {text.get_text(): text for text in axes.texts}
    assert names.keys() == {"target 60%", "a", "bb", "ccc", "early"}
    assert [names[name].xy for name in ("a", "early")] == [(30, 0.7), (10, 0.5)]
    assert [names[name].get_color() for name in ("a", "bb")] == [line.get_color() for line in axes.lines[:2]]
    axes.figure.canvas.draw()
    boxes = [names[name].get_window_extent() for name in ("a", "bb", "ccc")]
    assert all(low.y1 <= high.y0 + 1 for low, high in pairwise(boxes))
    assert axes.get_legend() is None


def test_many_curves_have_legend_beside_plot():
    (axes,) = draw_axes(*(make_run(f"m{k}", [(10, 5, 0.5), (30, 10, 0.7)]) for k in range(9)))["time"]
    axes.figure.canvas.draw()
    assert len(axes.get_legend().get_texts()) == 9
    assert axes.get_legend().get_window_extent().x0 > axes.get_window_extent().x1


def test_caption_says_task_seeds_and_when_target_is_reached():
    captions = {drawn.name: drawn.caption for drawn in figures([FAST_RUN, SLOW_RUN])}
    assert captions["time"].endswith("One seed. Reached 60% in virtual time: fast at 20, slow at 200.")
    runs = [
        make_run(name, [(10 * pace, 5, 0.5), (30 * pace, 10, 0.7)], seed=seed, task={"name": "digits"})
        for name, pace in (("late", 2), ("soon", 1))
        for seed in (1, 2)
    ]
    caption = next(figures(runs)).caption
    assert "Task: digits. Mean of 2 seeds; the band is ± one std." in caption
    assert caption.endswith("Reached 60% in virtual time: soon at 30, late at 60.")
