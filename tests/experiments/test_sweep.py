"""Sweeps: grids, folders, mistakes."""

import threading
from concurrent.futures import Future
from pathlib import Path

import pytest

from fadas.errors import ConfigError
from fadas.experiments import queue
from fadas.experiments.sweeps import points
from fadas.experiments.sweeps.halving import search_points
from fadas.experiments.sweeps.points import grid_points, sweep_points, with_point
from fadas.runs import folder as run_folder
from fadas.runs.reader import read_run
from helpers.cli import run_fadas
from helpers.experiments import LONG_SWEEP, make_sweep
from helpers.processes import hold_lock, wait_until


def test_grid_gives_every_combination():
    tables = {"algorithms": {"a": {}}, "sweep": {"a": {"eta": [1, 2], "local": {"lr": [3, 4, 5]}}}}
    assert len(grid_points(tables, "a")) == 6
    assert grid_points(tables, "a")[4] == {"eta": 2, "local.lr": 4}
    assert with_point(tables, "a", {"eta": 2, "local.lr": 4})["algorithms"]["a"] == {"eta": 2, "local": {"lr": 4}}
    assert tables["algorithms"]["a"] == {}
    assert grid_points(tables, "b") == []


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"eta": 3}, "must be a list"),
        ({"eta": []}, "must be a list"),
        (3, "must be a table"),
        ({"eta": [0, 1, 0]}, "sweep.a.eta holds 0 twice"),  # two runs would share a folder
    ],
)
def test_bad_grids_are_refused(table, message):
    with pytest.raises(ConfigError, match=message):
        grid_points({"sweep": {"a": table}}, "a")


def test_sweep_asks_before_the_first_run_and_under_the_lock_whether_a_point_has_finished(tmp_path, monkeypatch):
    asked = []
    for module in (run_folder, queue, points):
        ask = lambda place, *rest, inner=module.find_finished: asked.append(place) or inner(place, *rest)  # noqa: E731
        monkeypatch.setattr(module, "find_finished", ask)
    todo = sweep_points(make_sweep(steps=2), ["fadas"], [1], tmp_path, 0.2)
    first = list(search_points(todo, 1, (1.0,)))
    assert asked == [todo[0].folder] * 2
    assert list(search_points(todo, 1, (1.0,))) == first
    assert asked == [todo[0].folder] * 3, "a finished point is asked once"


def test_long_point_names_give_short_unique_folders(tmp_path):
    optimizers = [{"name": "yogi", "beta1": 0.8, "beta2": 0.9 + k / 1e9, "eps": 0.1234567891234567} for k in range(3)]
    step_sizes = [{"name": "delay-adaptive", "eta": 0.1234567891234567, "tau_c": 3, "form": "scaled"}]
    local = {"lr": [0.1234567891234567], "weight_decay": [0.1234567891234567]}
    tables = {
        "name": "long",
        "task": {"name": "digits", "clients": 4},
        "schedule": {"concurrency": 2, "buffer": 1},
        "run": {"steps": 1},
        "algorithms": {"fadas": {}},
        "sweep": {"fadas": {"step_size": step_sizes, "local": local, "optimizer": optimizers}},
    }
    folders = [point.folder for point in sweep_points(tables, ["fadas"], [0, 123456789], tmp_path, 0.2)]
    assert len(set(folders)) == 6
    assert folders == [point.folder for point in sweep_points(tables, ["fadas"], [0, 123456789], tmp_path, 0.2)]
    for folder in folders:
        folder.mkdir(parents=True)
        assert folder.name.startswith("step_size={'name': 'delay-adaptive', 'eta': 0.1234567891234567")
    del tables["sweep"]["fadas"]["optimizer"], tables["sweep"]["fadas"]["step_size"]
    (short,) = sweep_points(tables, ["fadas"], [7], tmp_path, 0.2)
    assert short.folder.name == "local.lr=0.1234567891234567,local.weight_decay=0.1234567891234567-7"


def test_point_below_value_is_refused():
    with pytest.raises(ConfigError, match="is not a table"):
        with_point({"algorithms": {"a": {"optimizer": "yogi"}}}, "a", {"optimizer.beta1": 0.5})
    with pytest.raises(ConfigError, match="between 0 and 1"):
        sweep_points({"algorithms": {"a": {}}}, ["a"], [0], Path(), 0.0)


