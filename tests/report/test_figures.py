"""Figures show the data of the runs."""

import dataclasses
from itertools import pairwise

import numpy as np
import pytest

from fadas.core.records import ClientsRecord
from fadas.errors import ConfigError
from fadas.report.figures import (
    curves,
    delays,
    figures,
    labels,
    lost_work,
    participation,
    save_figures,
    served,
    step_sizes,
    timeline,
)
from fadas.report.figures.curves import average
from fadas.report.frames import frame_of
from fadas.report.html import page
from fadas.report.looks import COLOURS, looks_of
from helpers.folders import FAST_RUN, SLOW_RUN, draw_axes, make_run


def test_curves_of_seeds_are_averaged_at_equal_time_to_their_ends():
    early = np.array([(10, 0.1), (30, 0.9)])
    late = np.array([(20, 0.3), (200, 0.5)])
    curve = average([early, late])
    assert curve.x.tolist() == [10, 20, 30, 200]
    assert curve.mean == pytest.approx([0.1, 0.2, 0.6, 0.5])
    assert curve.std == pytest.approx([0, 0.2 / 2**0.5, 0.6 / 2**0.5, 0])
    assert curve.count.tolist() == [1, 2, 2, 1]


def test_curve_goes_to_its_own_end_and_is_dotted_where_seeds_are_missing():
    runs = [make_run("a", [(10, 5, 0.5), (20, 10, 0.6)], 1), make_run("a", [(10, 5, 0.4), (40, 20, 0.9)], 2)]
    drawn = next(figures(runs))
    whole, tail, end, *_ = drawn.figure.axes[0].lines
    assert whole.get_xdata().tolist() == [10, 20]
    assert (tail.get_xdata().tolist(), tail.get_linestyle()) == ([20, 40], ":")
    assert end.get_xydata().tolist() == [[40, 0.9]]
    assert "Thin and dotted: not all seeds have got that far." in drawn.caption
    assert "Thin and dotted" not in next(figures(runs[:1])).caption


def test_curve_starts_with_the_initial_model():
    record = dataclasses.replace(FAST_RUN.records[0], step=0, time=0.0, updates=0, jobs=(), metrics={"accuracy": 0.1})
    run = dataclasses.replace(FAST_RUN, initial=record)
    axes = draw_axes(run, SLOW_RUN)
    assert axes["updates"][0].lines[0].get_xydata()[0].tolist() == [0, 0.1]
    assert axes["time"][0].get_xscale() == "log"
    assert axes["time"][0].lines[0].get_xydata()[0].tolist() == [10, 0.1], "at the left edge"
    assert axes["time"][0].get_xlim()[0] == 10
    assert "The initial model stands at the left edge" in next(figures([run, SLOW_RUN])).caption


def test_figures_show_data():
    axes = draw_axes(FAST_RUN, SLOW_RUN)
    time, updates, delays, eta, timeline = (axes[n][0] for n in ("time", "updates", "delays", "eta", "timeline"))
    assert time.lines[0].get_xydata().tolist() == [[10, 0.5], [20, 0.7], [30, 0.8]]
    assert updates.lines[2].get_xydata().tolist() == [[5, 0.3], [10, 0.65]]
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
    assert [names[name].get_color() for name in ("a", "bb")] == [line.get_color() for line in axes.lines[:3:2]]
    axes.figure.canvas.draw()
    boxes = [names[name].get_window_extent() for name in ("early", "a", "bb", "ccc")]
    assert all(low.y1 <= high.y0 + 1 for low, high in pairwise(boxes))
    early, *others = boxes
    assert all(box.x0 > axes.get_window_extent().x1 for box in others), "they end at the edge"
    assert early.x1 < axes.get_window_extent().x1
    points = np.concatenate([axes.transData.transform(line.get_xydata()) for line in axes.lines])
    assert not any(early.contains(*point) for point in points), "a name never covers data"
    assert axes.get_legend() is None


