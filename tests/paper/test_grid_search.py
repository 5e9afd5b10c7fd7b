"""Cells outside the paper's spread: their grids are searched on validation data and another seed."""

import json
import tomllib
from dataclasses import replace

import pytest

from fadas.errors import ConfigError
from fadas.experiments.experiment_file import as_override, parse_change
from fadas.paper.artefacts import Cell, all_artefacts
from fadas.paper.grid_search import entries_outside_spread, search_grid
from fadas.paper.page import blocks
from fadas.paper.results import (
    SEARCH_SEED,
    Search,
    Tried,
    find_result,
    find_search,
    read_search,
    search_path,
    write_search,
)
from fadas.paper.run_cells import AS_IN_FILE, HowToRun, Places, make_config
from helpers.folders import read_times
from helpers.paper import FADAS_ROW, reproduce, save_result
from helpers.processes import hold_lock

EXPERIMENT = "cifar10-large-dir0.1"


CELL = Cell(EXPERIMENT, "fadas", SEARCH_SEED)


GRID = 21  # runs: 16 points, then the best 4, then the best


@pytest.fixture
def places(small_paper):
    return Places(small_paper / "experiments", small_paper / "results", small_paper / "runs")


def compute_in(precision):
    return HowToRun({}, [f"executor.precision={precision}"], "inline")


def ignore_progress(name, total):
    assert total == GRID
    return lambda done, note, total: None


def test_cells_outside_spread_are_searched_once_and_winner_runs(small_paper, places):
    assert "0 grids searched" in reproduce(small_paper, "large-cifar10", "--only", "fadas", "--tune").output, (
        "nothing is run"
    )
    reproduce(small_paper, "large-cifar10", "--only", "fadas")
    shown = reproduce(small_paper, "large-cifar10", "--only", "fadas", "--tune")
    assert shown.exit_code == 0, shown.output
    assert "2 grids searched" in shown.output
    assert "2 cells run, 0 left" in shown.output
    found = read_search(search_path(CELL, small_paper / "results"))
    assert found.complete
    assert [one.share for one in found.tried] == [1 / 8] * 16 + [1 / 2] * 4 + [1.0]
    best = [one.point for one in sorted(found.tried[:16], key=lambda one: -one.accuracy)[:4]]
    assert all(one.point in best for one in found.tried if one.share == 1 / 2)
    assert found.winner, "the first rates of these networks are far too small"
    tuned = find_result(Cell(EXPERIMENT, "fadas", 1, found.winning_settings), small_paper / "results")
    assert tuned
    assert tuned.config["task"]["validation"] == 0, "the winner is measured on the test set"
    assert tuned.accuracy > find_result(Cell(EXPERIMENT, "fadas", 1), small_paper / "results").accuracy
    before = read_times(small_paper.glob("results/**/*.json"))
    assert "0 cells run" in reproduce(small_paper, "large-cifar10", "--only", "fadas", "--tune").output
    assert read_times(small_paper.glob("results/**/*.json")) == before


def test_search_uses_validation_data_and_other_seed(small_paper, places):
    add_result(places, 0.5)
    search_grid(CELL, places, AS_IN_FILE, ignore_progress)
    configs = [tomllib.loads(path.read_text()) for path in (small_paper / "runs").glob("**/config.toml")]
    assert configs
    assert {config["task"]["validation"] for config in configs} == {0.1}
    assert all(config["run"]["seeds"] == [SEARCH_SEED] for config in configs)


def test_interrupted_search_resumes_without_its_runs(small_paper, places):
    def interrupt(name, total):
        def report(done, note, total):
            if done == 18:
                raise KeyboardInterrupt

        return report

    with pytest.raises(KeyboardInterrupt):
        search_grid(CELL, places, AS_IN_FILE, interrupt)
    path = search_path(CELL, places.results)
    begun = read_search(path)
    assert (len(begun.tried), begun.complete, begun.winner) == (18, False, None)
    (small_paper / "runs").rename(small_paper / "gone")
    whole = search_grid(CELL, places, AS_IN_FILE, ignore_progress)
    assert whole.tried[:18] == begun.tried
    assert len(whole.tried) == GRID
    path.unlink()
    again = search_grid(CELL, places, AS_IN_FILE, ignore_progress)
    assert (again.tried, again.winner) == (whole.tried, whole.winner)