def run_sweep(folder, *options, code, **environment):
    return run_fadas("sweep", "long.toml", *options, cwd=folder, code=code, **environment)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("cat.jpg", "", "exists and is not a run of fadas; choose another folder with --out DIR"),
        ("config.toml", "[run]\nsteps = 1\n", "holds a run with other settings (run.steps was 1 and is 20000; "),
    ],
)
def test_unusable_folder_is_refused_before_any_run(name, text, message, tmp_path):
    (tmp_path / "long.toml").write_text(LONG_SWEEP)
    foreign = tmp_path / "o" / "fadas" / "eta=0.003-0"
    foreign.mkdir(parents=True)
    (foreign / name).write_text(text)
    assert run_sweep(tmp_path, "--out", "o", code=2).stderr.startswith(f"fadas: o/fadas/eta=0.003-0 {message}")
    assert [path.name for path in (tmp_path / "o" / "fadas").iterdir()] == ["eta=0.003-0"]


def test_mistake_in_one_run_ends_sweep_and_is_reported(tmp_path):
    (tmp_path / "long.toml").write_text(LONG_SWEEP.replace('"digits"', '"mine:make"'))
    (tmp_path / "mine.py").write_text(
        "from fadas.tasks import TASKS\n"
        "def make(clients, validation=0.0, seed=0):\n"
        "    if seed == 7:\n"
        "        raise ValueError('no luck')\n"
        "    return TASKS['digits'](clients=clients, validation=validation, seed=seed)\n"
    )
    options = ["--allow-code", "--set", "run.seeds=[0, 7]", "-j", "2"]
    assert run_sweep(tmp_path, *options, code=2).stderr == "fadas: task: no luck\n"
    debug = run_sweep(tmp_path, *options, code=2, FADAS_DEBUG="1")
    assert "in run_point" in debug.stderr, "the traceback of the worker"


def test_sweep_waits_for_point_locked_by_other_process(tmp_path):
    pytest.importorskip("fcntl")
    (tmp_path / "long.toml").write_text(LONG_SWEEP.replace("20000", "20").replace("500", "5"))
    folder = tmp_path / "runs" / "long-sweep" / "fadas" / "eta=0.001-0"
    done = Future()
    with hold_lock(folder):
        sweep = threading.Thread(target=lambda: done.set_result(run_sweep(tmp_path, "-j", "2", code=0)))
        sweep.start()
        wait_until(lambda: len(list(folder.parent.glob("*/summary.json"))) == 2)
        assert not done.done()
    shown = done.result(60)
    assert "3 runs" in shown.stderr


def test_selected_algorithm_needs_grid_and_file_sets_validation(tmp_path):
    text = LONG_SWEEP.replace("20000", "2").replace("[algorithms.fadas]", "[algorithms.fadas]\n[algorithms.ca2fl]")
    (tmp_path / "long.toml").write_text(text)
    error = run_sweep(tmp_path, "--only", "fadas,ca2fl", code=2).stderr
    assert error == "fadas: there is no grid for ca2fl; add a table such as [sweep.ca2fl]\n"
    for options, share in (([], 0.2), (["--set", "task.validation=0.4"], 0.4), (["--validation", "0.3"], 0.3)):
        run_sweep(tmp_path, "--out", f"o{share}", *options, code=0)
        assert read_run(tmp_path / f"o{share}" / "fadas" / "eta=0.001-0").config["task"]["validation"] == share


def test_task_without_validation_cannot_be_swept(tmp_path):
    tables = {**make_sweep(), "task": {"name": "helpers.training:make_plain_task", "clients": 8}}
    with pytest.raises(ConfigError, match="to be swept, a task must take `validation`"):
        sweep_points(tables, ["fedbuff"], [1], tmp_path, 0.2)


@pytest.mark.parametrize("share", ["x", 0.0, 1, True, None])
def test_validation_share_must_lie_between_0_and_1(tmp_path, share):
    with pytest.raises(ConfigError, match="must lie between 0 and 1"):
        sweep_points(make_sweep(), ["fadas"], [1], tmp_path, share)


def test_stop_at_target_cannot_be_swept(tmp_path):
    tables = make_sweep(target=0.5, stop_at_target=True)
    with pytest.raises(ConfigError, match=r"a sweep compares whole runs; set run\.stop_at_target=false"):
        sweep_points(tables, ["fadas"], [1], tmp_path, 0.2)
