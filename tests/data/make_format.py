"""Write sample files of the current format: `python tests/data/make_format.py`. Run it once when the format changes.

The samples of earlier formats were written by the fadas of their time and must not be written again.
"""

import os
import shutil
import sys
from contextlib import suppress
from pathlib import Path

DATA = Path(__file__).parent
sys.path[:0] = [str(DATA), str(DATA.parent)]
os.environ |= {"FADAS_ALLOW_CODE": "1", "OMP_NUM_THREADS": "1"}

import pytest
from flwr.app import Array, ArrayRecord

import fadas
from fadas.experiments.experiment_file import read_experiment
from fadas.experiments.prepare import make_plan, make_simulation, make_task
from fadas.experiments.resolve import resolve
from fadas.experiments.run import execute_until
from fadas.paper.results import Result, Search, Tried, read_result, write_result, write_search
from fadas.runs.folder import claim
from fadas.runs.formats import FORMAT
from helpers.flower import INITIAL, ONE, TWO, Node, Nodes, patch_clock, patch_flower

OUT = DATA / f"format-{FORMAT}"
BATCHNORM = ['task={name="bn_task:make_task",clients=4}', "local.batch_size=8"]


def write_run(label: str, name: str, settings=(), pause_at=None) -> None:
    config = resolve(read_experiment(DATA / "small.toml", settings), label, 0)
    task = make_task(config)
    claimed = claim(OUT / name / f"{label}-0", config.tables)
    execute_until(config, make_simulation(config, task, make_plan(config, task)), claimed, pause_at)


def write_deployment() -> None:
    """Two nodes that disconnect after nine seconds, so that the deployment is interrupted."""
    with pytest.MonkeyPatch.context() as patch:
        patch_flower(patch)
        nodes = Nodes(patch_clock(patch), {ONE: Node(spans=((0.0, 9.0),)), TWO: Node(spans=((0.0, 9.0),))})
        strategy = fadas.AsyncStrategy(fadas.FADAS(), fadas.Schedule(2, 2), folder=OUT / "deployment", patience=5.0)
        with suppress(RuntimeError):
            strategy.start(nodes, ArrayRecord({"w": Array(INITIAL)}), num_rounds=12)


def write_paper_files() -> None:
    experiment = "cifar10-mild-dir0.1"
    earlier = read_result(DATA / "format-1" / "results" / experiment / "fadas-1.json")
    write_result(Result(**{**vars(earlier), "format": FORMAT}), OUT / "results")
    points = [{"eta": 0.001, "local.lr": 0.1}, {"eta": 0.003, "local.lr": 0.1}]
    search = Search(
        experiment=experiment,
        method="fadas",
        seed=100,
        changes=["schedule.refill=released"],
        validation=0.1,
        grid=points,
        tried=[Tried(points[0], 0.125, 0.41), Tried(points[1], 0.125, None), Tried(points[0], 1.0, 0.62)],
        complete=True,
        winner=["algorithms.fadas.eta=0.001", "algorithms.fadas.local.lr=0.1"],
        score=0.62,
        config={"name": experiment, "executor": {"name": "auto", "device": "cuda"}},
        device="a GPU",
        versions={"fadas": fadas.__version__, "torch": "2.11", "python": "3.11"},
        commit="abc",
    )
    write_search(search, OUT / "results")


if __name__ == "__main__":
    shutil.rmtree(OUT, ignore_errors=True)
    write_run("fedbuff", "finished")
    write_run("fadas", "interrupted", pause_at=6)
    write_run("fadas", "unbroken")
    write_run("fedasync", "interrupted-batchnorm", BATCHNORM, pause_at=3)
    write_run("fedasync", "unbroken-batchnorm", BATCHNORM)
    write_deployment()
    write_paper_files()
