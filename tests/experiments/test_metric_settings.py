"""Runs that are judged by other metrics than the accuracy, from an experiment file."""

import json

import pytest

from fadas.core.metrics import Metric
from fadas.runs.formats import FORMAT
from fadas.runs.reader import read_run
from helpers.cli import run_fadas
from helpers.folders import read_initial

DIGITS = """
name = "x"
task = { name = "digits", clients = 8, metrics = ["accuracy", "macro_f1", "top3"] }
schedule = { concurrency = 4, buffer = 2 }
delays = { name = "uniform" }
[run]
steps = 8
eval_every = 2
[algorithms.fedbuff]
local.lr = 0.1
"""


@pytest.fixture
def experiment(tmp_path):
    path = tmp_path / "x.toml"
    path.write_text(DIGITS)
    return path


def run(experiment, *settings, code=0):
    options = [option for setting in settings for option in ("--set", setting)]
    return run_fadas("run", experiment, *options, "--out", experiment.parent / "out", code=code)


def test_run_goes_by_the_metric_that_is_set(experiment):
    done = run(experiment, 'run.metric="macro_f1"', "run.target=0.999")
    assert "macro_f1 " in done.stderr
    folder = experiment.parent / "out" / "fedbuff-0"
    summary, found = json.loads((folder / "summary.json").read_text()), read_run(folder)
    values = [value for record, value in found.values() if record.step]
    assert summary["metric"] == "macro_f1"
    assert summary["final"] == pytest.approx(sum(values[-5:]) / len(values[-5:]))
    assert summary["time_to_target"] is None
    assert found.metrics == ["macro_f1", "accuracy", "top3", "loss"]
    assert read_initial(folder)["metrics"].keys() == {"accuracy", "macro_f1", "top3", "loss"}


def test_direction_against_the_usual_one_is_warned_of(experiment):
    done = run(experiment, 'run.metric="loss"', 'run.better="higher"')
    assert 'warning: run.better = "higher", but usually loss is better if it is lower' in done.stderr


def test_lower_loss_is_better(experiment):
    run(experiment, 'run.metric="loss"', "run.target=2.2", 'run.keep="best"', 'run.format="percent"')
    folder = experiment.parent / "out" / "fedbuff-0"
    run_read = read_run(folder)
    assert run_read.metric == Metric("loss", "lower", "percent")
    assert json.loads((folder / "summary.json").read_text())["format"] == FORMAT
    values = run_read.values()
    assert run_read.summary.best == min(value for _, value in values)
    first = next(record.time for record, value in values if value <= 2.2)
    assert run_read.summary.time_to_target == first


def test_evaluations_come_by_updates_or_time(experiment):
    run(experiment, 'run.eval_every="6 updates"')
    found = read_run(experiment.parent / "out" / "fedbuff-0")
    assert [record.updates for record, _ in found.evaluations] == [0, 6, 12, 16]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            ['run.metric="rmse"'],
            "run.metric: the task does not measure 'rmse'; choose one of: accuracy, macro_f1, ",
        ),
        (['run.metric="loss"', "run.target=5"], "run.target = 5 is reached before the run: the initial model has loss"),
        (["run.target=90"], "run.target must be above 0 and at most 1 for accuracy, got 90, such as 0.9 for 90%"),
        (['task.metrics=["f2"]'], "unknown metric 'f2'"),
    ],
)
def test_mistake_gives_one_line(experiment, settings, message):
    done = run(experiment, *settings, code=2)
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1
