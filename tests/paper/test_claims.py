"""What the paper claims of its figures, held against the curves."""

import json

import pytest

from fadas.paper.artefacts import Cell, all_artefacts
from fadas.paper.claims import judge_figure, nearest_reading
from fadas.paper.page import write_page
from helpers.paper import save_result

TAU_C, ROUNDS, TIME = (all_artefacts()[name] for name in ("ablation-tau-c", "ablation-buffer-rounds", "runtime-fadas"))


ASYNC = all_artefacts()["fedasync"]


def save_line(results, figure, name, accuracies, buffer=5, diverged=None):
    """Write the results of a line: an accuracy per step. The virtual time is the step's number."""
    row = next(row for row in figure.rows if row.name == name)
    for experiment in figure.columns.values():
        cell = Cell(experiment, row.method, 1, row.set)
        curve = [[k, buffer * k, float(k), value] for k, value in enumerate(accuracies, 1)]
        last = [point[3] for point in curve[-5:]]
        accuracy = {"accuracy": None, "accuracy_std": None} if diverged else {"accuracy": sum(last) / len(last)}
        save_result(results, cell, curve=curve, diverged=diverged, **accuracy)


def test_claims_name_existing_rows():
    for one in all_artefacts().values():
        names = [row.name for row in one.rows]
        assert all(name in names and pair[0] != pair[1] for pair in (*one.ahead, *one.alike) for name in pair)
        assert bool(one.ahead) == (one.kind == "figure")


@pytest.mark.parametrize(
    ("ends", "verdict"),
    [
        ({1: 0.5, 4: 0.6, 8: 0.7, 10: 0.6}, "holds"),
        ({1: 0.7, 4: 0.6, 8: 0.5, 10: 0.55}, "does not hold"),
        ({1: 0.5, 4: 0.6, 8: 0.7, 10: 0.55}, "holds in part"),  # 4 and 10 are not alike
        ({1: 0.5, 4: 0.55, 8: 0.7, 10: 0.6}, "holds in part"),
        ({1: 0.7, 4: 0.6, 8: 0.7, 10: 0.6}, "holds in part"),  # 1 and 8 cannot be told apart
        ({1: 0.7, 4: 0.7, 8: 0.7, 10: 0.7}, "is open"),
        ({1: 0.7, 4: 0.6, 8: 0.5, 10: 0.6}, "does not hold"),  # though 4 and 10 are alike
        ({1: 0.5, 4: 0.7, 8: 0.7}, "holds in part so far"),  # 4 and 8 are level
        ({1: 0.5, 8: 0.7}, "holds so far"),
        ({8: 0.7}, "is open"),
        ({}, "is open"),
    ],
)
def test_verdict_follows_from_ends_of_lines(tmp_path, ends, verdict):
    for tau_c, accuracy in ends.items():
        save_line(tmp_path, TAU_C, f"tau_c = {tau_c}", [accuracy] * 6)
    found = judge_figure(TAU_C, tmp_path)
    assert found.verdict == verdict
    assert ("have not been run" in found.text) == (len(ends) < 4)


def test_lines_within_larger_spread_are_level(tmp_path):
    save_line(tmp_path, TAU_C, "tau_c = 8", [0.1] * 9 + [0.5, 0.6, 0.7, 0.6, 0.6])
    save_line(tmp_path, TAU_C, "tau_c = 1", [0.9] * 9 + [0.55] * 5)
    verdict, text = judge_figure(TAU_C, tmp_path)
    assert verdict == "is open"
    assert text.startswith("tau_c = 8 is level with tau_c = 1 (60.0 ± 6.3 against 55.0 ± 0.0)")


def test_lines_are_compared_within_same_rounds(tmp_path):
    """M = 3 has more rounds than M = 5. Its gains in the additional rounds do not count."""
    save_line(tmp_path, ROUNDS, "FADAS, M = 5", [0.6] * 10)
    save_line(tmp_path, ROUNDS, "FADAS, M = 3", [0.5] * 10 + [0.9] * 10, buffer=3)
    assert (
        "FADAS, M = 5 is ahead of FADAS, M = 3 (60.0 ± 0.0 against 50.0 ± 0.0)" in judge_figure(ROUNDS, tmp_path).text
    )
    trips = all_artefacts()["ablation-buffer-trips"]  # 50 trips of both: 16 rounds of M = 3
    assert "FADAS, M = 5 is behind FADAS, M = 3 (60.0 ± 0.0 against 90.0 ± 0.0)" in judge_figure(trips, tmp_path).text


