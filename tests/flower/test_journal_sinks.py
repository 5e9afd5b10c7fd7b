"""Trackers of a deployment: what they receive, also after a restart, and how an app's settings name them."""

import sys

import pytest

pytest.importorskip("flwr")

from flwr.app import MetricRecord

import fadas
from fadas.errors import ConfigError, FadasWarning
from fadas.flower import AsyncStrategy
from fadas.flower.options import sinks_from_run_config
from fadas.runs.sinks import TensorBoard
from helpers.flower import NAN, ONE, Node, answer_records, stop_server_after
from helpers.trackers import read_events, read_scalars


class Listening:
    def __init__(self, fails=False):
        self.told, self.fails = [], fails

    def open(self, folder, settings):
        self.told.append((folder.name, settings["task"]["name"], list(settings["algorithms"])))
        if self.fails:
            raise ConnectionError("no route to host")

    def record(self, record):
        self.told.append(record.step)

    def close(self, summary):
        self.told.append((summary and summary.step, summary and summary.diverged))


def evaluate(step, arrays):
    return MetricRecord({"accuracy": step / 100})


def test_sink_gets_every_step_of_deployment(play):
    first, second = Listening(), Listening()
    with pytest.raises(KeyboardInterrupt):
        play({ONE: Node(stop_server_after(3))}, concurrency=1, steps=5, sinks=[first])
    play({ONE: Node()}, concurrency=1, steps=5, sinks=[second])
    assert first.told == [("fadas-0", "flower", ["fadas"]), 1, 2, 3, (None, None)]
    assert second.told == [("fadas-0", "flower", ["fadas"]), 4, 5, (5, None)]


def test_tensorboard_continues_after_restart(play, tmp_path):
    pytest.importorskip("tensorboard")
    with pytest.raises(KeyboardInterrupt):
        play({ONE: Node(stop_server_after(3))}, concurrency=1, steps=5, sinks=["tensorboard"], evaluate=evaluate)
    play({ONE: Node()}, concurrency=1, steps=5, sinks=[{"name": "tensorboard"}], evaluate=evaluate)
    curve = read_scalars(tmp_path / "fadas-0", "test/accuracy")
    assert curve == {step: [pytest.approx(step / 100)] for step in range(6)}
    assert "figures/time" in read_events(tmp_path / "fadas-0").Tags()["images"]


def test_failing_sink_does_not_end_deployment(play):
    sink = Listening(fails=True)
    with pytest.warns(FadasWarning, match=r"the sink Listening failed in open\(\): ConnectionError: no route to host"):
        play({ONE: Node()}, steps=5, sinks=[sink])
    assert len(sink.told) == 1


def test_sink_hears_that_deployment_diverged(play):
    sink = Listening()
    with pytest.raises(fadas.Diverged):
        play({ONE: Node(answer_records(arrays=NAN))}, concurrency=1, steps=5, sinks=[sink], check=False)
    step, reason = sink.told[-1]
    assert step == 0
    assert "refused" in reason


def test_sinks_need_a_folder():
    with pytest.raises(ConfigError, match="sinks need a folder for the run; set folder to an absolute path"):
        AsyncStrategy(sinks=[Listening()])
    with pytest.raises(ConfigError, match="unknown sink 'wandbb'; did you mean 'wandb'"):
        AsyncStrategy(sinks=["wandbb"], folder="/tmp/runs")


def test_app_names_sinks_with_commas(monkeypatch, tmp_path):
    pytest.importorskip("tensorboard")
    monkeypatch.delenv("FADAS_ALLOW_CODE")
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "appsink.py").write_text(
        "class Mine:\n def __init__(self, size=1): self.size = size\n"
        " def open(self, folder, settings): ...\n def record(self, record): ...\n def close(self, summary): ...\n"
    )
    config = {"sinks": "tensorboard, appsink:Mine", "sinks-tensorboard-figures": False, "sinks-appsink:Mine-size": 3}
    first, second = AsyncStrategy.from_run_config({**config, "folder": "/tmp/runs"}).options.sinks
    sys.modules.pop("appsink", None)
    assert isinstance(first, TensorBoard)
    assert first.figures is False
    assert second.size == 3
    assert AsyncStrategy.from_run_config({"sinks": "", "folder": ""}).options.sinks == ()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"sinks": "tensorbord"}, "unknown sink 'tensorbord'; did you mean 'tensorboard'?"),
        (
            {"sinks": "wandb", "sinks-wandb-projct": "x"},
            "unknown key 'sinks-wandb-projct'; did you mean 'sinks-wandb-project'?",
        ),
        (
            {"sinks": "mlflow", "sinks-mlflow-tracking-ur": "x"},
            "unknown key 'sinks-mlflow-tracking-ur'; did you mean 'sinks-mlflow-tracking-uri'?",
        ),
        (
            {"sinks": "mlflow", "sinks-wandb-project": "x"},
            "sinks-wandb-project has no effect: sinks = 'mlflow' does not name that sink",
        ),
        ({"sinks": "mlflow,mlflow"}, "sinks names 'mlflow' twice; name it once"),
    ],
)
def test_mistake_is_named_as_in_the_app(settings, message):
    with pytest.raises(ConfigError) as refused:
        sinks_from_run_config(settings)
    assert str(refused.value) == message
