"""Ctrl-C and SIGTERM before a run trains, and between runs: one line, no traceback, nothing left."""

import re
import shutil
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from helpers.cli import ROOT, call_fadas, fadas_command, import_path, run_fadas, start_fadas
from helpers.experiments import BASE, LONG_SWEEP
from helpers.processes import catches_sigterm, count_children, has_loaded, interrupt_when, session_of, wait_until

SIGNALS = [signal.SIGINT, signal.SIGTERM]
AGAIN = "run the command again"
RESUME = "run the same command with --resume to continue"

# A task, delays and a network that write a file and then take long.
SLOW = """
import time
from pathlib import Path
import torch
from fadas.simulation.delays import Uniform
from fadas.tasks import TASKS

def wait(name):
    Path("../written").write_text(name)
    Path("../written").rename("../reached")
    end = time.monotonic() + 120
    while time.monotonic() < end:
        time.sleep(0.01)

def task(clients, seed=0):
    wait("task")

class Delays:
    def bind(self, clients, rng):
        wait("plan")

class Network(torch.nn.Linear):
    def forward(self, x):
        wait("preflight")

def task_of_slow_network(clients, seed=0):
    made = TASKS["digits"](clients, seed=seed)
    made.module = lambda seed=0: Network(64, 10)
    return made
"""
SETTINGS = {
    "task": ["--set", "task={name='slow:task',clients=12}"],
    "plan": ["--set", "delays={name='slow:Delays'}"],
    "preflight": ["--set", "task={name='slow:task_of_slow_network',clients=12}"],
}


@pytest.fixture
def folder(tmp_path) -> Path:
    """The current folder of a command, with experiments. What else is there in the end was left behind."""
    made = tmp_path / "here"
    made.mkdir()
    (made / "x.toml").write_text(BASE.replace('"mild"', '"mild"\nshares = [0.5, 0.25, 0.25]'))
    (made / "sweep.toml").write_text(LONG_SWEEP)
    shutil.copytree(ROOT / "tests" / "data" / "format-2" / "finished", made / "finished")
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "slow.py").write_text(SLOW)
    return made


def interrupt(condition, folder, number, *arguments, fresh=False) -> str:
    """Interrupt a command that is not training. Return what it says to do."""
    before = sorted(folder.rglob("*"))
    process = start_fadas(*arguments, cwd=folder, fresh=fresh, PYTHONPATH=import_path(folder.parent / "code"))
    code, text = interrupt_when(condition, process, number, pause=0.001)
    assert code == 128 + number, text
    (line,) = text.splitlines()
    assert sorted(folder.rglob("*")) == before
    return line.removeprefix("fadas: interrupted; ")


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize(
    "arguments", [["run", "x.toml"], ["sweep", "sweep.toml"], ["reproduce", "list"]], ids=lambda words: words[0]
)
def test_signal_at_first_import_ends_with_one_line(folder, number, arguments):
    assert interrupt(catches_sigterm, folder, number, *arguments, fresh=True) == AGAIN


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize(
    "arguments",
    [["run", "x.toml"], ["plan", "x.toml"], ["sweep", "sweep.toml"], ["bench", "cpu"]],
    ids=lambda words: words[0],
)
def test_signal_while_torch_loads_ends_with_one_line(folder, number, arguments):
    assert interrupt(lambda pid: has_loaded(pid, "libtorch_cpu"), folder, number, *arguments, fresh=True) == AGAIN


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("moment", SETTINGS)
def test_signal_in_user_code_before_run_ends_with_one_line(folder, number, moment):
    reached = folder.parent / "reached"
    told = interrupt(lambda pid: reached.exists(), folder, number, "run", "x.toml", "--allow-code", *SETTINGS[moment])
    assert told == RESUME
    assert reached.read_text() == moment


@pytest.mark.parametrize("number", SIGNALS)
def test_signal_while_plan_is_made_ends_with_one_line(folder, number):
    reached = folder.parent / "reached"
    assert (
        interrupt(lambda pid: reached.exists(), folder, number, "plan", "x.toml", "--allow-code", *SETTINGS["plan"])
        == AGAIN
    )


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("children", [1, 2, 3])
def test_signal_while_sweep_starts_workers_ends_them(folder, number, children):
    """The first child is multiprocessing's own tracker, the others are workers."""
    told = interrupt(lambda pid: count_children(pid) >= children, folder, number, "sweep", "sweep.toml", "-j", 2)
    assert told == "run the same command to continue"


@pytest.mark.forks
@pytest.mark.parametrize("number", SIGNALS)
def test_signal_while_run_starts_workers_leaves_checkpoint(folder, number):
    arguments = ["run", "x.toml", "--executor", "processes", "--set", "run.steps=400", "--set", "executor.workers=3"]
    condition = lambda pid: count_children(pid) > 0  # noqa: E731
    code, text = interrupt_when(condition, start_fadas(*arguments, cwd=folder), number, pause=0.001)
    assert code == 130
    assert re.fullmatch(rf"fadas: interrupted after step \d+, kept in runs/x/fadas-0; {RESUME}\n", text)
    assert "continued after step" in run_fadas(*arguments, "--resume", cwd=folder).stderr


@pytest.mark.parametrize("number", SIGNALS)
def test_signal_while_report_is_drawn_ends_with_one_line(folder, number):
    condition = lambda pid: has_loaded(pid, "ft2font")  # noqa: E731
    assert interrupt(condition, folder, number, "report", "finished", fresh=True) == AGAIN


def test_interrupted_watch_says_that_runs_go_on(tmp_path, monkeypatch):
    def interrupt(seconds):
        raise KeyboardInterrupt

    monkeypatch.setattr("fadas.cli.terminal.time.sleep", interrupt)
    code, _, told = call_fadas("watch", tmp_path)
    assert (code, told) == (130, "fadas: interrupted; the runs continue\n")


def test_ignored_signal_stays_ignored(folder):
    """As under nohup, or in the background of a script."""
    command, ignore = (
        fadas_command("run", "x.toml", "--no-report"),
        partial(signal.signal, signal.SIGINT, signal.SIG_IGN),
    )
    with session_of(subprocess.Popen(command, cwd=folder, start_new_session=True, preexec_fn=ignore)) as process:
        wait_until(lambda: catches_sigterm(process.pid), process=process, pause=0.001)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=120) == 0


IN_DESTRUCTOR = """
import os, signal, time
from fadas.cli import signals
signals.install()
signals.require_cleanup()
class Thing:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.1)
try:
    Thing()
    time.sleep(60)
except KeyboardInterrupt:
    print("interrupted", signals.exit_code())
"""


def test_signal_in_destructor_is_not_lost():
    done = subprocess.run([sys.executable, "-c", IN_DESTRUCTOR], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("interrupted 143\n", "")


def test_interrupted_deploy_init_leaves_no_folder(tmp_path, monkeypatch):
    pytest.importorskip("flwr")
    write, written = Path.write_text, []

    def write_two(path, *arguments, **options):
        if len(written) == 2:
            raise KeyboardInterrupt
        written.append(path)
        return write(path, *arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_text", write_two)
        code, _, told = call_fadas("deploy", "init", tmp_path / "app")
    assert (code, told) == (130, f"fadas: interrupted; {AGAIN}\n")
    assert len(written) == 2
    assert not list(tmp_path.iterdir())
