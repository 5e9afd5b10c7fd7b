import re
import signal
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

import fadas.experiments.halving
import fadas.experiments.run
import fadas.simulation.snapshot
from fadas.errors import ConfigError, Interrupted
from fadas.experiments.halving import HALVING, count_runs, rank_points, search_points
from fadas.experiments.sweep import Point, grid_points, run_point, run_points, sweep_points, with_point
from fadas.runs.run_reader import read_run
from fadas.tasks.task import Task
from helpers.cli import fadas_command, import_path, run_fadas
from helpers.experiments import LONG_SWEEP, make_sweep
from helpers.folders import read_times
from helpers.processes import (
    count_lines,
    find_session,
    hold_lock,
    interrupt_when,
    interruptible,
    start_session,
    wait_until,
)


def result(label, lr, seed, accuracy):
    summary = {"diverged": "why"} if accuracy is None else {"accuracy": accuracy}
    return Point(label, seed, {"local.lr": lr}, Path(), {}), summary


def test_rank_by_the_mean_over_seeds():
    results = [
        result("a", 0.1, 1, 0.9),
        result("a", 0.2, 1, 0.7),
        result("a", 0.1, 2, 0.1),
        result("a", 0.2, 2, 0.7),
        result("a", 0.3, 1, 0.99),
        result("a", 0.3, 2, None),
        result("b", 0.1, 1, None),
    ]
    ranked = rank_points(results)
    assert [(r.label, r.point["local.lr"], r.best) for r in ranked] == [
        ("a", 0.2, True),
        ("a", 0.1, False),
        ("a", 0.3, False),
        ("b", 0.1, False),
    ]
    assert ranked[1].score == pytest.approx(0.5)
    assert [(r.score, r.diverged) for r in ranked[2:]] == [(None, 1), (None, 1)], "a seed that diverged has no score"


def test_points_without_an_accuracy_are_not_ranked():
    (point,) = rank_points([(Point("a", 1, {"local.lr": 0.1}, Path(), {}), {"metrics": {"loss": 1.0}})])
    assert (point.score, point.diverged, point.best) == (None, 0, False)


def test_grid():
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
        ({"eta": [0, 1, 0]}, "sweep.a.eta holds 0 twice"),  # one folder for two runs, at the same time with -j 2
    ],
)
def test_bad_grids(table, message):
    with pytest.raises(ConfigError, match=message):
        grid_points({"sweep": {"a": table}}, "a")


def test_points_with_long_names_have_folders_that_a_file_system_can_hold(tmp_path):
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


def test_a_point_below_something_that_is_no_table():
    with pytest.raises(ConfigError, match="is not a table"):
        with_point({"algorithms": {"a": {"optimizer": "yogi"}}}, "a", {"optimizer.beta1": 0.5})
    with pytest.raises(ConfigError, match="between 0 and 1"):
        sweep_points({"algorithms": {"a": {}}}, ["a"], [0], Path(), 0.0)


def count_steps(root):
    return sorted(count_lines(path) for path in root.glob("*/metrics.jsonl"))


def kill_sweep(command, folder, root):
    """Start a sweep and kill it when two runs have trained a while. Its workers must end too."""
    before = sum(count_steps(root))
    with start_session(command, folder, stderr=subprocess.DEVNULL) as process:
        wait_until(lambda: len(count_steps(root)) >= 2 and sum(count_steps(root)) >= before + 20, process=process)
        process.kill()
        process.wait()
        wait_until(lambda: not find_session(process.pid), what="the workers did not end")


@pytest.mark.parametrize(("jobs", "options"), [(1, []), (2, []), (2, ["--halving"])])
def test_an_interrupted_sweep_ends_soon_leaves_nothing_running_and_the_same_command_goes_on(jobs, options, tmp_path):
    (tmp_path / "long.toml").write_text(LONG_SWEEP)
    command = fadas_command("sweep", "long.toml", "-j", jobs, *options)
    root = tmp_path / "runs" / "long-sweep" / "fadas"
    code, text = interrupt_when(
        lambda: len(count_steps(root)) == jobs and count_steps(root)[0] > 10, command, tmp_path, signal.SIGINT
    )
    assert code == 130
    assert re.fullmatch(r"fadas: interrupted( after.*)?; the same command goes on\n", text), text
    assert len(list(root.glob("*/checkpoint-*.ckpt"))) >= jobs, "each run keeps what it had"
    first, begun = count_steps(root), read_times(root.glob("*/config.toml"))
    assert len(begun) == jobs, "no further point begins"
    code, _ = interrupt_when(lambda: count_steps(root)[0] > first[-1] + 10, command, tmp_path, signal.SIGTERM)
    assert code == (130 if jobs == 1 else 128 + signal.SIGTERM)
    assert read_times(root.glob("*/config.toml")) == begun, "the runs went on: they were not begun anew"
    done = run_fadas("sweep", "long.toml", "-j", jobs, *options, "--set", "local.lr=0.5", cwd=tmp_path, code=2)
    told = "holds a run with other settings (local.lr was 0.01 and is 0.5); use --out DIR, or delete it\n"
    assert done.stderr.endswith(told)


