"""The summary of a deployment, and folders that are refused before anything is written."""

import hashlib
import json
import re
import tomllib

import numpy as np
import pytest
from safetensors.numpy import load_file

pytest.importorskip("flwr")
from flwr.app import MetricRecord

import fadas
from fadas.errors import ConfigError
from fadas.flower.journal import _describe
from fadas.report.comparison import compare
from fadas.report.table import table_cells, table_header
from fadas.runs.checkpoint import read_checkpoint, write_checkpoint
from fadas.runs.folder import checkpoints, claim
from fadas.runs.follower import Follower
from fadas.runs.reader import read_run
from helpers.flower import INITIAL, ONE, TWO, Node, answer_error, find_lines, stop_server_after
from helpers.folders import draw_runs, read_files


def evaluate(step, arrays):
    return MetricRecord({"accuracy": step / 10})


def read_summary(folder):
    return json.loads((folder / "fadas-0" / "summary.json").read_text())


def test_summary_of_resumed_run_covers_all_steps(play, tmp_path):
    with pytest.raises(KeyboardInterrupt):  # the second node is slow, and takes part before the interruption only
        play({ONE: Node(stop_server_after(7)), TWO: Node(latency=5.0)}, steps=9, evaluate=evaluate)
    done = len(play.read())
    assert done >= 6
    play({ONE: Node()}, steps=9, evaluate=evaluate)
    run = read_run(tmp_path / "fadas-0")
    taus = [max(job.tau for job in record.jobs) for record in run.records]
    summary = run.summary
    assert len(run.records) == 9
    assert (summary.tau_max, summary.tau_avg) == (max(taus), pytest.approx(sum(taus) / 9))
    assert max(taus[:done]) > max(taus[done:], default=0)
    assert summary.accuracy == pytest.approx(np.mean([0.5, 0.6, 0.7, 0.8, 0.9]))
    assert summary.accuracy_std == pytest.approx(np.std([0.5, 0.6, 0.7, 0.8, 0.9]))
    assert (summary.step, summary.updates, summary.time) == (9, 9, run.records[-1].time)


def measure_rmse(step, arrays):
    return MetricRecord({"rmse": 2.0 - step / 10, "loss": 1.0})


def test_deployment_goes_by_its_metric(play, tmp_path):
    metric = fadas.Metric("rmse", format="percent")
    play({ONE: Node()}, steps=8, evaluate=measure_rmse, metric=metric, target=1.5)
    run = read_run(tmp_path / "fadas-0")
    assert run.metric == metric
    assert run.summary.score == pytest.approx(np.mean([1.6, 1.5, 1.4, 1.3, 1.2]))
    assert run.summary.time_to_target == run.records[4].time
    assert next(value for _, value in run.values()) == 2.0
    assert "rmse" in draw_runs(Follower(tmp_path / "fadas-0", "fadas-0"))
    header, (row,) = table_header(comparison := compare([run])), table_cells(comparison)
    assert (header[1], row[1]) == ("final\nrmse", "140.0%")
    (to_target,) = [title for title in header if "to" in title.split() and "150%" in title]
    assert row[header.index(to_target)] == f"{run.records[4].time:.1f}"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"metric": "mae"}, "metric: evaluate_fn does not measure 'mae'; it measures: rmse, loss"),
        (
            {"metric": "rmse", "target": 2.5},
            r"target = 2\.5 is reached before the run: the initial model has rmse 2",
        ),
    ],
)
def test_metric_that_is_not_measured_and_target_on_the_wrong_side_are_refused(play, tmp_path, options, message):
    with pytest.raises(ConfigError, match=message):
        play({ONE: Node()}, steps=4, evaluate=measure_rmse, **options)


def test_summary_and_model_say_what_was_trained(play, tmp_path):
    play({ONE: Node(), TWO: Node()}, steps=4, seed=0, evaluate=evaluate)
    summary = read_summary(tmp_path)
    assert summary["experiment"] == tmp_path.name
    assert (summary["algorithm"], summary["seed"], summary["place"]) == ("fadas", 0, 0)
    assert summary["versions"]["fadas"] == fadas.__version__
    assert set(summary["versions"]) == {"fadas", "torch"}
    assert summary["wall"] == pytest.approx(play.last["time"], abs=0.5)
    assert "diverged" not in summary
    model = load_file(tmp_path / "fadas-0" / "model.safetensors")
    assert list(model) == ["w"]
    assert float((model["w"] - INITIAL).min()) > 0
    assert not list((tmp_path / "fadas-0").glob("*.ckpt"))


