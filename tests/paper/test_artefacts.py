"""The paper as data: its artefacts and their cells."""

import re

from fadas.paper.artefacts import all_artefacts
from fadas.paper.results import read_result
from fadas.paper.run_cells import Places, has_result, make_config
from helpers.cli import ROOT
from helpers.paper import RELEASED, reproduce


def test_released_code_has_own_settings(small_paper):
    cells = list(all_artefacts()["ablation-tau-c-released"].all_cells())
    made = [make_config(cell, ROOT / "experiments").tables for cell in cells]
    assert [tables["algorithms"]["fadas-da"]["step_size"]["tau_c"] for tables in made] == [1, 4, 8, 10]
    assert {tables["task"]["partition"] for tables in made} == {"dirichlet"}
    assert {tables["algorithms"]["fadas-da"]["schedule"]["refill"] for tables in made} == {"released"}
    assert {tables["algorithms"]["fadas-da"]["optimizer"]["bias_correction"] for tables in made} == {True}
    assert cells[0] == next(c for c in RELEASED.all_cells() if c.method == "fadas-da")
    assert reproduce(small_paper, "large-cifar10-released", "--rounds", 2).exit_code == 0
    assert len(list(small_paper.glob("results/*/*released*.json"))) == len(RELEASED.rows) * len(RELEASED.columns)


def test_published_numbers_are_consistent():
    """Several artefacts repeat the rows of a table."""
    seen = {}
    for one in all_artefacts().values():
        for row in one.rows:
            if row.published:
                for experiment, number in zip(one.columns.values(), row.published, strict=True):
                    assert seen.setdefault((one.source, experiment, row.method), number) == number, (one.name, row.name)


def test_cells_have_unique_names_and_results_match_files():
    cells = {cell for artefact in all_artefacts().values() for cell in artefact.all_cells()}
    assert len({cell.path(ROOT) for cell in cells}) == len(cells)
    places = Places(ROOT / "experiments", ROOT / "results", ROOT / "nowhere")
    kept = [read_result(path).cell for path in ROOT.glob("results/*/*.json")]
    assert kept
    assert all(has_result(cell, places) for cell in kept), "results in bf16 count too"


def test_released_code_has_only_cifar():
    """The released get_dataset knows only CIFAR."""
    cells = {cell for one in all_artefacts().values() if one.original for cell in one.all_cells()}
    assert {cell.experiment.partition("-")[0] for cell in cells} == {"cifar10", "cifar100"}


def test_artefacts_name_existing_experiments_and_methods():
    for artefact in all_artefacts().values():
        for cell in artefact.all_cells():
            text = (ROOT / "experiments" / f"{cell.experiment}.toml").read_text()
            assert re.search(rf"^\[algorithms\.{re.escape(cell.method)}\]$", text, re.M), cell
