"""TensorBoard, Weights & Biases and MLflow: what a run leaves there, read back from their own files."""

import json
import math
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from fadas.experiments.prepare import make_plan, make_simulation, make_task
from fadas.experiments.run import execute, execute_until
from fadas.runs.folder import claim
from fadas.runs.sinks import SINKS, MLflow, Wandb
from fadas.runs.sinks.base import name_of_run, read_values
from helpers.cli import run_fadas, start_paused
from helpers.experiments import BASE, resolve_text, write_experiment
from helpers.folders import make_record, make_summary, write_run
from helpers.trackers import OfflineRun, read_events, read_scalars

pytest.importorskip("tensorboard")
pytest.importorskip("wandb")
MlflowClient = pytest.importorskip("mlflow").MlflowClient
STEPS = [1, 2, 3, 4]  # and the initial model is evaluated at step 0
FIGURES = {"delays", "time", "updates"}  # some that every run has


@pytest.fixture(scope="module")
def trackers(tmp_path_factory):
    """A current folder in which trackers write. One database serves all tests, because making it takes a second."""
    folder = tmp_path_factory.mktemp("trackers")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{folder}/mlflow.db")
        for name in ("WANDB_DIR", "WANDB_DATA_DIR", "WANDB_CACHE_DIR", "WANDB_CONFIG_DIR"):
            patch.setenv(name, str(folder))
        for name in ("WANDB_PROJECT", "WANDB_ENTITY", "WANDB_API_KEY"):
            patch.delenv(name, raising=False)
        patch.setenv("WANDB_SILENT", "true")
        yield folder


class Play:
    """Runs a short experiment in `folder`: to its end, to a number of updates, or until a step is interrupted."""

    def __init__(self, folder: Path) -> None:
        self.root, self.folder = folder, folder / "runs" / "fadas-0"

    def __call__(self, sinks: str, pause_at=None, stop_at=None, checkpoint_every=50, mode="resume") -> None:
        chosen = [f"run.sinks={sinks}", f"run.checkpoint_every={checkpoint_every}", f"name={self.root.name}"]
        config = resolve_text(self.root, overrides=chosen)
        task = make_task(config)
        simulation = make_simulation(config, task, make_plan(config, task))

        def stop(record):
            if record.step == stop_at:
                raise KeyboardInterrupt

        execute_until(config, simulation, claim(self.folder, config.tables, mode), pause_at, stop)


@pytest.fixture
def play(trackers, tmp_path):
    return Play(tmp_path)


@pytest.fixture(scope="module")
def finished(trackers, tmp_path_factory):
    """A run that all trackers have received."""
    folder = tmp_path_factory.mktemp("finished")
    sinks = 'run.sinks=["tensorboard", {name = "wandb", project = "p", tags = ["t"]}, "mlflow"]'
    config = resolve_text(folder, overrides=[sinks, "name=all"])
    task = make_task(config)
    simulation = make_simulation(config, task, make_plan(config, task))
    execute(config, simulation, claim(folder / "fadas-0", config.tables))
    return folder / "fadas-0"


def lines_of(folder: Path, first=1) -> list[dict]:
    """The lines of metrics.jsonl from a step on."""
    records = [json.loads(line) for line in (folder / "metrics.jsonl").open()]
    return [record for record in records if record["step"] >= first]


def notes_of(folder: Path) -> dict:
    return json.loads((folder / "sinks.json").read_text())["sinks"]


def wandb_run(trackers: Path, folder: Path, killed=0) -> OfflineRun:
    return OfflineRun(trackers, notes_of(folder)["wandb"]["run"], killed)


def mlflow_curve(folder: Path, name: str) -> list[tuple[int, float]]:
    history = MlflowClient().get_metric_history(notes_of(folder)["mlflow"]["run"], name)
    return sorted((metric.step, metric.value) for metric in history)


def test_tensorboard_gets_settings_curves_and_figures(finished):
    events, records = read_events(finished), lines_of(finished)
    curve = [(event.step, event.value) for event in events.Scalars("train/loss")]
    assert curve == [(r["step"], pytest.approx(r["train_loss"])) for r in records]
    assert [event.value for event in events.Scalars("tau_max")] == [max(j["tau"] for j in r["jobs"]) for r in records]
    assert [event.step for event in events.Scalars("test/accuracy")] == [0, *STEPS]
    tags = events.Tags()
    assert {f"figures/{name}" for name in FIGURES} <= set(tags["images"])
    assert events.Images("figures/time")[0].step == 4
    (text,) = events.Tensors("config/text_summary")
    assert b'name = "digits"' in text.tensor_proto.string_val[0]
    assert "summary/text_summary" in tags["tensors"]


