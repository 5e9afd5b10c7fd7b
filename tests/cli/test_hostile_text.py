"""What the terminal gets is text, whatever names and messages hold."""

import io
import json
import warnings
from functools import partial
from unittest import mock

import pytest
from rich.console import Console

from fadas.cli import terminal
from fadas.cli.app import _show_warning
from fadas.errors import FadasWarning
from fadas.report.text import show_line
from fadas.runs.follower import Follower
from helpers.cli import DEMO, call_fadas, run_fadas
from helpers.experiments import BASE, write_experiment
from helpers.folders import LIVE_TABLES, draw_runs, make_record, make_summary, open_writer, write_run
from helpers.fuzz import HOSTILE, find_raw

MARKUP = "[red]x[/red] [link=http://x.org]y[/link] :bug: [/] \x1b[31m\n"
SHOWN = r"[red]x[/red] [link=http://x.org]y[/link] :bug: [/] \u001b[31m\n"


def test_table_shows_markup_and_control_characters_as_text(capsys):
    terminal.print_table(["a", "b"], [[MARKUP, "1"]], MARKUP)
    out = capsys.readouterr().out
    assert out.count(SHOWN) == 2
    assert find_raw(out) == set()


def test_lines_show_markup_and_control_characters_as_text(capsys):
    terminal.print_line(MARKUP)
    with terminal.Display(0, "runs") as display:
        display.say(MARKUP)
        display.add(MARKUP, 3).finish(MARKUP, 3)
    out, err = capsys.readouterr()
    assert out == f"{SHOWN}\n"
    assert err == f"{SHOWN}\n{SHOWN}: {SHOWN}\n"


def test_bars_show_markup_and_control_characters_as_text():
    display = terminal.Display(0, "runs")
    display.add(MARKUP, 3).update(1, MARKUP)
    screen = Console(width=300, file=io.StringIO(), record=True)
    screen.print(display._progress.get_renderable())
    text = screen.export_text()
    assert text.count(SHOWN) == 2
    assert find_raw(text) == set()


def test_printed_json_has_no_control_characters(capsys):
    value = {name: name for name in HOSTILE} | {"x": "\x7f\x1b\x9b"}
    terminal.print_json(value)
    out = capsys.readouterr().out
    assert find_raw(out) == set()
    assert json.loads(out) == value


@pytest.mark.parametrize("name", HOSTILE)
def test_watch_shows_hostile_reasons_and_folders_as_text(tmp_path, name):
    writer = open_writer(tmp_path / "a-0", LIVE_TABLES)
    writer.append(make_record(1, 0.5, refused={name: 3}))
    text = draw_runs(Follower(tmp_path / "a-0", name))
    assert find_raw(text) == set()
    assert show_line(name)[:20] in text
    writer.close()


def test_watch_shows_most_frequent_of_many_reasons(tmp_path):
    writer = open_writer(tmp_path / "a-0", LIVE_TABLES)
    writer.append(make_record(1, 0.5, refused={f"error {k}": k for k in range(1000)}))
    text = " ".join(draw_runs(Follower(tmp_path / "a-0")).split())
    assert "error 999 999" in text
    assert "error 979 979" not in text
    assert "979 more reasons" in text
    writer.close()


def test_hostile_run_is_reported_and_watched(tmp_path):
    write_run(tmp_path / "a\n\x1b[31m[red]\udcff-0", [make_record(1, 0.5, refused={"\x1b[2J": 1})], LIVE_TABLES)
    write_run(tmp_path / "begun\x1b[31m-0", [make_record(1, 0.5)], LIVE_TABLES, finish=False)
    summary = next(tmp_path.glob("*/summary.json"))
    texts = {"algorithm": r"$\frac{$", "experiment": "\x1b]0;\x07\ud800"}
    summary.write_text(json.dumps({**make_summary([make_record(1, 0.5)]).as_dict(), **texts}))
    code, out, err = call_fadas("report", tmp_path, "--figures", tmp_path / "figures\x1b")
    assert (code, err) == (0, "")
    assert r"$\frac{$" in out
    assert r"\u001b]0;\u0007\ud800" in out
    assert r"not finished, not shown: begun\u001b[31m-0" in out
    assert find_raw(out) == set()
    assert len(list((tmp_path / "figures\x1b").glob("*.png"))) >= 4
    code, out, err = call_fadas("watch", tmp_path, "--once")
    assert (code, err) == (0, "")
    assert r"a\n\u001b[31m[red]\udcff-0" in out
    assert find_raw(out) == set()


