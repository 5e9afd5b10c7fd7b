"""`fadas reproduce`."""

import re

import pytest

from fadas.paper.artefacts import all_artefacts
from helpers.paper import reproduce, save_method


def test_several_artefacts_share_cells(small_paper):
    output = reproduce(small_paper, "large-cifar10", "ablation-tau-c", "--only", "fadas-da").output
    assert "large-cifar10, ablation-tau-c: 5 cells run" in output
    refused = reproduce(small_paper, "large-cifar10", "report")
    assert refused.exit_code == 2
    assert "report is a command of its own: fadas reproduce report" in refused.output


def test_list_names_every_artefact_in_narrow_terminal(small_paper, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    save_method(0.7, 0.01, small_paper / "results")
    output = reproduce(small_paper, "list").output
    lines = dict(re.findall(r"^ *(\S+) +(\d+ of \d+) ", output, re.M))
    assert list(lines) == list(all_artefacts())
    assert (lines["large-cifar10"], lines["large-cifar10-released"]) == ("2 of 12", "0 of 8")
    assert "…" not in output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["large-cifar11"], "did you mean 'large-cifar10'"),
        (["large-cifar10", "--only", "fedprox"], "no method 'fedprox'"),
        (["large-cifar10", "language", "--only", "fedams"], "no method 'fedams' in large-cifar10, language"),
        (["large-cifar10", "--set", "local.lr=1"], "only the executor's options"),
        (["large-cifar10", "--set", "executor.name=inline"], "with --executor"),
        (["large-cifar10", "--executor", "warp"], "warp"),
    ],
)
def test_mistakes_are_reported_before_any_run(small_paper, words, message):
    result = reproduce(small_paper, *words)
    assert message in str(result.exception)
    assert not list(small_paper.glob("runs/*"))


@pytest.mark.parametrize("words", [["large-cifar10", "--rounds", "3"], ["large-cifar10", "--seeds", "2"], ["list"]])
def test_tune_refuses_other_options(small_paper, words):
    assert reproduce(small_paper, *words, "--tune").exit_code == 2
