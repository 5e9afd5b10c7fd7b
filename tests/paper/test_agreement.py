"""Whether a measured entry agrees with the paper's."""

from dataclasses import replace

import pytest

from fadas.errors import ConfigError
from fadas.paper.agreement import measured_accuracy, time_to_target
from fadas.paper.artefacts import all_artefacts
from helpers.paper import FADAS_ROW, TABLE, TIMES, save_method


@pytest.mark.parametrize(  # the paper: 72.0 ± 0.94
    ("mean", "spread", "text", "verdict"),
    [
        (0.7290, 0.001, "72.9 ± 0.1", "agrees"),  # within the paper's spread
        (0.6900, 0.031, "69.0 ± 3.1", "agrees"),  # within ours
        (0.7000, 0.010, "70.0 ± 1.0", "worse"),
        (0.7500, 0.010, "75.0 ± 1.0", "better"),
    ],
)
def test_agreement_is_within_larger_spread(tmp_path, mean, spread, text, verdict):
    save_method(mean, spread, tmp_path)
    measured = measured_accuracy(TABLE, FADAS_ROW, 0, tmp_path)
    assert (measured.text, measured.verdict) == (text, verdict)


def test_edge_of_spread_agrees(tmp_path):
    save_method(0.501, 0.0, tmp_path)
    assert measured_accuracy(TABLE, replace(FADAS_ROW, published=[[50.0, 0.1]]), 0, tmp_path).verdict == "agrees"


@pytest.mark.parametrize(  # the paper: 228.0
    ("time", "end", "text", "verdict"),
    [
        (230.0, 900.0, "230.0", "agrees"),
        (150.0, 900.0, "150.0", "better"),
        (400.0, 900.0, "400.0", "worse"),
        (None, 900.0, "not by 900 (50.0 %)", "worse"),
        (None, 240.0, "not by 240 (50.0 %)", "not run"),  # the run ended too early to tell
        (205.2, 900.0, "205.2", "agrees"),  # a tenth less, up to rounding
        (250.8, 900.0, "250.8", "agrees"),
    ],
)
def test_time_to_target_agrees_within_tenth(tmp_path, time, end, text, verdict):
    save_method(0.5, 0.0, tmp_path, time, end)
    row = next(row for row in TIMES.rows if row.method == "fadas")
    measured = time_to_target(TIMES, row, 0, tmp_path)
    assert (measured.text, measured.verdict) == (text, verdict)


def test_time_to_other_target_is_refused(tmp_path):
    save_method(0.5, 0.0, tmp_path, 150.0)
    row = next(row for row in TIMES.rows if row.method == "fadas")
    with pytest.raises(ConfigError, match=r'fadas-1\.json: "target" must be 0\.8, got 0\.75$'):
        time_to_target(replace(TIMES, targets=[0.8, 0.8, 0.5, 0.5]), row, 0, tmp_path)


@pytest.mark.parametrize(("time", "verdict"), [(None, "agrees"), (400.0, "better")])
def test_target_never_reached_in_paper(tmp_path, time, verdict):
    save_method(0.5, 0.0, tmp_path, time)
    row = replace(next(row for row in TIMES.rows if row.method == "fadas"), published=["never"])
    assert time_to_target(TIMES, row, 0, tmp_path).verdict == verdict


def test_one_seed_of_three_gives_no_verdict(tmp_path):
    save_method(0.7, 0.01, tmp_path)
    three = all_artefacts()["large-cifar10-seeds"]
    measured = measured_accuracy(three, next(row for row in three.rows if row.method == "fadas"), 0, tmp_path)
    assert (measured.text, measured.verdict) == ("70.0 (1 of 3 seeds)", "not run")
