"""Run fadas as a user does: in a process, or in this one."""

import contextlib
import io
import os
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest

from helpers.forks import Fork, run_in_fork
from helpers.processes import restore_interrupt

ROOT = Path(__file__).parents[2]
EXPERIMENTS = ROOT / "experiments"
EXPERIMENT_FILES = sorted(EXPERIMENTS.glob("*.toml"))
DEMO = EXPERIMENTS / "digits.toml"  # what most tests run: small data, ready at once
AT_START = ("PYTHONIOENCODING", "PYTHONUTF8", "LC_ALL", "OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES")
SMALL = ["--set", "run.updates=50", "--set", "run.eval_every=2", "--seed", "7"]
# With five clients at a time, a run ends after 201 refused updates.
DIVERGING = ["--set", "algorithms.fedbuff.local.lr=1e4", "--set", "run.updates=300", "--set", "schedule.concurrency=5"]

# The command line, but the run waits before a given step until it is interrupted or killed.
PAUSED = """
import sys, time
from fadas.cli import main
from fadas.simulation.simulator import Simulation
step, play = int(sys.argv.pop(1)), Simulation._play
def wait(self):
    for record in play(self):
        while record.step == step and not self.stopped:
            time.sleep(0.01)
        yield record
Simulation._play = wait
main()
"""


def fadas_command(*arguments) -> list[str]:
    """The command as a list. -P keeps the current folder off the import path, as for the installed script."""
    return [sys.executable, "-P", "-m", "fadas.cli", *map(str, arguments)]


def start_fadas(*arguments, cwd=None, fresh=False, **environment) -> Fork | subprocess.Popen:
    """Start a command in a session of its own. `communicate` returns its error output.

    It is a fork, unless it is to be `fresh`: then it imports everything itself.
    """
    environment = {**os.environ, **environment}
    if not fresh:
        return Fork(arguments, cwd=cwd, environment=environment, session=True)
    return subprocess.Popen(
        fadas_command(*arguments),
        cwd=cwd,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=restore_interrupt,
    )


def start_paused(step: int, *arguments) -> Fork:
    """Start a command that stops before a step, so its run is still going whenever a test looks."""
    return Fork([step, *arguments], code=PAUSED, session=True)


def run_fadas(*arguments, cwd=None, code=0, fresh=False, **environment) -> subprocess.CompletedProcess:
    """Run a command in a process and check its exit code.

    The process is a fork of one that has imported torch and fadas, unless it is to be `fresh`, or the environment
    differs in what Python reads when it starts. What PYTHONPATH adds is found in forks, too.
    """
    environment = {**os.environ, **environment}
    if fresh or any(environment.get(name) != os.environ.get(name) for name in AT_START):
        done = subprocess.run(fadas_command(*arguments), cwd=cwd, capture_output=True, text=True, env=environment)
    else:
        done = run_in_fork(arguments, cwd=cwd, environment=environment)
    assert done.returncode == code, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


def call_fadas(*arguments) -> tuple[int, str, str]:
    """Run a command in this process. Return its exit code, output and error output."""
    from fadas.cli import main

    out, err, path = io.StringIO(), io.StringIO(), list(sys.path)
    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        mock.patch("signal.signal"),
        mock.patch.object(sys, "unraisablehook", sys.unraisablehook),
        mock.patch.object(sys, "argv", ["fadas", *map(str, arguments)]),
        pytest.raises(SystemExit) as end,
    ):
        main()
    sys.path[:] = path
    return end.value.code or 0, out.getvalue(), err.getvalue()


def import_path(*folders) -> str:
    """A PYTHONPATH with these folders before everything that this process imports from."""
    return os.pathsep.join([*map(str, folders), *sys.path])