def test_search_drops_checkpoints_of_lost_points(small_paper, places):
    most = 0

    def count_checkpoints(name, total):
        def report(done, note, total):
            nonlocal most
            most = max(most, len(list((small_paper / "runs").glob("**/*.ckpt"))))

        return report

    search_grid(CELL, places, AS_IN_FILE, count_checkpoints)
    assert most == 5, "the best quarter so far and the last run"
    assert len(list((small_paper / "runs").glob("**/summary.json"))) == 1


def test_locked_search_is_refused(small_paper, places):
    folder = places.work / EXPERIMENT / "searches" / CELL.name
    pytest.importorskip("fcntl")
    with hold_lock(folder), pytest.raises(ConfigError, match="in use by another process"):
        search_grid(CELL, places, AS_IN_FILE, ignore_progress)


def find_cells(places, *names, methods=("fadas", "ca2fl", "fedbuff")):
    return [entry.cell for entry in entries_outside_spread([all_artefacts()[name] for name in names], methods, places)]


def test_only_entries_outside_spread_of_method_tables_are_searched(places):
    add_result(places, 0.72)  # the paper: 72.0 ± 0.94
    add_result(places, 0.72, method="ca2fl")  # not in the paper
    assert find_cells(places, "large-cifar10") == []
    add_result(places, 0.80)
    assert find_cells(places, "large-cifar10") == [CELL], "better results are outside too"
    assert find_cells(places, "large-cifar10", methods=["fedbuff"]) == []
    assert find_cells(places, "large-cifar10-seeds") == [], "only one of three seeds has a result"
    for name in ("time", "fedasync", "differences", "ablation-tau-c"):
        with pytest.raises(ConfigError, match=f"{name} cannot be tuned: only tables of methods"):
            find_cells(places, name)


def test_other_settings_are_refused_and_other_methods_ignored(small_paper, places):
    add_result(places, 0.6)
    Cell(EXPERIMENT, "fedbuff", 1).path(places.results).write_text("{")
    assert find_cells(places, "large-cifar10", methods=["fadas"]) == [CELL]
    change_experiment(places, "epochs = 2", "epochs = 1")
    with pytest.raises(ConfigError, match=r"fadas-1\.json has other settings"):
        find_cells(places, "large-cifar10", methods=["fadas"])


def test_winner_of_other_table_is_not_run_within_spread(small_paper, places):
    for seed, accuracy in enumerate((0.675, 0.700, 0.740), 1):  # the paper: 70.57 ± 2.04
        add_result(places, accuracy, seed=seed)
    assert "1 cells run" in reproduce(small_paper, "large-cifar10", "--only", "fadas", "--tune").output
    shown = reproduce(small_paper, "large-cifar10-seeds", "--only", "fadas", "--tune").output
    assert "0 grids searched" in shown
    assert "0 cells run" in shown
    tables = [block for block in blocks(places.results) if "tuned" in block.head]
    assert len(tables) == 1, "the three seeds need no tuning"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("epochs = 2", "epochs = 1"),
        ("local.lr = [0.003, 0.01, 0.03, 0.1]", "local.lr = [0.003, 0.01, 0.03]"),
    ],
)
@pytest.mark.parametrize("complete", [True, False])
def test_search_of_other_settings_or_grid_is_refused(places, old, new, complete):
    search_grid(CELL, places, AS_IN_FILE, ignore_progress)
    path = search_path(CELL, places.results)
    if not complete:
        write_search(replace(read_search(path), complete=False, winner=None, score=None), places.results)
    change_experiment(places, old, new)
    with pytest.raises(ConfigError, match=r"searches/fadas-100\.json has other settings"):
        search_grid(CELL, places, AS_IN_FILE, ignore_progress)


def test_search_has_one_precision(places):
    search_grid(CELL, places, compute_in("fp32"), ignore_progress)
    assert search_grid(CELL, places, compute_in("bf16"), ignore_progress).complete, "there is nothing to run"
    path = search_path(CELL, places.results)
    write_search(replace(read_search(path), complete=False, winner=None, score=None), places.results)
    with pytest.raises(ConfigError, match="other settings"):
        search_grid(CELL, places, compute_in("bf16"), ignore_progress)


def test_missing_device_is_refused(places):
    with pytest.raises(ConfigError, match=r"executor\.device: 'cuda:77' cannot be used"):
        search_grid(CELL, places, HowToRun({"executor.device": "cuda:77"}), ignore_progress)