def test_wandb_gets_settings_curves_figures_and_model(finished, trackers):
    made = wandb_run(trackers, finished)
    run = made.run
    assert (run.project, run.run_group, run.job_type, run.display_name) == ("p", "all", "fadas", "fadas-0")
    assert list(run.tags) == ["t"]
    assert made.config["task"]["name"] == "digits"
    assert made.config["schedule"] == {"concurrency": 6, "buffer": 3}
    assert made.curve("updates") == {step: [3 * step] for step in (0, *STEPS)}
    records, evaluated = lines_of(finished), lines_of(finished, 0)
    assert made.curve("tau_mean") == {r["step"]: [pytest.approx(sum(j["tau"] for j in r["jobs"]) / 3)] for r in records}
    assert made.curve("test/accuracy") == {r["step"]: [r["metrics"]["accuracy"]] for r in evaluated}
    assert list(made.curve("figures/time/_type").items()) == [(4, ["image-file"])]
    assert made.artifacts == {
        "results": ["config.toml", "metrics.jsonl", "partition.json", "summary.json"],
        "model": ["model.safetensors"],
    }
    assert made.summary["accuracy"] == json.loads((finished / "summary.json").read_text())["accuracy"]
    assert made.exits == [0]


def test_mlflow_gets_settings_curves_figures_and_model(finished, trackers):
    client, id = MlflowClient(), notes_of(finished)["mlflow"]["run"]
    run = client.get_run(id)
    assert client.get_experiment(run.info.experiment_id).name == "all"
    assert (run.info.run_name, run.info.status) == ("fadas-0", "FINISHED")
    assert run.data.params["task.name"] == "digits"
    assert run.data.params["schedule.buffer"] == "3"
    records, evaluated = lines_of(finished), lines_of(finished, 0)
    assert mlflow_curve(finished, "test/accuracy") == [(r["step"], r["metrics"]["accuracy"]) for r in evaluated]
    assert mlflow_curve(finished, "tau_max") == [(r["step"], max(j["tau"] for j in r["jobs"])) for r in records]
    accuracy = json.loads((finished / "summary.json").read_text())["accuracy"]
    assert run.data.metrics["summary/accuracy"] == accuracy
    assert {"config.toml", "metrics.jsonl", "summary.json"} <= {one.path for one in client.list_artifacts(id)}
    assert {f"figures/{name}.png" for name in FIGURES} <= {one.path for one in client.list_artifacts(id, "figures")}
    model = load_file(client.download_artifacts(id, "model/model.safetensors"))
    kept = load_file(finished / "model.safetensors")
    assert all(torch.equal(model[name], kept[name]) for name in kept)


ALL = '["tensorboard", "wandb", "mlflow"]'


def require_every_step_once(folder: Path, trackers: Path) -> None:
    """Each tracker has each step of the run exactly once."""
    records = lines_of(folder)
    losses = {record["step"]: [record["train_loss"]] for record in records}
    assert list(losses) == STEPS
    events = read_scalars(folder, "train/loss")
    assert events == {step: [pytest.approx(loss[0])] for step, loss in losses.items()}
    assert wandb_run(trackers, folder).curve("train/loss") == losses
    assert mlflow_curve(folder, "train/loss") == [(step, loss) for step, (loss,) in losses.items()]


def test_resumed_run_continues_its_runs_in_trackers(play, trackers):
    """The run is interrupted one step after its checkpoint, so that a step comes twice."""
    with pytest.raises(KeyboardInterrupt):
        play(ALL, stop_at=3, checkpoint_every=2)
    before = notes_of(play.folder)
    assert {note["step"] for note in before.values()} == {3}
    assert MlflowClient().get_run(before["mlflow"]["run"]).info.status == "KILLED"
    play(ALL)
    require_every_step_once(play.folder, trackers)
    assert {name: note["run"] for name, note in notes_of(play.folder).items()} == {
        name: note["run"] for name, note in before.items()
    }
    made = wandb_run(trackers, play.folder)
    assert (made.files, made.exits) == (2, [1, 0])
    assert MlflowClient().get_run(before["mlflow"]["run"]).info.status == "FINISHED"