def run_sweep(folder, *options, code, **environment):
    environment["PYTHONPATH"] = import_path(folder)
    return run_fadas("sweep", "long.toml", *options, cwd=folder, code=code, timeout=300, **environment)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("cat.jpg", "", "exists and is not a run of fadas; use --out DIR"),
        ("config.toml", "[run]\nsteps = 1\n", "holds a run with other settings (run.steps was 1 and is 20000; "),
    ],
)
def test_a_folder_that_cannot_be_used_is_told_before_anything_is_run(name, text, message, tmp_path):
    (tmp_path / "long.toml").write_text(LONG_SWEEP)
    foreign = tmp_path / "o" / "fadas" / "eta=0.003-0"
    foreign.mkdir(parents=True)
    (foreign / name).write_text(text)
    assert run_sweep(tmp_path, "--out", "o", code=2).stderr.startswith(f"fadas: o/fadas/eta=0.003-0 {message}")
    assert [path.name for path in (tmp_path / "o" / "fadas").iterdir()] == ["eta=0.003-0"]


def test_a_mistake_in_one_run_of_a_sweep_ends_the_others_and_is_told(tmp_path):
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
    assert "in run_point" in debug.stderr, "where it happened, in the worker"


def test_a_point_that_another_process_is_at_is_left_for_the_end(tmp_path):
    pytest.importorskip("fcntl")
    (tmp_path / "long.toml").write_text(LONG_SWEEP.replace("20000", "20").replace("500", "5"))
    folder = tmp_path / "runs" / "long-sweep" / "fadas" / "eta=0.001-0"
    with hold_lock(folder):
        left = "1 of 3 runs left out, in use by another process: fadas/eta=0.001-0; wait for it, or use --out DIR"
        assert run_sweep(tmp_path, "-j", "2", code=2).stderr.splitlines()[-1] == f"fadas: {left}"
    assert {path.parent.name for path in folder.parent.glob("*/summary.json")} == {"eta=0.002-0", "eta=0.003-0"}
    assert "3 runs" in run_sweep(tmp_path, code=0).stderr


def test_workers_end_with_a_sweep_that_is_killed_and_the_same_command_goes_on(tmp_path):
    (tmp_path / "long.toml").write_text(LONG_SWEEP)
    command = fadas_command("sweep", "long.toml", "-j", 2)
    root = tmp_path / "runs" / "long-sweep" / "fadas"
    for _ in range(2):
        kill_sweep(command, tmp_path, root)
        assert len(list(root.glob("*/checkpoint-*.ckpt"))) >= 2, "each run keeps what it had"


def test_an_algorithm_that_was_asked_for_needs_a_grid_and_the_file_may_say_how_much_is_held_out(tmp_path):
    text = LONG_SWEEP.replace("20000", "2").replace("[algorithms.fadas]", "[algorithms.fadas]\n[algorithms.ca2fl]")
    (tmp_path / "long.toml").write_text(text)
    error = run_sweep(tmp_path, "--only", "fadas,ca2fl", code=2).stderr
    assert error == "fadas: there is no grid for ca2fl; add a table such as [sweep.ca2fl]\n"
    for options, share in (([], 0.2), (["--set", "task.validation=0.4"], 0.4), (["--validation", "0.3"], 0.3)):
        run_sweep(tmp_path, "--out", f"o{share}", *options, code=0)
        assert read_run(tmp_path / f"o{share}" / "fadas" / "eta=0.001-0").config["task"]["validation"] == share