@pytest.mark.parametrize("axis", ["optimizer.bias_correction = [true, false]", 'staleness = ["polynomial", "hinge"]'])
def test_values_of_every_type_survive_as_settings(places, axis):
    method = "fadas" if "bias" in axis else "fedasync"
    path = places.experiments / f"{EXPERIMENT}.toml"
    text = path.read_text()
    head, _, rest = text.partition(f"[sweep.{method}]\n")
    kept = 'optimizer.name = ["amsgrad"]\neta = [0.01]\n' if method == "fadas" else ""
    path.write_text(f"{head}[sweep.{method}]\n{kept}{axis}\n\n[sweep.{rest.partition('[sweep.')[2]}")
    found = search_grid(Cell(EXPERIMENT, method, SEARCH_SEED), places, AS_IN_FILE, lambda *told: lambda *told: None)
    assert found.complete
    for name in ("true", "1", "0.5", "[1]", "constant", "a b", '"x"', ""):
        assert parse_change(as_override("k", name)) == ("k", name)
    for value in (True, False, 1, 0.1, 1e-5, [1, 2], {"a": 1}):
        assert parse_change(as_override("k", value)) == ("k", value)


def test_winner_with_published_settings_is_published_cell(places):
    change_experiment(places, "eta = [0.0001, 0.0003, 0.001, 0.003]", "eta = [0.0001]")
    change_experiment(places, "local.lr = [0.003, 0.01, 0.03, 0.1]", "local.lr = [0.1]")
    found = search_grid(CELL, places, AS_IN_FILE, lambda name, total: lambda *told: None)
    assert (found.complete, found.winner) == (True, [])


def test_page_shows_tuned_and_untuned_numbers(places):
    add_result(places, 0.6)
    search_grid(CELL, places, AS_IN_FILE, ignore_progress)
    found = find_search(FADAS_ROW, EXPERIMENT, places.results)

    def find_table():
        return next(block for block in blocks(places.results) if "tuned" in block.head)

    names = ", ".join(one.removeprefix("algorithms.fadas.").removeprefix("local.") for one in found.winner)
    line = ("FADAS", "Dir(0.1)", "72.00 ± 0.94", "60.0 ± 1.0 ▼", names, f"{100 * found.score:.1f}")
    assert find_table().rows == ((*line, "not run ·"),)
    add_result(places, 0.715, changes=found.winning_settings)
    assert find_table().rows == ((*line, "71.5 ± 1.0 ="),)
    page = list(blocks(places.results))
    sentence = f"FADAS, Dir(0.1): {names} brings 71.5 ± 1.0 instead of 60.0 ± 1.0, which agrees with the paper."
    assert sentence in [block.text for block in page if block.text.startswith("FADAS")]
    assert not any("other settings" in block.text for block in page), "it must stand in one place"
    assert any(block.text.startswith("Results: 2, on") for block in page)
    write_search(replace(found, complete=False, winner=None, score=None), places.results)
    assert find_table().rows[0][4:] == ("not searched to the end (21 runs)", "-", "-")


@pytest.mark.parametrize(
    "changes",
    [
        {"tried": [1]},
        {"tried": [[1, 1.0, 0.5]]},
        {"tried": [[{}, None, 0.5]]},
        {"seed": 1},
        {"validation": None},
        {"winner": "abc"},
        {"winner": ["abc"]},
        {"winner": [1]},
        {"config": None},
        {"commit": None},
        {"complete": "no"},
        {"complete": False},
        {"score": None},
        {"grid": [1]},
    ],
    ids=str,
)
def test_damaged_search_is_named(places, changes):
    path = search_path(CELL, places.results)
    settings = EXPERIMENT, "fadas", SEARCH_SEED, [], 0.1, [{"a": 1}]
    good = Search(*settings, [Tried({"a": 1}, 1.0, 0.5)], True, ["a=1"], 0.5, {}, "", {}, "")
    write_search(good, places.results)
    assert read_search(path) == good
    kept = json.loads(path.read_text())
    path.write_text(json.dumps({**kept, "more": 1}))
    assert read_search(path) == good, "an unknown key is ignored"
    path.write_text(json.dumps({**kept, **changes}))
    with pytest.raises(ConfigError, match=r"fadas-100\.json is not a search of fadas"):
        list(blocks(places.results))


def change_experiment(places, old, new):
    """Replace a text in the experiment's file."""
    path = places.experiments / f"{EXPERIMENT}.toml"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))


def add_result(places, accuracy, method="fadas", changes=None, seed=1):
    """Write the result of a cell."""
    cell = Cell(EXPERIMENT, method, seed, changes or {})
    config = make_config(cell, places.experiments).tables
    save_result(places.results, cell, accuracy=accuracy, accuracy_std=0.01, config=config)
