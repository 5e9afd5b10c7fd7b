"""Results kept as files."""

import json

import pytest

from fadas.errors import ConfigError
from fadas.paper.artefacts import Cell
from fadas.paper.page import write_page
from fadas.paper.results import read_result
from helpers.paper import reproduce, save_method


@pytest.mark.parametrize(
    "changes",
    [
        {"accuracy": None},
        {"accuracy": "x"},
        {"accuracy": float("nan")},
        {"curve": []},
        {"curve": [[1, 2, 3]]},
        {"curve": [[1, 5, 2.0, None]]},
        {"delays": {}},
        {"time_to_target": "soon"},
        {"config": None},
        {"versions": None},
        {"commit": None},
        {"seed": "1"},
        {"seed": 7},
        {"method": "fedbuff"},
    ],
    ids=str,
)
def test_damaged_result_is_named(tmp_path, changes):
    save_method(0.7, 0.01, tmp_path)
    path = Cell("cifar10-large-dir0.1", "fadas", 1).path(tmp_path)
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    with pytest.raises(ConfigError, match=r"fadas-1.json is not a result"):
        write_page(tmp_path / "page.md", tmp_path)


def test_unknown_key_of_result_is_ignored(tmp_path):
    save_method(0.7, 0.01, tmp_path)
    path = Cell("cifar10-large-dir0.1", "fadas", 1).path(tmp_path)
    before = read_result(path)
    path.write_text(json.dumps({**json.loads(path.read_text()), "more": 1}))
    assert read_result(path) == before


def test_damaged_result_can_be_deleted(small_paper):
    path = Cell("cifar10-large-dir0.1", "fadas", 1).path(small_paper / "results")
    path.parent.mkdir(parents=True)
    path.write_text("{")
    for words in (["large-cifar10", "--only", "fadas"], ["report"], ["list"]):
        assert str(reproduce(small_paper, *words).exception).endswith("; delete it to run the cell again"), words