def test_sink_added_on_resume_gets_all_steps(play, trackers):
    play("[]", pause_at=6)
    assert not (play.folder / "sinks.json").exists()
    play(ALL)
    require_every_step_once(play.folder, trackers)


def test_killed_run_continues_without_gap(trackers, tmp_path, monkeypatch):
    monkeypatch.delenv("WANDB_SERVICE", raising=False)  # W&B's own process, which this one may have begun
    file = write_experiment(tmp_path, BASE.replace("[run]", "[run]\ncheckpoint_every = 1\nsinks = ['wandb', 'mlflow']"))
    command = ["run", file, "--out", tmp_path / "runs", "--no-report"]
    folder = tmp_path / "runs" / "fadas-0"
    process = start_paused(3, *command)
    while not (folder / "metrics.jsonl").exists() or len((folder / "metrics.jsonl").read_bytes().splitlines()) < 3:
        time.sleep(0.05)
    process.kill()
    process.wait()
    run_fadas(*command, "--resume")
    losses = {record["step"]: record["train_loss"] for record in lines_of(folder)}
    assert mlflow_curve(folder, "train/loss") == list(losses.items())
    curve = wandb_run(trackers, folder, killed=1).curve("train/loss")  # the last seconds may have been written twice
    assert {step: set(values) for step, values in curve.items()} == {step: {loss} for step, loss in losses.items()}


def test_tensorboard_reads_file_of_resumed_run_last(play, trackers, monkeypatch):
    """Two files of the same second would be read by their numbers as text: 10 before 9."""
    from tensorboard.summary.writer import event_file_writer

    monkeypatch.setattr(event_file_writer, "_global_uid", event_file_writer.AtomicCounter(9))
    play('["tensorboard"]', pause_at=6)
    play('["tensorboard"]')
    assert list(read_scalars(play.folder, "train/loss")) == STEPS


def test_run_of_earlier_version_gets_each_event_once(play, trackers):
    """It has TensorBoard's events, but no notes."""
    play('["tensorboard"]', pause_at=6)
    (play.folder / "sinks.json").unlink()
    play('["tensorboard"]')
    events = read_scalars(play.folder, "train/loss")
    assert {step: len(values) for step, values in events.items()} == dict.fromkeys(STEPS, 1)


def test_resumed_run_elsewhere_begins_a_new_one(play, trackers):
    play('[{name = "mlflow", experiment = "one"}, {name = "wandb", project = "one"}]', pause_at=6)
    before = notes_of(play.folder)
    play('[{name = "mlflow", experiment = "two"}, {name = "wandb", project = "two"}]')
    after = notes_of(play.folder)
    assert all(before[name]["run"] != after[name]["run"] for name in before)
    assert [step for step, _ in mlflow_curve(play.folder, "eta")] == STEPS
    assert list(wandb_run(trackers, play.folder).curve("eta")) == STEPS


def test_overwritten_run_begins_new_runs_in_trackers(play, trackers):
    play('["mlflow"]')
    before = notes_of(play.folder)["mlflow"]["run"]
    play('["mlflow"]', mode="overwrite")
    assert notes_of(play.folder)["mlflow"]["run"] != before
    assert [step for step, _ in mlflow_curve(play.folder, "eta")] == STEPS


def finish_with(sink, folder: Path, records, **summary) -> None:
    """What a writer does with a sink."""
    write_run(folder, records)
    sink.open(folder, {"name": "by-hand", "algorithms": {"a": {}}})
    for record in records:
        sink.record(record)
    sink.close(make_summary(records, **summary))


def test_diverged_run_has_failed(trackers, tmp_path):
    records = [make_record(1), make_record(2, train_loss=math.nan)]
    for name, sink in (("mlflow", MLflow()), ("wandb", Wandb())):
        finish_with(sink, tmp_path / name, records, diverged="the loss is not finite")
    run = MlflowClient().get_run(notes_of(tmp_path / "mlflow")["mlflow"]["run"])
    assert run.info.status == "FAILED"
    assert math.isnan(run.data.metrics["train/loss"])
    assert wandb_run(trackers, tmp_path / "wandb").exits == [1]


