"""Averages over seeds, with numbers worked out by hand."""

import dataclasses

import pytest

from fadas.report.comparison import compare, table_cells, table_header
from helpers.folders import make_run

# points of time, updates and accuracy
ONE = make_run("a", [(10, 4, 0.50), (20, 8, 0.62), (30, 12, 0.70)], seed=1, taus=(0, 2))
TWO = make_run("a", [(12, 4, 0.40), (25, 8, 0.56), (50, 12, 0.80)], seed=2, taus=(1, 5))
THREE = make_run("a", [(9, 4, 0.30), (18, 8, 0.64), (60, 16, 0.90)], seed=3, taus=(0, 0))


def compare_seeds(*runs):
    table = compare(runs)
    (row,) = table.rows
    return table, row


def test_accuracies_are_averaged_at_the_time_and_updates_of_the_shortest_run():
    table, row = compare_seeds(ONE, TWO, THREE)
    assert (table.time, table.updates) == (30, 12)
    # at time 30: 0.70, 0.56, 0.64; at 12 updates: 0.70, 0.80, 0.64 (the third run has 8 updates, then 16)
    assert row.at_time == pytest.approx(1.90 / 3)
    assert row.at_time_std == pytest.approx(
        ((0.70 - 19 / 30) ** 2 + (0.56 - 19 / 30) ** 2 + (0.64 - 19 / 30) ** 2) ** 0.5 / 3**0.5
    )
    assert row.at_updates == pytest.approx(2.14 / 3)
    assert row.at_updates_std == pytest.approx(0.0659966, abs=1e-6)
    assert row.seeds == 3


def test_times_to_target_are_averaged():
    """The target is 0.6: reached at 20, 50 and 18."""
    table, row = compare_seeds(ONE, TWO, THREE)
    assert (table.target, row.reached) == (0.6, 3)
    assert row.time_to_target == pytest.approx((20 + 50 + 18) / 3)
    assert table_cells(table)[0][3] == "29.3"
    assert table_header(table)[3] == "time to\n60%"


def test_delays_are_averaged():
    _, row = compare_seeds(ONE, TWO, THREE)  # largest delays 2, 5 and 0, in every step
    assert (row.tau_max, row.tau_avg, row.tau_med) == (pytest.approx(7 / 3),) * 3
    assert table_cells(compare([ONE, TWO, THREE]))[0][4:] == ["2", "2.33", "2.3"]


def test_table_shows_mean_and_deviation():
    assert table_cells(compare([ONE, TWO, THREE]))[0][:3] == ["a", "63.3% ± 5.7", "71.3% ± 6.6"]
    assert table_cells(compare([ONE]))[0][:3] == ["a", "70.0%", "70.0%"]


def test_mean_needs_every_seed():
    late = make_run("a", [(31, 13, 0.9), (40, 16, 0.9)], seed=4)  # not evaluated by time 30 and 12 updates
    _, row = compare_seeds(ONE, TWO, THREE, late)
    assert (row.at_time, row.at_updates) == (None, None)
    never = make_run("a", [(10, 4, 0.1), (30, 12, 0.59)], seed=4)
    table, row = compare_seeds(ONE, TWO, never)
    assert (row.time_to_target, row.reached) == (None, 2)
    assert table_cells(table)[0][3] == "2 of 3"


def test_different_targets_are_no_common_target():
    other = make_run("b", [(10, 4, 0.5), (30, 12, 0.7)], target=0.5)
    table = compare([ONE, other])
    assert table.target is None
    assert [cells[3] for cells in table_cells(table)] == ["-", "-"]
    assert table_header(table)[3] == "time to\ntarget"


def test_accuracy_is_that_of_the_last_evaluation_in_time():
    """A run need not be evaluated in its last step."""
    records = [*ONE.records, dataclasses.replace(ONE.records[-1], step=4, time=45.0, updates=16, metrics=None)]
    longer = dataclasses.replace(ONE, records=records, summary=dataclasses.replace(ONE.summary, seed=5))
    table, row = compare_seeds(longer, TWO)
    assert (table.time, table.updates) == (45, 12)
    assert row.at_time == pytest.approx((0.70 + 0.56) / 2)
