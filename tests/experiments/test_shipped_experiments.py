"""The experiments of this repository: settings, grids, smoke profiles."""

import json
import math
import tomllib

import pytest

from fadas.algorithms.step_sizes import DelayAdaptive
from fadas.experiments.experiment_file import read_experiment, select_algorithms
from fadas.experiments.prepare import make_plan
from fadas.experiments.resolve import experiment_seeds, resolve
from fadas.experiments.sweeps.points import grid_points, with_point
from fadas.paper.artefacts import Cell
from fadas.paper.results import SEARCH_SEED
from fadas.paper.run_cells import make_config
from fadas.runs.serialization import flatten, to_json, to_toml
from helpers.cli import EXPERIMENT_FILES, run_fadas
from helpers.experiments import resolve_text
from helpers.updates import delayed_step


@pytest.mark.parametrize("path", EXPERIMENT_FILES, ids=lambda path: path.stem)
def test_shipped_experiment_parses_and_plans(path):
    """Methods with the same schedule and length have the same plan, so it is made once."""
    tables = read_experiment(path)
    planned = set()
    for seed in experiment_seeds(tables):
        for label in select_algorithms(tables):
            config = resolve(tables, label, seed)
            asked = (seed, config.schedule, str(config.delays), config.run.steps, config.run.updates, config.run.time)
            if asked not in planned:
                planned.add(asked)
                assert make_plan(config).steps > 0


GRIDS = [path for path in EXPERIMENT_FILES if "\n[sweep." in path.read_text()]


def test_all_but_language_experiments_and_demo_have_grids():
    assert {path.stem for path in EXPERIMENT_FILES} - {path.stem for path in GRIDS} == LANGUAGE | {"demo"}


@pytest.mark.parametrize("path", GRIDS, ids=lambda path: path.stem)
def test_every_point_of_shipped_grids_gives_settings_of_its_own(path):
    tables = read_experiment(path)
    for label, grid in tables["sweep"].items():
        points = grid_points(tables, label)
        assert len(points) == math.prod(len(values) for values in flatten(grid).values()) > 1
        resolved = [resolve(with_point(tables, label, point), label, 0).tables for point in points]
        assert len({to_json(settings) for settings in resolved}) == len(points)
        for point, settings in zip(points, resolved, strict=True):
            set_here = flatten({**settings, **settings["algorithms"][label]})
            assert {key: set_here[key] for key in point} == point


def test_resolved_settings_resolve_to_themselves(tmp_path):
    for path in EXPERIMENT_FILES:
        tables = read_experiment(path)
        for label in select_algorithms(tables):
            config = resolve(tables, label, 5)
            again = resolve_text(tmp_path, to_toml(config.tables), label, seed=5)
            assert again.tables == config.tables
            assert (again.algorithm, again.schedule) == (config.algorithm, config.schedule)
            assert (again.local, again.delays, again.run) == (config.local, config.delays, config.run)


LANGUAGE = {"rte-mild", "mrpc-mild", "sst2-mild"}
PAPER = [path for path in EXPERIMENT_FILES if path.stem not in ("demo", "digits", "names")]


def test_paper_settings_have_experiments():
    vision = {f"{d}-{delay}-dir{a}" for d in ("cifar10", "cifar100") for delay in ("mild", "large") for a in (0.1, 0.3)}
    assert {path.stem for path in PAPER} == vision | LANGUAGE


@pytest.mark.parametrize("path", [path for path in PAPER if "dir0.1" in path.stem], ids=lambda path: path.stem)
def test_grids_hold_every_distinct_threshold_of_paper(path):
    """tau_c is 1, 4, 8 or 10. If no delay exceeds 8, the last two are the same run."""
    plans = [make_plan(make_config(Cell(path.stem, "fadas-da", seed), path.parent)) for seed in (1, 2, 3, SEARCH_SEED)]
    runs = {}
    for tau_c in (1, 4, 8, 10):
        size = DelayAdaptive(eta=1.0, tau_c=tau_c)
        runs.setdefault(tuple(size(delayed_step(taus)) for plan in plans for taus in plan.tau.tolist()), tau_c)
    assert tomllib.loads(path.read_text())["sweep"]["fadas-da"]["tau_c"] == list(runs.values())


@pytest.mark.parametrize("path", PAPER, ids=lambda path: path.stem)
def test_smoke_profile_runs_every_method(path, data, tmp_path):
    """One process runs all methods. The small files are not the published ones, so checksums are not compared."""
    language = path.stem.endswith("-mild") and not path.stem.startswith("cifar")
    if language:
        pytest.importorskip("peft")
    options = ["task.verify=false", "task.limit=200", "run.updates=50"]
    options = [] if language else [part for option in options for part in ("--set", option)]
    done = run_fadas("run", path, "--profile", "smoke", *options, "--out", tmp_path, "--json")
    results = [json.loads(line) for line in done.stdout.splitlines()]
    assert [r["algorithm"] for r in results] == [
        "fadas", "fadas-da", "fedbuff", "fedasync", "fedasync-delta", "ca2fl", "fedavg", "fedams"
    ]  # fmt: skip
    for result in results:
        assert result["metrics"]["loss"] > 0
        assert 1 <= result["step"] <= 75
    kept = "adapter/adapter_model.safetensors" if language else "model.safetensors"
    assert (tmp_path / "fadas-1" / kept).exists()