def test_many_curves_have_legend_beside_plot():
    (axes,) = draw_axes(*(make_run(f"m{k}", [(10, 5, 0.5), (30, 10, 0.7)]) for k in range(17)))["time"]
    axes.figure.canvas.draw()
    assert len(axes.get_legend().get_texts()) == 17
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
    assert "Task: digits. Mean of 2 seeds; the band is ± one sample standard deviation." in caption
    assert caption.endswith("Reached 60% in virtual time (median): soon at 30, late at 60.")
    never = make_run("soon", [(10, 5, 0.5), (30, 10, 0.55)], seed=3, task={"name": "digits"})
    half = make_run("late", [(20, 5, 0.5), (90, 10, 0.55)], seed=3, task={"name": "digits"})
    caption = next(figures([*runs[:1], half, *runs[2:], never])).caption
    assert caption.endswith("soon at 30 (in 2 of 3 seeds), late in 1 of 2 seeds.")


def test_colour_depends_on_the_name_alone():
    few, many = looks_of(["fadas", "mine"]), looks_of(["other", "mine", "fedbuff", "fadas"])
    assert few["fadas"] == many["fadas"] == (COLOURS["fadas"], 0)
    assert few["mine"] == many["mine"]
    assert len(set(COLOURS.values())) == len(COLOURS)
    axes = draw_axes(make_run("fadas", [(10, 5, 0.5), (30, 10, 0.7)], etas=(0.1, 0.2)))
    assert axes["time"][0].lines[0].get_color() == axes["eta"][0].lines[0].get_color() == COLOURS["fadas"]


def test_methods_of_one_colour_have_different_lines():
    looks = looks_of([f"fadas ({k})" for k in range(4)])
    assert len(set(looks.values())) == 4
    assert {look.colour for look in looks.values()} == {COLOURS["fadas"]}
    assert len(set(looks_of([f"fadas ({k})" for k in range(9)]).values())) == 9


def test_curves_of_frame_are_those_of_runs():
    pandas = pytest.importorskip("pandas")
    runs = [FAST_RUN, SLOW_RUN, make_run("fast", [(10, 5, 0.5), (40, 15, 0.9)], seed=1)]
    rows = [
        {"algorithm": run.label, "seed": run.summary.seed, "time": r.time, "updates": r.updates, "accuracy": value}
        for run in runs
        for r, value in run.values()
    ]
    frame = pandas.DataFrame(rows)
    for axis in ("time", "updates"):
        drawn = [curves(data, axis, "accuracy").axes[0] for data in (runs, frame)]
        lines = [[line.get_xydata().tolist() for line in axes.lines if len(line.get_xdata())] for axes in drawn]
        assert lines[0][: len(lines[1])] == lines[1]
    named = frame.rename(columns={"accuracy": "value"}).assign(experiment=["x", *["y"] * (len(frame) - 1)])
    names = [text.get_text() for text in curves(named).axes[0].texts]
    assert sorted(names) == ["fast (x)", "fast (y)", "slow (y)"]


def shown_in(figure) -> list:
    """What a figure shows: titles, ticks of rows, points, bars, boxes and cells."""
    found = []
    for axes in figure.axes:
        found += [axes.get_title(), axes.get_title("left"), *(text.get_text() for text in axes.get_yticklabels())]
        found += [np.round(line.get_xydata(), 9).tolist() for line in axes.lines]
        found += [patch.get_height() for patch in axes.patches]
        for drawn in axes.collections:
            values = drawn.get_array()
            found.append(drawn.get_offsets().tolist() if values is None else np.ma.filled(values, -1).ravel().tolist())
    return found


@pytest.mark.parametrize(
    ("draw", "table"),
    [
        (delays, "jobs"),
        (step_sizes, "steps"),
        (lost_work, "steps"),
        (timeline, "jobs"),
        (served, "clients"),
        (participation, "clients"),
        (labels, "labels"),
    ],
)
def test_figure_of_frame_is_that_of_runs(draw, table):
    def make(label, points, seed):
        made = make_run(label, points, seed=seed, etas=(0.1, 0.01), taus=(0, 3, 1))
        lossy = [
            dataclasses.replace(
                record,
                expired=record.step,
                jobs=tuple(dataclasses.replace(job, end=record.time) for job in record.jobs),
            )
            for record in made.records
        ]
        tiers, held = {"large": [2], "small": [0, 1]}, [[3, 0], [1, 2], [0, 9]]
        evaluated = [ClientsRecord(3, 15, 30.0, {"accuracy": [0.1 * seed, 0.7, 0.2]})]
        more = {"tiers": dict(reversed(tiers.items())), "counts": held, "clients_evaluations": evaluated}
        return dataclasses.replace(made, records=lossy, **more)

    fast = [(10, 5, 0.5), (20, 10, 0.7), (30, 15, 0.8)]
    runs = [make("fast", fast, 0), make("fast", fast, 1), make("slow", [(100, 5, 0.3), (200, 10, 0.65)], 0)]
    assert shown_in(draw(frame_of(runs, table))) == shown_in(draw(runs))


