"""`fadas watch` and `fadas report`."""

import threading
from dataclasses import replace

import pytest

from fadas.cli.results import watch
from fadas.core.metrics import choose_metric
from fadas.errors import ConfigError
from fadas.runs.follower import Follower
from fadas.runs.serialization import to_json
from fadas.runs.summary import Summary, summarise
from helpers.cli import call_fadas, run_fadas
from helpers.folders import LIVE_TABLES, draw_runs, make_record, make_summary, open_writer, write_run

LINE = make_record(1, 0.25).as_dict()


def test_watch_finds_runs_of_reproduction(tmp_path, capsys):
    open_writer(tmp_path / "cifar10" / "fadas-1", LIVE_TABLES).append(make_record(1, 0.25))
    watch(tmp_path, once=True)
    assert "25.0%" in capsys.readouterr().out


def test_watch_ends_when_all_runs_are_finished(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("fadas.cli.terminal._QUIET", 2)
    writer = open_writer(tmp_path / "fadas-0", LIVE_TABLES)
    writer.append(make_record(1, 0.25))
    watching = threading.Thread(target=watch, args=(tmp_path, False))
    watching.start()
    watching.join(2)
    assert watching.is_alive()
    writer.append(make_record(2, 0.75))
    writer.finish(make_summary([make_record(1, 0.25), make_record(2, 0.75)]))
    watching.join(120)
    assert not watching.is_alive()
    out = capsys.readouterr().out
    assert "75.0%" in out
    assert "finished" in out


def test_watch_without_runs_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("fadas.cli.terminal._PATIENCE", 0.0)
    with pytest.raises(ConfigError, match="not a folder"):
        watch(tmp_path / "typo", once=False)
    with pytest.raises(ConfigError, match="no run in"):
        watch(tmp_path, once=True)


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("summary.json", ""),
        ("summary.json", '{"diverged": '),
        ("summary.json", "[]"),
        ("metrics.jsonl", '{"nonsense": 1}\n'),
        ("metrics.jsonl", to_json(LINE)[:40] + "\n"),
        ("metrics.jsonl", to_json({**LINE, "jobs": []}) + "\n"),
        ("metrics.jsonl", to_json({**LINE, "step": "one"}) + "\n"),
        ("config.toml", "name ="),
        ("config.toml", "run = 3"),
        ("config.toml", 'run = {steps = "many"}'),
    ],
)
def test_watch_shows_damaged_run_until_repaired(tmp_path, capsys, file, text):
    for name in ("a-0", "b-0", "c-0"):
        write_run(tmp_path / name, [make_record(1, 0.25)], LIVE_TABLES)
    path = tmp_path / "b-0" / file
    whole = path.read_bytes()
    path.write_text(text)
    watch(tmp_path, once=True)
    rows = {row.split()[0]: row for row in capsys.readouterr().out.splitlines() if "-0 " in row}
    assert "damaged" in rows["b-0"]
    assert all("finished" in rows[name] and "25.0%" in rows[name] for name in ("a-0", "c-0"))
    follower = Follower(tmp_path / "b-0")
    assert "damaged" in draw_runs(follower)
    path.write_bytes(whole)  # as after a copy that took a while
    assert "25.0%" in draw_runs(follower)
    assert (follower.outcome, follower.progress) == ("finished", 1.0)


def test_watch_ends_though_run_is_damaged(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("fadas.cli.terminal._QUIET", 1)
    write_run(tmp_path / "a-0", [make_record(1, 0.25)], LIVE_TABLES)
    (tmp_path / "a-0" / "summary.json").write_text("{")
    watch(tmp_path, once=False)
    assert "damaged" in capsys.readouterr().out


def write_measured(folder, label, values, metric="accuracy"):
    """A finished run that measured a metric at time 10, 20 and so on."""
    records = [
        replace(make_record(k + 1), metrics={metric: value, "loss": 1 - value}) for k, value in enumerate(values)
    ]
    tables = {"name": folder.parent.name, "run": {"seeds": [0]}, "algorithms": {label: {"preset": label}}}
    writer = open_writer(folder, tables)
    for record in records:
        writer.append(record)
    outcome = vars(summarise(records, metric=choose_metric([metric])))
    writer.finish(Summary(experiment=folder.parent.name, algorithm=label, seed=0, place=0, **outcome))


def test_report_compares_folders_and_names_labels_by_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, final in (("one", 0.5), ("two", 0.75)):
        write_measured(tmp_path / name / "fadas-0", "fadas", [0.25, final])
    shown = run_fadas("report", "one", "two").stdout
    assert "fadas (one) 37.5%" in " ".join(shown.split())
    assert "fadas (two) 50.0%" in " ".join(shown.split())
    assert "report: report.html" in shown
    assert "fadas (two)" in (tmp_path / "report.html").read_text(encoding="utf-8")
    assert not (tmp_path / "one" / "report.html").exists()
    run_fadas("report", "one", "two", "--out", "both.html")
    assert (tmp_path / "both.html").exists()
    assert "fadas (" not in run_fadas("report", "one", "one").stdout


def test_report_has_columns_and_metric_of_choice(tmp_path):
    write_measured(tmp_path / "x" / "fadas-0", "fadas", [0.25, 0.75])
    shown = run_fadas("report", tmp_path / "x", "--columns", "loss, train_loss").stdout
    assert "train_loss" in shown
    assert " fadas 50.0% 75.0% 75.0% 0.5000 1.000 " in " ".join(shown.split())
    assert (
        "final loss: mean of the last 2 evaluations" in run_fadas("report", tmp_path / "x", "--metric", "loss").stdout
    )


def test_report_of_unknown_column_or_mixed_metrics_is_one_line(tmp_path):
    write_measured(tmp_path / "x" / "fadas-0", "fadas", [0.25, 0.75])
    write_measured(tmp_path / "x" / "other-0", "other", [0.25, 0.75], metric="rmse")
    for arguments, text in (
        ([], "the runs are judged by different metrics: accuracy ("),
        (
            ["--metric", "loss", "--columns", "mae"],
            'the runs do not measure "mae"; choose one of: accuracy, loss, rmse',
        ),
    ):
        code, output, errors = call_fadas("report", tmp_path / "x", *arguments)
        assert (code, output) == (2, "")
        assert text in errors
        assert len(errors.splitlines()) == 1