@pytest.mark.parametrize("name", SINKS)
def test_sink_takes_initial_model_and_odd_names(trackers, tmp_path, name):
    """The record of the initial model has no jobs. The names of metrics may be anything."""
    initial = make_record(0, updates=0, jobs=(), metrics={"top@5 %": 0.25})
    write_run(tmp_path / "a-0", [])
    sink = SINKS[name]()
    sink.open(tmp_path / "a-0", {"name": "by-hand"})
    sink.record(initial)
    sink.record(make_record(1, 0.5))
    sink.close(None)
    curves = {
        "tensorboard": lambda: read_scalars(tmp_path / "a-0", "test/top@5 %"),
        "wandb": lambda: wandb_run(trackers, tmp_path / "a-0").curve("test/top@5 %"),
        "mlflow": lambda: {step: [value] for step, value in mlflow_curve(tmp_path / "a-0", "test/top_5 _")},
    }
    assert curves[name]() == {0: [0.25]}
    assert "tau_max" not in read_values(initial)


def test_model_and_figures_can_be_left_out(play, trackers):
    play('[{name = "wandb", model = false, figures = false}, {name = "mlflow", model = false, figures = false}]')
    made = wandb_run(trackers, play.folder)
    assert "model" not in made.artifacts
    assert not made.curve("figures/time/_type")
    client, run = MlflowClient(), notes_of(play.folder)["mlflow"]["run"]
    assert not {"model", "figures"} & {one.path for one in client.list_artifacts(run)}


def test_model_may_be_a_folder_and_clients_are_sent(trackers, tmp_path):
    records = [make_record(1, 0.5)]
    for name, sink in (("mlflow", MLflow()), ("wandb", Wandb())):
        write_run(tmp_path / name, records)
        (tmp_path / name / "clients.jsonl").write_text("")
        (tmp_path / name / "adapter").mkdir()
        (tmp_path / name / "adapter" / "adapter_config.json").write_text("{}")
        sink.open(tmp_path / name, {"name": "by-hand"})
        sink.close(make_summary(records))
    made = wandb_run(trackers, tmp_path / "wandb")
    assert made.artifacts["model"] == ["adapter/adapter_config.json"]
    assert "clients.jsonl" in made.artifacts["results"]
    run = notes_of(tmp_path / "mlflow")["mlflow"]["run"]
    assert [one.path for one in MlflowClient().list_artifacts(run, "model/adapter")] == [
        "model/adapter/adapter_config.json"
    ]
    assert "clients.jsonl" in {one.path for one in MlflowClient().list_artifacts(run)}


def test_mlflow_keeps_files_beside_its_database(trackers, tmp_path, monkeypatch):
    """Not in the current folder: an app of Flower does not run in the user's."""
    monkeypatch.chdir(tmp_path)
    records = [make_record(1, 0.5)]
    finish_with(MLflow(experiment="else where"), tmp_path / "a-0", records)
    found = MlflowClient().get_experiment_by_name("else where").artifact_location
    assert found == (trackers / "mlruns" / "else_where").as_uri()
    assert not (tmp_path / "mlruns").exists()


def test_mlflow_does_not_wait_long_for_a_deaf_server(trackers, tmp_path, monkeypatch):
    class Deaf:
        def __init__(self, **_): ...

        def get_experiment_by_name(self, name):
            raise ConnectionError(os.environ.get("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "as many as MLflow likes"))

    monkeypatch.setattr("mlflow.MlflowClient", Deaf)
    with pytest.raises(ConnectionError, match=r"^3$"):
        MLflow().open(tmp_path, {})
    assert "MLFLOW_HTTP_REQUEST_MAX_RETRIES" not in os.environ


def test_password_of_server_is_not_noted(tmp_path):
    assert MLflow(tracking_uri="https://me:secret@example.org/a").place() == "https://example.org/a"


@pytest.mark.parametrize(
    ("folder", "expected"),
    [("fadas-1", "fadas-1"), ("fadas/eta=0.1-1", "fadas/eta=0.1-1"), ("mine", "fadas/mine")],
)
def test_point_of_sweep_is_named_with_its_method(folder, expected):
    assert name_of_run(Path("runs") / folder, {"algorithms": {"fadas": {}}}) == expected


def test_trackers_are_loaded_when_they_are_used(tmp_path):
    code = "import sys, fadas.runs.sinks as s; s.MLflow(), s.Wandb(), s.TensorBoard(); "
    code += "assert not {'mlflow', 'wandb', 'tensorboard', 'torch', 'matplotlib'} & set(sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