def test_halving_runs_on_the_best_quarter_and_keeps_no_checkpoint_of_the_rest(tmp_path):
    todo = sweep_points(make_sweep(), ["fedbuff", "fadas"], [1, 2], tmp_path / "halved", 0.2)
    results, most = [], 0
    for result in search_points(todo, 1, HALVING):
        results.append(result)
        most = max(most, len(list(tmp_path.rglob("*.ckpt"))))
    assert most <= 1 + 2 * 2 + 2 * 1, "one of each that may go on, and of the one that was run last"
    assert len(results) == count_runs(todo, HALVING) == 2 * (6 + 2 + 1) + 2 * 3
    ranked = rank_points(list({point.folder: (point, summary) for point, summary in results}.values()))
    assert [row.share for row in ranked] == [1, 1 / 2, 1 / 8, 1 / 8, 1 / 8, 1 / 8, 1]
    assert [row.best for row in ranked] == [True, *[False] * 5, True]
    assert ranked[5].point == {"local.lr": 1e30}
    assert ranked[5].diverged == 2
    assert all(summary["updates"] == 80 * point.share for point, summary in results if "diverged" not in summary)
    best = {row.name: row.score for row in ranked if row.best}

    again = list(search_points(todo, 1, HALVING))
    assert [summary for _, summary in again] == [summary for _, summary in results], "nothing is run again"

    whole = {point.folder: summary for point, summary in search_points(todo, 1, (1.0,))}
    afresh = sweep_points(make_sweep(), ["fedbuff", "fadas"], [1, 2], tmp_path / "whole", 0.2)
    for point, summary in search_points(afresh, 1, (1.0,)):
        halved = tmp_path / "halved" / point.label / point.folder.name
        assert whole[halved].get("accuracy") == summary.get("accuracy")
        assert read_run(halved).records == read_run(point.folder).records, "paused twice or not at all: the same run"
    assert {row.name: row.score for row in rank_points([*search_points(afresh, 1, (1.0,))]) if row.best} == best


def test_halving_needs_an_early_evaluation_and_says_so_before_anything_is_run(tmp_path):
    todo = sweep_points(make_sweep(eval_every=6), ["fedbuff"], [1], tmp_path, 0.2)
    text = r"fedbuff, local\.lr=0\.001: 12\.5% of a run are 5 steps: run\.eval_every must not be 6"
    with pytest.raises(ConfigError, match=text):
        list(search_points(todo, 1, HALVING))
    assert not list(tmp_path.iterdir())
    later = make_sweep()
    later["sweep"]["fedbuff"] = {"run": {"eval_every": [1, 6]}}
    with pytest.raises(ConfigError, match=r"fedbuff, run\.eval_every=6: 12\.5% of a run are 5 steps"):
        list(search_points(sweep_points(later, ["fedbuff"], [1], tmp_path, 0.2), 1, HALVING))
    todo = sweep_points(make_sweep(eval_every=5), ["fedbuff"], [1], tmp_path, 0.2)
    assert all("accuracy" in summary or "diverged" in summary for _, summary in search_points(todo, 1, HALVING))


def outcomes(monkeypatch, tmp_path, last):
    """A search of four points whose runs are made up: the accuracy is the rate, but `last` says who diverges when."""

    def made_up(todo, jobs):
        for point in todo:
            rate = point.point["local.lr"]
            yield point, {"diverged": "why"} if point.share >= last.get(rate, 2) else {"accuracy": rate}

    monkeypatch.setattr(fadas.experiments.halving, "run_points", made_up)
    tables = make_sweep()
    tables["sweep"]["fedbuff"]["local"]["lr"] = [0.1, 0.2, 0.3, 0.4]
    todo = sweep_points(tables, ["fedbuff"], [1], tmp_path, 0.2)
    return [(point.point["local.lr"], point.share, summary) for point, summary in search_points(todo, 1, HALVING)], todo


@pytest.mark.parametrize(
    ("last", "went_on", "best"),
    [
        ({}, [(0.4, 1 / 2), (0.4, 1)], 0.4),
        ({0.4: 1 / 8}, [(0.3, 1 / 2), (0.3, 1)], 0.3),
        ({0.4: 1 / 2}, [(0.4, 1 / 2), (0.3, 1 / 2), (0.3, 1)], 0.3),
        ({0.4: 1 / 2, 0.3: 1 / 2, 0.2: 1 / 2}, [(rate, 1 / 2) for rate in (0.4, 0.3, 0.2, 0.1)] + [(0.1, 1)], 0.1),
        (dict.fromkeys((0.1, 0.2, 0.3, 0.4), 1 / 2), [(rate, 1 / 2) for rate in (0.4, 0.3, 0.2, 0.1)], None),
    ],
)
def test_for_a_point_that_diverges_late_the_next_best_goes_on(monkeypatch, tmp_path, last, went_on, best):
    results, todo = outcomes(monkeypatch, tmp_path, last)
    assert [(rate, share) for rate, share, _ in results[:4]] == [(rate, 1 / 8) for rate in (0.1, 0.2, 0.3, 0.4)]
    assert [(rate, share) for rate, share, _ in results[4:]] == went_on
    final = {rate: (share, summary) for rate, share, summary in results}
    by_rate = {point.point["local.lr"]: point for point in todo}
    ranked = rank_points([(replace(by_rate[rate], share=share), summary) for rate, (share, summary) in final.items()])
    assert [row.point["local.lr"] for row in ranked if row.best] == ([best] if best else [])


