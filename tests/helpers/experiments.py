"""Experiment files and tables that several tests start from."""

from pathlib import Path

from fadas.experiments.experiment_file import read_experiment
from fadas.experiments.prepare import (
    make_plan as prepare_plan,
    make_simulation as prepare_simulation,
    make_task as prepare_task,
)
from fadas.experiments.resolve import resolve
from fadas.experiments.run import execute
from fadas.runs.folder import claim
from helpers.cli import DEMO

BASE = """
[task]
name = "digits"
clients = 12
[schedule]
concurrency = 6
buffer = 3
[delays]
name = "mild"
[run]
steps = 4
[algorithms.fadas]
"""

# A sweep that nobody waits for: tests interrupt it.
LONG_SWEEP = """
[task]
name = "digits"
clients = 12
[schedule]
concurrency = 6
buffer = 2
[delays]
name = "mild"
shares = [0.5, 0.25, 0.25]
[run]
steps = 20000
eval_every = 500
[algorithms.fadas]
[sweep.fadas]
eta = [0.001, 0.002, 0.003]
"""


def write_experiment(folder: Path, text: str = BASE) -> Path:
    path = folder / "experiment.toml"
    path.write_text(text)
    return path


def resolve_text(folder: Path, text: str = BASE, label="fadas", overrides=(), seed=0):
    """What an experiment file of this text resolves to, for one algorithm."""
    return resolve(read_experiment(write_experiment(folder, text), overrides), label, seed)


def prepare_run(lr: float, checkpoint_every=0, updates=20):
    """The settings of a short run on digits, and its simulation."""
    small = [f"run.updates={updates}", f"run.checkpoint_every={checkpoint_every}", "executor.name='inline'"]
    small.append(f"algorithms.fadas.local.lr={lr}")
    config = resolve(read_experiment(DEMO, small), "fadas", 1)
    task = prepare_task(config)
    return config, prepare_simulation(config, task, prepare_plan(config, task))


def execute_in(folder: Path, config, simulation, mode="new", **receivers):
    """Claim a folder and run a simulation there."""
    return execute(config, simulation, claim(folder, config.tables, mode), **receivers)


def make_sweep(**run) -> dict:
    """The tables of a sweep on digits: two algorithms with grids of six and one points."""
    return {
        "name": "short",
        "task": {"name": "digits", "clients": 12},
        "schedule": {"concurrency": 6, "buffer": 2},
        "run": {"steps": 40, "eval_every": 1, **run},
        "algorithms": {"fedbuff": {}, "fadas": {}},
        "sweep": {"fedbuff": {"local": {"lr": [0.001, 0.01, 0.03, 0.1, 0.3, 1e30]}}, "fadas": {"eta": [0.01]}},
    }