def test_diverged_line_is_behind(tmp_path):
    save_line(tmp_path, TAU_C, "tau_c = 8", [0.5], diverged="not finite")
    save_line(tmp_path, TAU_C, "tau_c = 1", [0.1] * 6)
    save_line(tmp_path, TAU_C, "tau_c = 4", [], diverged="not finite")
    verdict, text = judge_figure(TAU_C, tmp_path)
    assert verdict == "does not hold so far"
    assert "tau_c = 8 is behind tau_c = 1 (diverged against 10.0 ± 0.0)" in text
    assert "tau_c = 8 is level with tau_c = 4 (diverged against diverged)" in text


@pytest.mark.parametrize(
    ("three", "five", "text"),
    [
        ([0.7], [0.1] * 9 + [0.7], "FADAS, M = 3 is ahead of FADAS, M = 5 (1.0 against 10.0)"),
        ([0.1] * 10 + [0.7], [0.1] * 9 + [0.8], "FADAS, M = 3 is level with FADAS, M = 5 (11.0 against 10.0)"),
        ([0.1] * 11 + [0.7], [0.1] * 9 + [0.8], "FADAS, M = 3 is behind FADAS, M = 5 (12.0 against 10.0)"),
        ([0.1] * 12, [0.1] * 9 + [0.7], "FADAS, M = 3 is behind FADAS, M = 5 (never against 10.0)"),
        ([0.1] * 11, [0.1] * 9 + [0.7], "FADAS, M = 3 ended too early to compare"),
        ([0.1], [0.69], "neither FADAS, M = 3 nor FADAS, M = 5 reaches 70%"),
    ],
)
def test_times_to_target_are_compared(tmp_path, three, five, text):
    save_line(tmp_path, TIME, "FADAS, M = 3", three)
    save_line(tmp_path, TIME, "FADAS, M = 5", five)
    assert judge_figure(TIME, tmp_path).text.startswith(text)


def test_line_diverged_after_target_is_behind(tmp_path):
    save_line(tmp_path, TIME, "FADAS, M = 3", [0.1, 0.7], diverged="not finite")
    save_line(tmp_path, TIME, "FADAS, M = 5", [0.1] * 9 + [0.7])
    assert judge_figure(TIME, tmp_path).text.startswith("FADAS, M = 3 is behind FADAS, M = 5 (never against 10.0)")


def test_lines_without_common_measurements_are_not_compared(tmp_path):
    save_line(tmp_path, ROUNDS, "FADAS, M = 3", [0.5])
    save_line(tmp_path, ROUNDS, "FADAS, M = 5", [0.6] * 3)
    row = next(row for row in ROUNDS.rows if row.name == "FADAS, M = 5")
    path = Cell("cifar10-large-dir0.1", row.method, 1, row.set).path(tmp_path)
    path.write_text(json.dumps({**json.loads(path.read_text()), "curve": [[7, 35, 7.0, 0.6]]}))
    verdict, text = judge_figure(ROUNDS, tmp_path)
    assert verdict == "is open"
    assert "were never measured within the same rounds" in text


def test_nearest_reading_names_closest_result(tmp_path):
    assert nearest_reading(ASYNC, 0, tmp_path) == ""
    save_line(tmp_path, ASYNC, "whole delta, M = 1", [0.2] * 6)
    save_line(tmp_path, ASYNC, "hinge, alpha = 0.9", [0.55] * 6)
    save_line(tmp_path, ASYNC, "hinge, alpha = 0.2", [0.1], diverged="not finite")
    assert nearest_reading(ASYNC, 0, tmp_path) == (
        "nearest to the published 50.92 is hinge, alpha = 0.9 (55.0), within its spread (3 of 13 have been run)"
    )
    assert "hinge, alpha = 0.9 (55.0), outside its spread" in nearest_reading(ASYNC, 1, tmp_path)
    assert nearest_reading(all_artefacts()["large-cifar10"], 0, tmp_path) == "", "its rows are methods, not readings"


def test_page_shows_verdict(tmp_path):
    save_line(tmp_path, TAU_C, "tau_c = 8", [0.7] * 6)
    save_line(tmp_path, TAU_C, "tau_c = 1", [0.5] * 6)
    write_page(tmp_path / "page.md", tmp_path)
    text = (tmp_path / "page.md").read_text()
    assert "**As printed, this holds so far**: tau_c = 8 is ahead of tau_c = 1 (70.0 ± 0.0 against 50.0 ± 0.0)" in text
    assert "| 2 of 4 lines run; holds so far |" in text