def test_halving_keeps_the_checkpoints_of_runs_that_had_got_further(tmp_path):
    todo = sweep_points(make_sweep(), ["fedbuff"], [1], tmp_path, 0.2)
    for point in todo[:4]:
        run_point({}, replace(point, share=0.9))
    before = sorted(tmp_path.rglob("*.ckpt"))
    assert len(before) == 4
    list(search_points(todo, 1, HALVING))
    assert len(set(before) & set(tmp_path.rglob("*.ckpt"))) >= 3, "but for the one that went on to the end"


@pytest.mark.parametrize("rungs", [HALVING, (1.0,)])
def test_a_task_without_accuracy_is_refused_before_anything_is_run(monkeypatch, tmp_path, rungs):
    monkeypatch.setattr(Task, "measured", {"r2": None})
    with pytest.raises(ConfigError, match="the task measures no accuracy"):
        list(search_points(sweep_points(make_sweep(), ["fedbuff"], [1], tmp_path, 0.2), 1, rungs))
    assert not list(tmp_path.iterdir())


def test_a_task_that_holds_nothing_out_cannot_be_swept(tmp_path):
    tables = {**make_sweep(), "task": {"name": "helpers.training:make_plain_task", "clients": 8}}
    with pytest.raises(ConfigError, match="to be swept, a task must take `validation`"):
        sweep_points(tables, ["fedbuff"], [1], tmp_path, 0.2)


def test_the_first_rung_of_a_run_that_another_process_is_at_is_read(tmp_path):
    pytest.importorskip("fcntl")
    todo = sweep_points(make_sweep(), ["fadas"], [1], tmp_path, 0.2)
    first = [result for result in search_points(todo, 1, HALVING) if result[0].share < 1 / 2]
    (todo[0].folder / "summary.json").unlink()
    with hold_lock(todo[0].folder):
        assert list(run_points([point for point, _ in first], 1)) == first
        with pytest.raises(ConfigError, match="1 of 1 runs left out, in use by another process"):
            list(run_points(todo, 1))


def test_a_rung_is_judged_where_it_ended_also_after_a_line_was_torn(tmp_path):
    (point,) = sweep_points(make_sweep(), ["fadas"], [1], tmp_path, 0.2)
    rungs = [replace(point, share=share) for share in (1 / 8, 1 / 2)]
    first = [run_point({}, one) for one in rungs]
    with (point.folder / "metrics.jsonl").open("a") as file:
        file.write('{"step": 21, "upd')
    assert [run_point({}, one) for one in rungs] == first


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_a_paused_run_is_written_interrupts_it(monkeypatch, tmp_path, number):
    (point,) = sweep_points(make_sweep(), ["fadas"], [1], tmp_path, 0.2)

    def take(simulation):
        signal.raise_signal(number)
        return fadas.simulation.snapshot.take(simulation)

    with interruptible(), monkeypatch.context() as patch, pytest.raises(Interrupted):
        patch.setattr(fadas.experiments.run, "take", take)
        run_point({}, replace(point, share=1 / 2))
    assert list(point.folder.glob("checkpoint-*.ckpt"))
    assert run_point({}, replace(point, share=1 / 2))["updates"] == 40, "it is there already"


@pytest.mark.parametrize("share", ["x", 0.0, 1, True, None])
def test_the_held_out_share_is_a_number_between_0_and_1(tmp_path, share):
    with pytest.raises(ConfigError, match="must lie between 0 and 1"):
        sweep_points(make_sweep(), ["fadas"], [1], tmp_path, share)


def test_runs_that_stop_at_their_target_are_not_compared(tmp_path):
    tables = make_sweep(target=0.5, stop_at_target=True)
    with pytest.raises(ConfigError, match=r"a sweep compares whole runs; set run\.stop_at_target=false"):
        sweep_points(tables, ["fadas"], [1], tmp_path, 0.2)
