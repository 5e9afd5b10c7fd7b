"""`fadas run --dry-run` and `fadas sweep --dry-run`."""

import json
import re
import time
from importlib import import_module
from types import SimpleNamespace

import pytest

from fadas.cli.dry_run import describe_time, probe
from helpers.cli import DEMO, ROOT, call_fadas, run_fadas
from helpers.library import write_library

EXPERIMENT = """
name = "mine"
task = {name = "mytask:blobs", clients = 6}
schedule = {concurrency = 4, buffer = 2}
run = {updates = 30, seeds = [1, 2]}
algorithms.fadas = {}
algorithms.fedbuff = {}
sweep.fadas.eta = [0.001, 0.003, 0.01, 0.03, 0.1]
"""
TASK = """
import torch
import fadas

def blobs(clients=6, validation=0.0):
    x = torch.randn(clients, 20, 3, generator=torch.Generator().manual_seed(1))
    data = [(part, (part[:, 0] > 0).long()) for part in x]
    return fadas.Task(torch.nn.Linear(3, 2), data, test=data[0])
"""


def tree(folder) -> dict:
    """Every file and folder, with content and time of change."""
    return {
        path: (path.stat().st_mtime_ns, path.read_bytes() if path.is_file() else None) for path in folder.rglob("*")
    }


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "x.toml").write_text(EXPERIMENT)
    (tmp_path / "mytask.py").write_text(TASK)
    return tmp_path


@pytest.mark.parametrize(
    "options", [[], pytest.param(["--executor", "processes"], marks=pytest.mark.forks), ["--executor", "inline"]]
)
def test_dry_run_shows_runs_and_writes_nothing(folder, options):
    before = tree(folder)
    text = run_fadas("run", "x.toml", "--dry-run", "--allow-code", *options, cwd=folder).stdout
    assert [line.split()[:4] for line in text.splitlines() if line.startswith((" fadas ", " fedbuff"))] == [
        ["fadas", "1", "1", "30"],
        ["fedbuff", "1", "1", "30"],
        ["fadas", "2", "1", "30"],
        ["fedbuff", "2", "1", "30"],
    ]
    assert "runs in runs/mine: 4; finished, would be skipped: 0; 120 updates left to train" in text
    assert re.search("^estimate: (about|less than) ", text, re.M)
    assert f"with the executor {options[1] if options else 'batched'} (fadas " in text
    assert tree(folder) == before


def test_dry_run_names_finished_runs(folder):
    run_fadas("run", "x.toml", "--only", "fadas", "--seed", "1", "--allow-code", "--no-report", cwd=folder)
    before = tree(folder)
    found = json.loads(run_fadas("run", "x.toml", "--dry-run", "--json", "--allow-code", cwd=folder).stdout)
    states = {(run["label"], run["seed"]): run["state"] for run in found["runs"]}
    assert states == {
        ("fadas", 1): "finished, skipped",
        ("fedbuff", 1): "new",
        ("fadas", 2): "new",
        ("fedbuff", 2): "new",
    }
    assert [run["left"] for run in found["runs"]] == [0, 30, 30, 30]
    again = json.loads(
        run_fadas("run", "x.toml", "--dry-run", "--json", "--overwrite", "--allow-code", cwd=folder).stdout
    )
    assert again["runs"][0]["state"] == "overwritten"
    assert again["runs"][0]["left"] == 30
    assert tree(folder) == before


def test_dry_run_of_sweep_counts_points_and_writes_nothing(folder):
    before = tree(folder)
    text = run_fadas("sweep", "x.toml", "--dry-run", "--allow-code", cwd=folder).stdout
    assert "runs in runs/mine-sweep: 10; finished, would be skipped: 0; 300 updates left" in text
    halving = ["--halving", "--set", "run.eval_every=1", "-j", "2", "--json"]
    found = json.loads(run_fadas("sweep", "x.toml", "--dry-run", "--allow-code", *halving, cwd=folder).stdout)
    # five points to an eighth, two of them to half, one of these to the end
    assert found["runs"][0]["left"] == pytest.approx(30 * (5 / 8 + 2 * 3 / 8 + 1 / 2))
    assert tree(folder) == before


