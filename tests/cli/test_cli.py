"""The command line as a user types it: a process, its output, its exit code."""

import subprocess
import sys

import pytest

from helpers.cli import DEMO, call_fadas, run_fadas


def test_help_shows_examples_without_heavy_imports():
    text = run_fadas("--help").stdout
    for command in ("run", "plan", "sweep", "report", "watch", "reproduce", "list", "bench"):
        assert command in text
        assert "Example" in run_fadas(command, "--help").stdout
    # the command's text has them, because some versions of typer and click do not show the help of arguments
    for command, words in {"bench": ("cpu|gpu|ray|plan",), "reproduce": ("list    List", "report  Render")}.items():
        assert all(word in run_fadas(command, "--help").stdout for word in words)
    assert "cifar10|cifar100" in run_fadas("data", "get", "--help").stdout
    heavy = "import sys, fadas.cli; print([m for m in ('torch', 'numpy', 'matplotlib', 'sklearn') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", heavy], capture_output=True, text=True).stdout == "[]\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "nowhere.toml"], "cannot read nowhere.toml: No such file"),
        (["run", DEMO, "--only", "fadaz"], "unknown algorithm 'fadaz'; did you mean 'fadas'?"),
        (["run", DEMO, "--set", "run.stepz=1"], "did you mean 'run.steps'?"),
        (["run", DEMO, "--set", "run.steps=many"], "must be a whole number"),
        (["run", DEMO, "--set", "schedule.concurrency=51"], "exceeds the number of clients"),
        (["run", DEMO, "--only", "fadas", "--set", "schedule.buffer=26", "--set", "schedule.refill=round"], "exceeds"),
        (["run", DEMO, "--set", "algorithms.fadas.eta=-1"], "must be a positive number"),
        (
            ["run", DEMO, "--set", "local.lr=-1", "--only", "fadas", "--set", "algorithms.fadas.local={}"],
            "positive number",
        ),
        (
            ["run", DEMO, "--set", "task.clients=2000"],
            "clients must be at most the number of training examples (1438), got 2000",
        ),
        (
            ["run", DEMO, "--set", "delays.name=table", "--set", "delays.path=no.csv"],
            "cannot read the delay table no.csv",
        ),
        (["run", DEMO, "--executor", "magic"], "unknown executor 'magic'"),
        (["run", DEMO, "--device", "abacus"], "executor.device: 'abacus' cannot be used"),
        (["run", DEMO, "--device", "cuda:77"], "executor.device"),
        (["run", DEMO, "--device", "meta"], "executor.device"),
        (["run", DEMO, "--set", "local.lr=1e308"], "cannot be trained"),
        (["run", DEMO, "--only", ","], "unknown algorithm ''"),
        (["run", DEMO, "--sed", "1"], "No such option"),
        (["run", DEMO, "--set", "task.validation=1e-9"], "validation (1e-09) of 1438 examples leaves one side empty"),
        (["run", DEMO, "--set", "delays={name='pareto', shape=0.0001}"], "these parameters give infinite durations"),
        (["run", DEMO, "--executor", "inline", "--set", "executor.name=batched"], "contradict each other"),
        (
            ["run", DEMO, "--executor", "processes", "--set", "executor.workers=100000"],
            "workers must be at most 1,000 (each is a process with a model of its own), got 100,000",
        ),
        (
            ["run", DEMO, "--set", "delays={name='uniform', low=1e150, high=2e150}"],
            "a duration must be positive and end before time 1e+100",
        ),
        (
            ["run", DEMO, "--set", "task.name=os:environ"],
            "task 'os:environ' must be a class or a function, got _Environ",
        ),
        (["run", DEMO, "--set", "task.name=builtins:int"], "cannot be used here"),
        (["run", DEMO, "--out", "/dev/null/x"], "/dev/null exists and is not a folder"),
        (["sweep", DEMO, "--validation", "0"], "between 0 and 1"),
        (["run", DEMO, "--profile", "smoky"], "digits.toml has no profiles"),
        (["run", DEMO, "--seed", "-1"], "seeds must be"),
        (["run", DEMO, "--set", "delays.deadline=0.5"], "no update arrived"),
        (["plan", DEMO, "--set", "run.time=0.1"], "time limit"),
        (["report", "nowhere"], "nowhere does not exist; give the folder of an experiment"),
        (["bench", "toast"], "unknown benchmark 'toast'"),
        (["deploy", "init", "app", "--task", "digitz"], "unknown task 'digitz'; did you mean 'digits'?"),
        (["deploy", "init", "app", "--task", "files"], "unknown task 'files'; known: cifar10, "),
        (["deploy", "init", "app", "--task", "mine:task"], "cannot read mine.py in the current folder: "),
        (["run", DEMO, "--executor", "cuda"], "the cuda executor needs a CUDA device"),
        (["sweep", DEMO, "--validation", "7"], "held-out share"),
        (["run", DEMO, "--set", "sweep.fedbuf.eta=[1]"], "unknown algorithm 'fedbuf'; did you mean 'fedbuff'?"),
    ],
)
def test_bad_input_gives_one_line_and_exit_code_2(tmp_path, monkeypatch, arguments, message):
    if arguments[0] == "deploy":
        pytest.importorskip("flwr")
    monkeypatch.chdir(tmp_path)
    code, output, said = call_fadas(*arguments)
    assert code == 2
    assert message in said
    assert said.startswith("fadas: ")
    assert len(said.splitlines()) == 1
    assert output == ""
    assert not [path for path in tmp_path.rglob("*") if path.is_file()], "nothing may be left behind"


def test_debug_shows_traceback_for_every_command(monkeypatch):
    monkeypatch.setenv("FADAS_DEBUG", "1")
    for command in ("run", "plan", "sweep", "report"):
        code, _, text = call_fadas(command, "nowhere.toml")
        assert code == 2
        assert text.startswith("Traceback")
        assert text.splitlines()[-1].startswith("fadas: ")


def test_usage_error_exits_with_2(tmp_path):
    for arguments in (["run"], ["fly"], ["sweep", DEMO, "-j", "0"], ["run", DEMO, "--seed", "abc"]):
        code, _, text = call_fadas(*arguments)
        assert (code, len(text.splitlines())) == (2, 1)
