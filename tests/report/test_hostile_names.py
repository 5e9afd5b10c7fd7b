"""Names that are formulas, markup or control characters are drawn and written as text."""

import dataclasses
import warnings
from xml.etree import ElementTree

import pytest

from fadas.report.comparison import compare
from fadas.report.figures import figures, save_figures
from fadas.report.html import page, write_report
from fadas.report.table import table_cells
from fadas.report.text import html_text, show_line
from helpers.folders import FAST_RUN, SLOW_RUN, draw_axes, make_run
from helpers.fuzz import HOSTILE, find_raw

POINTS = [(10, 5, 0.5), (20, 10, 0.7)]


def make_hostile(name, **fields):
    """A run of this name, of which every figure is drawn, and whose updates are refused for a reason of that name."""
    run = make_run(name, POINTS, etas=(0.1, 0.01), **{"task": {"name": name, "clients": 3}, **fields})
    records = [dataclasses.replace(record, refused={name: 3}) for record in run.records]
    return dataclasses.replace(run, records=records, summary=dataclasses.replace(run.summary, experiment=name))


@pytest.fixture(autouse=True)
def refuse_warnings():
    """Matplotlib's warnings would be printed."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_name_is_drawn_and_written_as_text(name):
    html = page([make_hostile(name), SLOW_RUN])
    shown = html_text(name)
    assert f"<h1>{shown}, &lt;b&gt;" in html
    assert f"</svg><span>{shown}</span></span></th>" in html
    assert find_raw(html) == set()
    line = html_text(show_line(name))
    assert f"One seed. Reached 60% in virtual time: {line} at " in html
    assert f"Task: {line}. " in html or not name
    drawn = {figure.split('"')[0]: figure.split("</figure>")[0] for figure in html.split('<figure id="')[1:]}
    for kind in ("time", "updates", "delays", "eta", "lost", "timeline"):
        svg = ElementTree.fromstring("<svg" + drawn[kind].split("<svg")[1].split("</svg>")[0] + "</svg>")
        words = ["".join(part.itertext()) for part in svg.iter("{http://www.w3.org/2000/svg}text")]
        assert any(show_line(name)[:100].strip() in word for word in words), kind


def test_hostile_names_are_drawn_as_png(tmp_path):
    runs = [make_hostile(name) for name in (r"$\frac{$", "\ud800\x1b日本語")]
    save_figures(runs, tmp_path)
    assert {path.stem for path in tmp_path.glob("*.png")} >= {"time", "updates", "delays", "eta", "lost", "timeline"}
    assert find_raw("".join(path.read_text(encoding="utf-8") for path in tmp_path.glob("*.svg"))) == set()


def test_tick_labels_of_a_log_axis_are_plain_numbers():
    (axes,) = draw_axes(FAST_RUN)["eta"]
    axes.figure.draw_without_rendering()
    shown = {label.get_text() for label in axes.get_yticklabels()}
    assert {"0.01", "0.02", "0.05", "0.1"} <= shown


def test_users_tex_setting_does_not_run_tex_on_names():
    import matplotlib

    with matplotlib.rc_context({"text.usetex": True}):
        assert r"\input{x}" in page([make_hostile(r"\input{x}")])


def test_settings_are_escaped():
    html = page([make_run("a", POINTS, run={"note": "x\u202ey"}, local={"lr": 0.1, "<b>": "</td>"})])
    assert "<i>note</i> x\\u202ey<" in html
    assert "<i>&lt;b&gt;</i> &lt;/td&gt;<" in html


def test_groups_that_get_the_same_name_are_both_shown():
    other = dataclasses.replace(make_run("a", POINTS, seed=1, local={"lr": 9}), folder=FAST_RUN.folder / "other")
    runs = [make_run("a", POINTS), other, make_run("a (a-0)", [(10, 5, 0.1), (20, 10, 0.2)])]
    assert [row.algorithm for row in compare(runs).rows] == ["a (a-0)", "a (other)", "a (a-0) [2]"]


def test_accuracies_that_are_no_number_are_not_averaged():
    gap = [(10, 5, 0.5), (20, 10, float("nan"))]
    rows = table_cells(compare([make_run("a", gap), make_run("a", gap, seed=1)]))
    assert rows[0][1:4] == ["50.0% ± 0.0"] * 3
    never = make_run("a", [(10, 5, float("nan"))])
    assert table_cells(compare([never]))[0][1:4] == ["-", "-", "-"]
    assert "time" not in draw_axes(never)


def test_figures_draw_so_many_methods_and_say_how_many_more(monkeypatch):
    monkeypatch.setattr("fadas.report.figures._MOST_METHODS", 3)
    runs = [make_run(f"m{k}", POINTS, taus=(0, k + 1), etas=(0.1, 0.2)) for k in range(5)]
    drawn = {figure.name: figure for figure in figures(runs)}
    assert [len(drawn[name].figure.axes) for name in ("delays", "eta")] == [3, 3]
    assert drawn["time"].caption.endswith(" 2 more methods are not drawn.")
    assert not next(figures(runs[:3])).caption.endswith("not drawn.")


def test_lost_work_for_thousands_of_reasons_is_drawn_in_part():
    run = make_run("a", POINTS)
    records = [dataclasses.replace(record, refused={f"error {k}": 1 for k in range(5000)}) for record in run.records]
    (axes,) = draw_axes(dataclasses.replace(run, records=records))["lost"]
    assert len(axes.lines) == 300


def test_millions_of_clients_in_the_settings_take_no_memory():
    run = make_run("a", POINTS, task={"clients": 2**50})
    (axes, _) = draw_axes(run)["timeline"]
    assert axes.get_ylim() == (-0.5, 2**50 - 0.5)


def test_timeline_has_clients_that_never_reported_on_top():
    sync = make_run("b", POINTS, taus=(0, 0, 0, 0), task={"clients": 4})
    run = make_run("a", POINTS, taus=(0, 3), task={"clients": 4})
    (first, second, *_) = draw_axes(run, sync)["timeline"]
    assert [label.get_text() for label in first.get_yticklabels()] == ["0", "1", "2", "3"]
    heights = [path.vertices[0][1] for path in second.collections[0].get_paths()]
    assert heights[:4] == [row - 0.4 for row in range(4)]


def test_report_replaces_a_link_and_leaves_its_target_alone(tmp_path):
    precious = tmp_path / "precious"
    precious.write_text("mine")
    (tmp_path / "report.html").symlink_to(precious)
    write_report([FAST_RUN], tmp_path / "report.html")
    assert precious.read_text() == "mine"
    assert "<svg" in (tmp_path / "report.html").read_text(encoding="utf-8")
