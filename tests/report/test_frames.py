"""Finished runs as pandas frames."""

import math

import pytest

import fadas
from fadas.core.records import initial_record
from fadas.errors import ConfigError
from helpers.folders import make_record, write_run


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


def test_folder_without_runs_is_an_error(tmp_path):
    with pytest.raises(ConfigError, match="no finished runs"):
        fadas.load_runs(tmp_path)