def interrupt_run(play, folder):
    with pytest.raises(KeyboardInterrupt):
        play({ONE: Node(stop_server_after(8))})
    (folder / "fadas-0" / ".lock").unlink()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"buffer": 2}, r"an interrupted run with other settings \(schedule.buffer was 1 and is 2\)"),
        ({"algorithm": fadas.FADAS()}, "an interrupted run with other settings"),
    ],
)
def test_folder_with_other_settings_is_refused_before_it_is_locked(play, tmp_path, options, message):
    interrupt_run(play, tmp_path)
    before = read_files(tmp_path / "fadas-0")
    with pytest.raises(ConfigError, match=f"fadas-0 holds {message}"):
        play({ONE: Node()}, **options)
    assert read_files(tmp_path / "fadas-0") == before, "not even a lock"


def test_finished_run_is_refused_before_it_is_locked(play, tmp_path):
    play({ONE: Node()}, steps=3)
    (tmp_path / "fadas-0" / ".lock").unlink()
    before = read_files(tmp_path / "fadas-0")
    with pytest.raises(ConfigError, match="fadas-0 holds a finished run: choose another folder, or move it away"):
        play({ONE: Node()}, steps=3)
    assert read_files(tmp_path / "fadas-0") == before


def test_folder_is_released_at_the_end(play, tmp_path):
    play({ONE: Node()}, steps=3)
    claim(tmp_path / "fadas-0", {}, "overwrite").release()
    with pytest.raises(RuntimeError, match="giving up"):
        play({ONE: Node(answer_error(1))}, name="failing", seed=0)
    claim(tmp_path / "failing-0", {}, "overwrite").release()


def test_settings_are_written_in_words(play, tmp_path):
    play({ONE: Node()}, steps=3, algorithm=fadas.FedBuff(eta=1.0))
    config = tomllib.loads((tmp_path / "fadas-0" / "config.toml").read_text())
    assert config["task"] == {"name": "flower", "reply": "arrays", "arrays": config["task"]["arrays"]}
    assert config["task"]["arrays"].startswith("2 trained, 0 averaged, ")
    assert config["schedule"].items() >= {"concurrency": 2, "buffer": 1, "refill": "arrival"}.items()
    assert config["run"] == {"steps": 3, "seeds": [0]}
    parts = {"type": "Algorithm", "combine": "Mean()", "optimizer": "SGD(momentum=0.0)", "refill": "'arrival'"}
    parts |= {"step_size": "Constant(eta=1.0)", "buffer": "None", "statistics": "1.0"}
    assert config["algorithms"] == {"fadas": parts}


class Own:
    """A user's part without a repr, which holds an object that prints its address."""

    def __init__(self):
        self.scale, self.something = 0.5, object()


class Slotted:
    """A user's part without parameters."""

    __slots__ = ()


def test_parts_are_described_in_words_that_are_equal_in_every_process():
    words = _describe(fadas.Algorithm(Own(), fadas.algorithms.SGD(), Slotted()))
    assert words["type"] == "Algorithm"
    assert words["combine"] == "Own({'scale': 0.5, 'something': <object object>})"
    assert words["optimizer"] == "SGD(momentum=0.0)"
    assert re.fullmatch(r"<.*Slotted object>", words["step_size"])
    assert words["statistics"] == "1.0", "as format 1 stored the default"
    assert _describe(fadas.Algorithm(statistics=0.25))["statistics"] == "0.25"
    assert _describe(Own()) == {"type": "Own", "scale": "0.5", "something": "<object object>"}


def test_checkpoint_that_knows_fewer_records_than_steps_is_passed_over(play, tmp_path):
    """The part of metrics.jsonl that it names is intact, but its last step is not the checkpoint's."""
    with pytest.raises(KeyboardInterrupt):
        play({ONE: Node(stop_server_after(8))}, concurrency=1)
    folder = tmp_path / "fadas-0"
    first = (folder / "metrics.jsonl").read_bytes().splitlines(keepends=True)[0]
    for path in checkpoints(folder):
        tensors, values = read_checkpoint(path)
        values["metrics"] = [len(first), hashlib.sha256(first).hexdigest()]
        write_checkpoint(folder, int(path.stem.removeprefix("checkpoint-")), tensors, values)
    with pytest.raises(ConfigError, match="none of its checkpoints can be used"):
        play({ONE: Node()}, concurrency=1)
    assert find_lines(play.log, "cannot be used: metrics.jsonl ends at step 1, the checkpoint at step 8")
    assert find_lines(play.log, "cannot be used: metrics.jsonl ends at step 1, the checkpoint at step 7")


def test_checkpoint_before_the_first_step_belongs_to_no_record(play):
    with pytest.raises(KeyboardInterrupt):
        play({ONE: Node(stop_server_after(1))}, concurrency=1, buffer=2)
    play({ONE: Node()}, concurrency=1, buffer=2)
    assert not find_lines(play.log, "cannot be used")
    assert {job["id"] for job in play.records[0]["jobs"]} == {0, 2}, "the update of the first job was kept"
