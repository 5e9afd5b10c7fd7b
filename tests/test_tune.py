"""Cells outside the paper's spread: their grids are searched on held-out data and another seed, once, and shown."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fadas import lock
from fadas.build import ConfigError
from fadas.cli import app
from fadas.report.artefacts import Cell, artefacts, load
from fadas.report.reproduction import blocks
from fadas.report.searches import SEED, Search, find, path_of, read
from fadas.reproduce import Places, keep
from fadas.tune import outside, search

ROOT = Path(__file__).parents[1]
TABLE = artefacts()["large-cifar10"]
FADAS = next(row for row in TABLE.rows if row.method == "fadas")
EXPERIMENT = "cifar10-large-dir0.1"
CELL = Cell(EXPERIMENT, "fadas", SEED)
GRID = 21  # runs: 16 points, the best 4 of them, the best of these


@pytest.fixture
def small(tmp_path):
    """The paper's large CIFAR-10 experiments under their own names, but on digits and short."""
    folder = tmp_path / "experiments"
    folder.mkdir()
    for path in ROOT.glob("experiments/cifar10-large-*.toml"):
        text = path.read_text().replace('name = "cifar10"', 'name = "digits"').replace('model = "resnet18"\n', "")
        (folder / path.name).write_text(text.replace("updates = 2500", "updates = 80"))
    return tmp_path


@pytest.fixture
def places(small):
    return Places(small / "experiments", small / "results", small / "runs")


def reproduce(where, *words):
    folders = ["--experiments", where / "experiments", "--results", where / "results", "--work", where / "runs"]
    return CliRunner().invoke(app, ["reproduce", *map(str, (*words, *folders, "--page", where / "page.md"))])


def quiet(name, total):
    assert total == GRID
    return lambda done, note: None


def test_what_falls_outside_is_searched_once_and_the_best_point_runs(small, places):
    assert "0 grids searched" in reproduce(small, "large-cifar10", "--only", "fadas", "--tune").output, "nothing is run"
    reproduce(small, "large-cifar10", "--only", "fadas")
    shown = reproduce(small, "large-cifar10", "--only", "fadas", "--tune")
    assert shown.exit_code == 0, shown.output
    assert "2 grids searched" in shown.output
    assert "2 cells run, 0 left" in shown.output
    found = read(path_of(CELL, small / "results"))
    assert found.complete
    assert [share for _, share, _ in found.tried] == [1 / 8] * 16 + [1 / 2] * 4 + [1.0]
    best = sorted(found.tried[:16], key=lambda one: -one[2])[:4]
    assert {tuple(point) for point, _, _ in best} == {tuple(point) for point, share, _ in found.tried if share == 1 / 2}
    assert found.winner, "the first rates of these networks are far too small"
    tuned = load(Cell(EXPERIMENT, "fadas", 1, tuple(found.winner)), small / "results")
    assert tuned
    assert tuned.config["task"]["validation"] == 0, "the winner is measured on the test set"
    assert tuned.accuracy > load(Cell(EXPERIMENT, "fadas", 1), small / "results").accuracy
    before = {path: path.stat().st_mtime_ns for path in small.glob("results/**/*.json")}
    assert "0 cells run" in reproduce(small, "large-cifar10", "--only", "fadas", "--tune").output
    assert {path: path.stat().st_mtime_ns for path in small.glob("results/**/*.json")} == before


def test_points_see_neither_the_test_set_nor_a_reported_seed(small, places):
    result(places.results, 0.5)
    search(CELL, places, [], None, quiet)
    configs = [path.read_text() for path in (small / "runs").glob("**/config.toml")]
    assert configs
    assert all("validation = 0.1\n" in text and f"seeds = [{SEED}]" in text for text in configs)


def test_an_interrupted_search_goes_on_although_its_runs_are_gone(small, places):
    def interrupt(name, total):
        def tell(done, note):
            if done == 18:
                raise KeyboardInterrupt

        return tell

    with pytest.raises(KeyboardInterrupt):
        search(CELL, places, [], None, interrupt)
    path = path_of(CELL, places.results)
    begun = read(path)
    assert (len(begun.tried), begun.complete, begun.winner) == (18, False, None)
    (small / "runs").rename(small / "gone")
    whole = search(CELL, places, [], None, quiet)
    assert whole.tried[:18] == begun.tried
    assert len(whole.tried) == GRID
    path.unlink()
    again = search(CELL, places, [], None, quiet)
    assert (again.tried, again.winner) == (whole.tried, whole.winner)


def test_runs_that_cannot_win_any_more_are_deleted(small, places):
    most = 0

    def count(name, total):
        def tell(done, note):
            nonlocal most
            most = max(most, len(list((small / "runs").glob("**/metrics.jsonl"))))

        return tell

    search(CELL, places, [], None, count)
    assert most == 5, "the best quarter so far, and the last one"
    assert len(list((small / "runs").glob("**/summary.json"))) == 1