def test_frame_without_column_is_refused():
    with pytest.raises(ConfigError, match='the frame has no column "tau", only experiment, algorithm'):
        delays(frame_of([FAST_RUN], "steps"))


def test_empty_frame_has_no_figure():
    assert labels(frame_of([FAST_RUN], "labels")) is None
    assert delays(frame_of([], "jobs")) is None


def test_timeline_of_chosen_method():
    assert timeline([FAST_RUN, SLOW_RUN], ["slow"]).axes[0].get_title() == "slow"


def test_delays_are_those_of_all_seeds_with_ticks_in_the_middle_of_bars():
    runs = [make_run("a", [(10, 5, 0.5)], seed=seed, taus=(0, 2 + seed)) for seed in (0, 1)]
    (axes,) = draw_axes(*runs)["delays"]
    assert [bar.get_height() for bar in axes.patches] == [2, 0, 1, 1]
    assert [bar.get_x() + bar.get_width() / 2 for bar in axes.patches] == [0, 1, 2, 3]


def test_methods_with_equal_participation_share_rows():
    runs = [make_run(name, [(10, 5, 0.5), (20, 10, 0.7)]) for name in ("a", "b")]
    (axes,) = draw_axes(*runs)["participation"]
    assert [text.get_text() for text in axes.texts] == ["a, b"]


def test_band_of_shares_stays_between_0_and_1():
    runs = [make_run("a", [(10, 5, value), (20, 10, 0.5)], seed=seed) for seed, value in enumerate((0.0, 0.0, 0.9))]
    (band,) = curves(runs).axes[0].collections
    assert band.get_paths()[0].vertices[:, 1].min() == 0.0


def test_smoothed_curve_has_raw_line_behind():
    run = make_run("a", [(10 * k, k, k % 2) for k in range(1, 30)])
    smooth, _, raw = curves([run], smooth=10).axes[0].lines[:3]
    assert np.ptp(smooth.get_ydata()) < 0.2
    assert set(raw.get_ydata()) == {0, 1}
    assert raw.get_zorder() < smooth.get_zorder()


def test_figures_are_saved_in_three_formats(tmp_path):
    save_figures([FAST_RUN], tmp_path)
    names = {path.stem for path in tmp_path.iterdir()}
    assert {path.name for path in tmp_path.iterdir()} == {
        f"{n}.{kind}" for n in names for kind in ("pdf", "png", "svg")
    }
    assert (tmp_path / "time.pdf").read_bytes().startswith(b"%PDF")


def test_style_is_found_by_its_name():
    import matplotlib.style

    with matplotlib.style.context("fadas.report.fadas"):
        assert matplotlib.rcParams["axes.spines.top"] is False


def test_ticks_of_labels_are_in_the_middle_of_cells():
    (axes, _) = draw_axes(dataclasses.replace(FAST_RUN, counts=[[3, 0], [1, 2], [0, 9]]))["labels"]
    assert (axes.get_xlim(), axes.get_ylim()) == ((-0.5, 2.5), (-0.5, 1.5))
    axes.figure.canvas.draw()
    assert [tick for tick in axes.get_yticks() if -0.5 <= tick <= 1.5] == [0, 1]


def test_timeline_of_one_version_has_no_colour_bar():
    run = make_run("a", [(10, 5, 0.5)], taus=(0, 0))
    (axes,) = draw_axes(run)["timeline"]
    assert axes.get_title() == "a\nall jobs started from version 0"