@pytest.mark.parametrize("command", ["run", "plan", "sweep"])
@pytest.mark.parametrize("label", [r"\u001b[31mred", r"a\nb", r"\u202eexe", r"\u0000", "$", "../x", " "])
def test_hostile_labels_are_refused_and_shown_as_text(tmp_path, command, label):
    path = write_experiment(tmp_path, BASE + f'[algorithms."{label}"]\n')
    code, out, err = call_fadas(command, path)
    assert (code, out) == (2, "")
    assert err.startswith("fadas: algorithms.")
    assert "cannot name a folder" in err
    assert find_raw(err) == set()
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (["--only", "\x1b[31m"], r"\x1b[31m"),
        (["--set", "run.\x1b[31m=1"], r"\x1b[31m"),
        (["--set", "local.lr=\x1b[31m"], r"\x1b[31m"),
        (["--set", "\x1b[31m"], r"\x1b[31m"),
        (["--\x1b[31m"], "[31m"),
        (["--profile", "\u202e"], "has no profiles"),
        (["--executor", "\udcff"], r"\udcff"),
        (["--set", "delays={name='table', path='\x1b[31m\udcff'}"], r"\x1b[31m\udcff"),
        (["--set", f"run.steps={'[' * 50}'{'x' * 9000}'{']' * 50}"], " ... "),
    ],
)
def test_error_shows_what_was_typed_as_text(arguments, shown):
    code, out, err = call_fadas("run", DEMO, *arguments)
    assert (code, out) == (2, "")
    assert find_raw(err) == set()
    assert shown in err
    assert len(err) < 2100
    assert len(err.splitlines()) == 1


def test_error_names_a_hostile_path_as_text(tmp_path):
    code, _, err = call_fadas("report", tmp_path / "\x1b[31m\udcff")
    assert code == 2
    assert "/\\u001b[31m\\udcff does not exist" in err
    code, _, err = call_fadas("run", tmp_path / "\x1b[31m\ufeff.toml")
    assert "\\u001b[31m\\ufeff.toml: No such file" in err


def test_warnings_are_shown_as_text(monkeypatch, capsys):
    standard = mock.Mock()
    monkeypatch.setattr("fadas.cli.app._standard", standard)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = partial(_show_warning, set())
        warnings.warn("one\x1b[31m\ntwo", FadasWarning, stacklevel=1)
        warnings.warn("other\x1b[31m", UserWarning, stacklevel=1)
    assert capsys.readouterr().err == "fadas: warning: one\\u001b[31m two\n"
    assert standard.call_args[0][:2] == ("other\\u001b[31m", UserWarning)


def test_debug_traceback_is_shown_as_text(monkeypatch):
    monkeypatch.setenv("FADAS_DEBUG", "1")
    _, _, err = call_fadas("run", "\x1b[31m.toml")
    assert err.startswith("Traceback")
    assert find_raw(err) == set()


def test_output_that_the_terminal_cannot_encode_is_escaped(tmp_path):
    for seed in (0, 1):
        write_run(tmp_path / f"a-{seed}", [make_record(1, 0.5), make_record(2, 0.75)], LIVE_TABLES)
        summary = make_summary([make_record(1, 0.5), make_record(2, 0.75)], "é", seed)
        (tmp_path / f"a-{seed}" / "summary.json").write_text(json.dumps(summary.as_dict()))
    done = run_fadas("report", tmp_path, PYTHONIOENCODING="ascii")
    assert r"\xe9" in done.stdout
    assert r"75.0% \xb1 0.0" in done.stdout
    assert "75.0%" in run_fadas("watch", tmp_path, "--once", PYTHONIOENCODING="ascii").stdout


def test_report_shows_good_runs_beside_damaged_ones(tmp_path):
    for name in ("a-0", "b-0", "c-0"):
        write_run(tmp_path / name, [make_record(1, 0.25)], LIVE_TABLES)
    (tmp_path / "a-0" / "metrics.jsonl").write_text("\x1b[31m\n")
    (tmp_path / "c-0" / "summary.json").write_text('{"\x1b[31m')
    code, out, err = call_fadas("report", tmp_path, "--figures", tmp_path / "figures")
    assert code == 2
    assert "25.0%" in out
    assert (tmp_path / "report.html").exists()
    assert (tmp_path / "figures" / "time.png").exists()
    assert err.startswith(f"fadas: {tmp_path}/a-0 is damaged: metrics.jsonl: line 1: ")
    assert f"; {tmp_path}/c-0/summary.json is damaged: " in err
    assert len(err.splitlines()) == 1
    for name in ("a-0", "c-0"):
        (tmp_path / name / "config.toml").unlink()
    assert call_fadas("report", tmp_path)[0] == 0


def test_watch_says_what_is_damaged(tmp_path):
    for name in ("a-0", "b-0"):
        write_run(tmp_path / name, [make_record(1, 0.25)], LIVE_TABLES)
    path = tmp_path / "a-0" / "metrics.jsonl"
    path.write_text(path.read_text().replace('"updates": 2', '"updates": -2'))
    code, out, err = call_fadas("watch", tmp_path, "--once")
    assert (code, err) == (0, "")
    assert f"{tmp_path}/a-0 is damaged: metrics.jsonl: line 1: updates must be from 2" in out
    assert "finished" in out