def test_a_search_of_other_settings_is_refused(small, places):
    search(CELL, places, [], None, quiet)
    experiment = small / "experiments" / f"{EXPERIMENT}.toml"
    experiment.write_text(experiment.read_text().replace("epochs = 2", "epochs = 1"))
    with pytest.raises(ConfigError, match=r"searches/fadas-100\.json has other settings"):
        search(CELL, places, [], None, quiet)


def test_a_search_that_another_process_is_at_is_left_to_it(small, places):
    folder = places.work / EXPERIMENT / "searches" / CELL.name
    folder.mkdir(parents=True)
    fcntl = pytest.importorskip("fcntl")
    with (folder / lock.NAME).open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(ConfigError, match="in use by another process"):
            search(CELL, places, [], None, quiet)


def test_only_tables_and_what_is_outside_the_spread(places):
    methods = {"fadas", "ca2fl"}
    result(places.results, 0.72)  # the paper: 72.0 ± 0.94
    result(places.results, 0.72, method="ca2fl")  # not in the paper
    assert outside([TABLE], methods, places) == []
    result(places.results, 0.80)
    assert outside([TABLE], methods, places) == [CELL], "better is outside, too"
    with pytest.raises(ConfigError, match="is no table of accuracies"):
        outside([artefacts()["time"]], methods, places)


def test_a_winner_with_the_published_settings_is_the_published_cell(places):
    experiment = places.experiments / f"{EXPERIMENT}.toml"
    text = experiment.read_text().replace("eta = [0.0001, 0.0003, 0.001, 0.003]", "eta = [0.0001]")
    experiment.write_text(text.replace("local.lr = [0.003, 0.01, 0.03, 0.1]", "local.lr = [0.1]"))
    found = search(CELL, places, [], None, lambda name, total: lambda done, note: None)
    assert (found.complete, found.winner) == (True, [])


def test_the_page_shows_both_numbers(places):
    result(places.results, 0.6)
    search(CELL, places, [], None, quiet)
    found = find(FADAS, EXPERIMENT, places.results)

    def table():
        return next(block for block in blocks(places.results) if "tuned" in block.head)

    names = ", ".join(change.removeprefix("algorithms.fadas.").removeprefix("local.") for change in found.winner)
    line = ("FADAS", "Dir(0.1)", "72.00 ± 0.94", "60.0 ± 1.0 ▼", names, f"{100 * found.score:.1f}")
    assert table().rows == ((*line, "not run ·"),)
    result(places.results, 0.715, changes=found.winner)
    assert table().rows == ((*line, "71.5 ± 1.0 ="),)
    page = list(blocks(places.results))
    assert not any("other settings" in block.text for block in page), "it stands in one place"
    assert any(block.text.startswith("Results: 2, on") for block in page)
    path = path_of(CELL, places.results)
    path.write_text(json.dumps({**json.loads(path.read_text()), "complete": False, "winner": None}))
    assert table().rows[0][4:] == ("not searched to the end (21 runs)", "-", "-")


@pytest.mark.parametrize("changes", [{"tried": [1]}, {"seed": 1}, {"more": 1}, {"validation": None}], ids=str)
def test_a_damaged_search_is_named(places, changes):
    path = path_of(CELL, places.results)
    good = Search(EXPERIMENT, "fadas", SEED, [], 0.1, [(["a=1"], 1.0, 0.5)], True, [], {}, "", {}, "")
    keep(asdict(good), path)
    assert read(path) == good
    path.write_text(json.dumps({**asdict(good), **changes}))
    with pytest.raises(ConfigError, match=r"fadas-100\.json is not a search of fadas"):
        list(blocks(places.results))


@pytest.mark.parametrize("words", [["large-cifar10", "--rounds", "3"], ["large-cifar10", "--seeds", "2"], ["list"]])
def test_options_that_do_not_go_with_it(small, words):
    assert reproduce(small, *words, "--tune").exit_code == 2


def result(folder, accuracy, method="fadas", changes=()):
    """A result, as a file."""
    cell = Cell(EXPERIMENT, method, 1, tuple(changes))
    fields = {"experiment": EXPERIMENT, "method": method, "seed": 1, "changes": list(changes), "accuracy": accuracy}
    fields |= {"accuracy_std": 0.01, "time_to_target": None, "target": None, "curve": [[1, 5, 2.0, 0.5]], "config": {}}
    fields |= {"delays": {"tau_max": 9, "tau_avg": 2.5, "tau_med": 2}, "device": "", "versions": {}, "wall": 1.0}
    path = cell.path(folder)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**fields, "commit": ""}))