def test_names_task_keeps_no_cache_in_dry_run(tmp_path, monkeypatch):
    library, here = write_library(tmp_path / "lib"), tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    module = import_module("fadas.tasks.names")  # fadas.tasks has a function of this name
    monkeypatch.setattr(module, "library_folder", lambda: library)
    small = ["--set", "task={name='names',clients=4,words=40,targets=4}", "--set", "schedule.concurrency=2"]
    command = ["run", ROOT / "experiments" / "demo.toml", *small, "--set", "run.updates=6"]
    code, text, _ = call_fadas(*command, "--only", "fedams", "--seed", "1", "--dry-run")
    assert code == 0
    assert "runs in runs/demo: 1;" in text
    assert not list(here.iterdir())
    call_fadas(*command, "--only", "fedams", "--seed", "1", "--no-report")
    assert sorted(path.name for path in here.iterdir()) == ["data", "runs"], "the cache and the run"


def test_interrupted_run_is_shown_with_what_is_left(folder, monkeypatch):
    from fadas.experiments.experiment_file import read_experiment
    from fadas.experiments.prepare import make_plan, make_simulation, make_task
    from fadas.experiments.resolve import resolve
    from fadas.experiments.run import execute_until
    from fadas.runs.folder import claim

    monkeypatch.chdir(folder)
    config = resolve(read_experiment(folder / "x.toml", ["run.checkpoint_every=1"]), "fadas", 1)
    task = make_task(config)
    with claim(folder / "runs" / "mine" / "fadas-1", config.tables) as claimed:
        execute_until(config, make_simulation(config, task, make_plan(config, task)), claimed, 9)
    only = ["--only", "fadas", "--seed", "1", "--set", "run.checkpoint_every=1", "--dry-run"]
    code, _, err = call_fadas("run", "x.toml", *only)
    assert (code, "holds an interrupted run; continue it with --resume" in err) == (2, True)
    code, out, _ = call_fadas("run", "x.toml", *only, "--resume", "--json")
    (run,) = json.loads(out)["runs"]
    assert run["state"] == "continues after step 5"
    assert run["left"] == pytest.approx(20)


@pytest.mark.parametrize("command", ["run", "sweep"])
def test_dry_run_refuses_what_the_command_refuses(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, err = call_fadas(command, DEMO, "--dry-run", "--set", "run.stepz=1")
    assert (code, out) == (2, "")
    assert "did you mean 'run.steps'?" in err
    assert not list(tmp_path.iterdir())


def test_estimate_is_near_the_truth(tmp_path):
    """Within a factor of five, on a machine that may be busy."""
    settings = ["--set", "run.updates=800", "--set", "run.eval_every=10", "--seed", "7", "--only", "fadas,fedavg"]
    found = json.loads(run_fadas("run", DEMO, "--dry-run", "--json", *settings, cwd=tmp_path).stdout)
    rows = run_fadas("run", DEMO, "--json", *settings, cwd=tmp_path).stdout.splitlines()
    truth = sum(json.loads(row)["wall"] for row in rows)
    assert truth / 5 < found["seconds"] < truth * 5


def test_probe_is_bounded_in_time(task):
    import fadas

    algorithm = fadas.FADAS()
    plan = fadas.plan(algorithm.schedule(4, 2), clients=len(task.clients), updates=200_000)
    for executor in ("inline", "batched"):
        begin = time.perf_counter()
        speed = probe(fadas.simulate(plan, task, algorithm, fadas.LocalSGD(), executor=executor), 0.3)
        assert time.perf_counter() - begin < 10
        assert 0 < speed.update < 1
        assert 0 < speed.updates < 200_000
        assert speed.executor == executor


def test_probe_measures_batches_as_a_whole(task, monkeypatch):
    """A batch is trained when its first update is collected: the others cost next to nothing."""
    import fadas

    algorithm = fadas.FADAS()
    plan = fadas.plan(algorithm.schedule(4, 2), clients=len(task.clients), updates=40)
    simulation = fadas.simulate(plan, task, algorithm, fadas.LocalSGD(), executor="inline")
    collect, calls = simulation.executor.collect, []
    clock = SimpleNamespace(perf_counter=lambda: sum(calls))  # how busy the machine is makes no difference

    def collect_in_batches(job):
        calls.append(0.001 if len(calls) % 10 else 0.3)
        return collect(job)

    simulation.executor.collect = collect_in_batches
    monkeypatch.setattr("fadas.cli.dry_run.time", clock)
    assert probe(simulation, 60).update == pytest.approx(0.0309)
    assert len(calls) == 40


def test_time_is_in_words():
    assert [describe_time(s) for s in (0.2, 40, 150, 10_000)] == [
        "less than 1 s",
        "about 40 s",
        "about 2.5 minutes",
        "about 2.8 hours",
    ]
