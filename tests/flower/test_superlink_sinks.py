"""A real deployment that is judged by a metric and sends its run to trackers."""

import json
import tomllib

import pytest

pytest.importorskip("flwr")
pytest.importorskip("tensorboard")
pytest.importorskip("wandb")
pytest.importorskip("mlflow")
from helpers.cli import run_fadas
from helpers.folders import read_initial, read_records
from helpers.superlink import SIMULATION, SLOW, make_app, wait_for
from helpers.trackers import OfflineRun, read_events, read_scalars

STEPS = 10


@SLOW
def test_deployment_is_judged_by_metric_and_sent_to_trackers(start_superlink, tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    one = start_superlink("--insecure", "--simulation")
    pause = "    import time\n\n    time.sleep(0.5)\n    config, asked = "
    app = make_app(tmp_path / "app", lambda text: text.replace("    config, asked = ", pause, 1))
    config, store = app / "pyproject.toml", f"sqlite:///{tmp_path}/store/mlflow.db"
    (tmp_path / "store").mkdir()
    more = 'task-metrics = "accuracy,macro_f1,top3"\nsinks-wandb-project = "p"\n'
    config.write_text(f'{config.read_text()}{more}sinks-mlflow-tracking-uri = "{store}"\n')
    runs = tmp_path / "runs"
    settings = {"algorithm": "fadas", "algorithm-eta": 0.003, "num-server-rounds": STEPS, "folder": str(runs)}
    settings |= {"metric": "macro_f1", "target": 0.1, "sinks": "tensorboard,wandb,mlflow"}
    one.run(app, settings, *SIMULATION)

    folder = runs / "fadas-1"
    wait_for(lambda: read_records(folder), "a step")
    assert "macro_f1" in run_fadas("watch", runs, "--once").stdout
    assert "not finished: fadas-1" in run_fadas("report", runs, code=2).stderr

    wait_for((folder / "summary.json").exists, "the run")
    values = [read_initial(folder)["metrics"]["macro_f1"], *(r["metrics"]["macro_f1"] for r in read_records(folder))]
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["final"] == pytest.approx(sum(values[-5:]) / 5)
    assert (summary["metric"], summary["target"]) == ("macro_f1", 0.1)
    assert tomllib.loads((folder / "config.toml").read_text())["app"]["lr"] == 0.1
    shown = run_fadas("report", runs, "--columns", "top3").stdout
    assert all(text in shown for text in ("final macro_f1: mean of the last 5", "time to", "top3")), shown
    assert "top3" in (runs / "report.html").read_text()

    from mlflow import MlflowClient

    client = MlflowClient(store)

    def find_run():
        (experiment,) = [found for found in client.search_experiments() if found.name == "runs"]
        return next(
            (run for run in client.search_runs([experiment.experiment_id]) if run.info.status != "RUNNING"), None
        )

    run = wait_for(find_run, "the run in MLflow")  # the trackers are closed after the summary is written
    assert run.info.status == "FINISHED"
    assert (run.data.params["app.lr"], run.data.params["run.metric"]) == ("0.1", "macro_f1")
    curve = client.get_metric_history(run.info.run_id, "test/macro_f1")
    assert [point.value for point in curve] == values
    kept = {path.relative_to(tmp_path / "store" / "mlruns" / "runs" / run.info.run_id / "artifacts").as_posix()
            for path in (tmp_path / "store").rglob("*.*") if "artifacts" in path.parts}  # fmt: skip
    assert {"model/model.safetensors", "figures/time.png", "config.toml", "metrics.jsonl"} <= kept

    assert read_scalars(folder, "test/macro_f1") == {step: [pytest.approx(value)] for step, value in enumerate(values)}
    assert "figures/delays" in read_events(folder).Tags()["images"]

    made = OfflineRun(tmp_path, json.loads((folder / "sinks.json").read_text())["sinks"]["wandb"]["run"])
    assert made.curve("test/macro_f1") == {step: [value] for step, value in enumerate(values)}
    assert (made.run.project, made.config["app"]["epochs"], made.exits) == ("p", 2, [0])
    assert "tau_max" in made.summary
    assert made.artifacts["model"] == ["model.safetensors"]
