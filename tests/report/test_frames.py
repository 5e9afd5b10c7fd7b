"""Finished runs as pandas frames."""

import json
import math

import pytest

import fadas
from fadas.core.metrics import Metric
from fadas.core.records import initial_record
from fadas.errors import ConfigError
from fadas.report.frames import frame_of
from helpers.folders import TABLES, make_measured_run, make_record, write_run


def write_two(tmp_path):
    initial = initial_record({"accuracy": 0.1, "loss": 2.3})
    write_run(tmp_path / "a-0", [initial, make_record(1), make_record(2, 0.5), make_record(3, 0.7)])
    write_run(tmp_path / "b-0", [make_record(1, 0.25)])


def test_runs_have_one_row_each(tmp_path):
    write_two(tmp_path)
    frame = fadas.load_runs(tmp_path)
    assert list(frame["score"]) == pytest.approx([0.6, 0.25])
    assert list(frame["accuracy"]) == [0.7, 0.25]
    assert list(frame["step"]) == [3, 1]
    assert list(frame["metric"]) == ["accuracy", "accuracy"]
    assert list(frame["folder"]) == [str(tmp_path / "a-0"), str(tmp_path / "b-0")]


def test_folders_with_the_same_method_are_told_apart(tmp_path):
    for folder in ("one/a-0", "one/a-1", "two/a-0", "two/b-0"):
        write_run(tmp_path / folder, [make_record(1, 0.5)], label=folder[4])
    frame = fadas.load_steps([tmp_path / "one", tmp_path / "two"])
    assert frame["algorithm"].tolist() == ["a (one)", "a (one)", "a (two)", "b"]
    frame = fadas.load_steps((tmp_path / "one").iterdir())
    assert frame["algorithm"].tolist() == ["a", "a"], "of one experiment"


def test_steps_begin_with_the_initial_model(tmp_path):
    write_two(tmp_path)
    frame = fadas.load_steps([tmp_path / "a-0", str(tmp_path / "b-0")])
    assert list(frame["step"]) == [0, 1, 2, 3, 1]
    assert frame["accuracy"].isna().tolist() == [False, True, False, False, False]
    assert math.isnan(frame["tau_max"][0])
    assert frame["tau_max"].tolist()[1:] == [0, 1, 2, 0]
    assert frame["updates"].tolist() == [0, 2, 4, 6, 2]


def test_jobs_are_those_of_the_records(tmp_path):
    write_two(tmp_path)
    frame = fadas.load_jobs(tmp_path)
    assert len(frame) == 8
    assert list(frame.columns) == ["experiment", "algorithm", "seed", "step", "job", "client", "tau", "start", "end"]
    assert frame["tau"].sum() == 3


def test_metric_with_the_name_of_a_column_has_a_column_beside_it():
    run = make_measured_run("a", [(1, 2, 0.25), (2, 4, 0.75)], Metric("score", "higher"))
    row = frame_of([run]).iloc[0]
    assert (row["metric"], row["score"], row["metric_score"]) == ("score", 0.5, 0.75)


def test_clients_have_a_row_for_each_evaluation(tmp_path):
    tables = {**TABLES, "task": {"clients": 3}}
    write_run(tmp_path / "a-0", [make_record(1), make_record(2, 0.5), make_record(3, 0.7)], tables)
    write_run(tmp_path / "b-0", [make_record(1, 0.25)], tables)
    clients = [{"step": 1, "updates": 2, "time": 1.0, "metrics": {"accuracy": [0.5, None, 1.0]}}]
    clients += [{"step": 3, "updates": 6, "time": 3.0, "metrics": {"accuracy": [0.0, 0.25, 0.5]}}]
    (tmp_path / "a-0" / "clients.jsonl").write_text("".join(json.dumps(line) + "\n" for line in clients))
    frame = fadas.load_clients(tmp_path)
    assert list(frame["step"]) == [1, 1, 1, 3, 3, 3, 1, 1, 1]
    assert frame["accuracy"].tolist()[2:6] == [1.0, 0.0, 0.25, 0.5]
    assert frame["accuracy"].isna().tolist() == [False, True, *[False] * 4, *[True] * 3]
    assert frame["arrivals"].tolist() == [1, 1, 0, 3, 3, 0, 1, 1, 0]


def test_folder_without_runs_is_an_error(tmp_path):
    with pytest.raises(ConfigError, match="no finished runs"):
        fadas.load_runs(tmp_path)
