"""Averages over seeds, with numbers worked out by hand."""

import dataclasses

import pytest

from fadas.report.comparison import compare
from fadas.report.looks import looks_of
from fadas.report.page.tables import draw_differences, draw_table, explain_table
from fadas.report.table import table_cells, table_header, table_notes
from helpers.folders import make_run

# points of time, updates and accuracy
ONE = make_run("a", [(10, 4, 0.50), (20, 8, 0.62), (30, 12, 0.70)], seed=1, taus=(0, 2))
TWO = make_run("a", [(12, 4, 0.40), (25, 8, 0.56), (50, 12, 0.80)], seed=2, taus=(1, 5))
THREE = make_run("a", [(9, 4, 0.30), (18, 8, 0.64), (60, 16, 0.90)], seed=3, taus=(0, 0))


def draw_tables(runs):
    """The results and the differences of the report, as HTML."""
    table = compare(runs)
    looks = looks_of(row.algorithm for row in table.rows)
    return draw_table(table, looks) + explain_table(table) + draw_differences(table, looks)


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
        (((0.70 - 19 / 30) ** 2 + (0.56 - 19 / 30) ** 2 + (0.64 - 19 / 30) ** 2) / 2) ** 0.5
    )
    assert row.at_updates == pytest.approx(2.14 / 3)
    assert row.at_updates_std == pytest.approx(0.0808290, abs=1e-6)
    assert row.seeds == 3


def test_final_value_has_sample_deviation_and_interval():
    _, row = compare_seeds(ONE, TWO, THREE)
    finals = [1.82 / 3, 1.76 / 3, 1.84 / 3]
    assert row.final == pytest.approx(sum(finals) / 3)
    assert row.final_std == pytest.approx(0.0138778, abs=1e-6)
    margin = 4.302653 * row.final_std / 3**0.5  # Student's t with two degrees of freedom
    assert row.interval == pytest.approx((row.final - margin, row.final + margin))
    assert row.by_seed == pytest.approx(dict(zip((1, 2, 3), finals, strict=True)))


def test_time_to_target_is_the_median():
    """The target is 0.6: reached at 20, 50 and 18."""
    table, row = compare_seeds(ONE, TWO, THREE)
    assert (table.target, row.reached, row.time_to_target, row.time_range) == (0.6, 3, 20, (18, 50))
    assert table_cells(table)[0][4] == "20.0"
    assert table_header(table)[4] == "time to\n60%"
    assert table_cells(table, wide=True)[0][5] == "20.0 (18.0 to 50.0)"


def test_seeds_that_never_reach_the_target_count():
    never = make_run("a", [(10, 4, 0.1), (30, 12, 0.59)], seed=4)
    table, row = compare_seeds(ONE, TWO, never)
    assert (row.time_to_target, row.reached) == (50, 2)
    assert table_cells(table)[0][4] == "50.0, 2 of 3 seeds"
    other = dataclasses.replace(never, summary=dataclasses.replace(never.summary, seed=5))
    assert table_cells(compare([ONE, never, other]))[0][4] == "1 of 3 seeds"
    assert table_cells(compare([never, other]))[0][4] == "0 of 2 seeds"
    short = [make_run("a", [(8, 5, 0.5)], seed=seed) for seed in (4, 5)]
    assert table_cells(compare([ONE, *short]))[0][4] == "1 of 3 seeds", "that others ended early does not make a median"
    assert table_cells(compare([never]))[0][4] == "never"
    assert "2 of 3 seeds" in draw_tables([ONE, TWO, never])


def test_delays_are_averaged():
    _, row = compare_seeds(ONE, TWO, THREE)  # largest delays 2, 5 and 0, in every step
    assert (row.tau_max, row.tau_avg, row.tau_med) == (pytest.approx(7 / 3),) * 3
    assert table_cells(compare([ONE, TWO, THREE]))[0][5:] == ["2", "2.33", "2.3"]


def test_table_shows_mean_and_deviation():
    assert table_cells(compare([ONE, TWO, THREE]))[0][:4] == ["a", "60.2% ± 1.4", "63.3% ± 7.0", "71.3% ± 8.1"]
    assert table_cells(compare([ONE]))[0][:4] == ["a", "60.7%", "70.0%", "70.0%"]
    assert table_notes(compare([ONE, TWO, THREE])) == [
        "final accuracy: mean of the last 3 evaluations; ± is the sample standard deviation over 3 seeds",
        "time to 60%: median over 3 seeds",
    ]
    assert "±" not in draw_tables([ONE])


def test_mean_needs_every_seed():
    late = make_run("a", [(31, 13, 0.9), (40, 16, 0.9)], seed=4)  # not evaluated by time 30 and 12 updates
    _, row = compare_seeds(ONE, TWO, THREE, late)
    assert (row.at_time, row.at_updates) == (None, None)


def test_different_targets_are_no_common_target():
    other = make_run("b", [(10, 4, 0.5), (30, 12, 0.7)], target=0.5)
    table = compare([ONE, other])
    assert table.target is None
    assert "time to" not in "".join(table_header(table))


def test_accuracy_is_that_of_the_last_evaluation_in_time():
    """A run need not be evaluated in its last step."""
    records = [*ONE.records, dataclasses.replace(ONE.records[-1], step=4, time=45.0, updates=16, metrics=None)]
    longer = dataclasses.replace(ONE, records=records, summary=dataclasses.replace(ONE.summary, seed=5))
    table, row = compare_seeds(longer, TWO)
    assert (table.time, table.updates) == (45, 12)
    assert row.at_time == pytest.approx((0.70 + 0.56) / 2)


def make_seeds(label, *finals):
    return [make_run(label, [(10, 4, value)], seed=seed) for seed, value in enumerate(finals)]


def test_best_is_marked_only_where_the_difference_is_significant():
    clear = [*make_seeds("a", 0.80, 0.81, 0.83), *make_seeds("b", 0.50, 0.52, 0.52)]
    assert draw_tables(clear).count('class="best"') == 3, "final, at time, at updates"
    assert table_notes(compare(clear))[-1] == (
        "best final accuracy: a, significantly (paired t-tests at 5 %, Holm's correction for 1 pair)"
    )
    unclear = [*make_seeds("a", 0.80, 0.70, 0.75), *make_seeds("b", 0.78, 0.73, 0.70)]
    html = draw_tables([*unclear, *make_seeds("c", 0.10, 0.11, 0.12)])
    assert (html.count('class="best"'), html.count('class="level"')) == (0, 6)
    assert "Best final accuracy: a on average, but no test tells it from b (paired t-tests" in html
    html = draw_tables(unclear)
    assert 'class="best"' not in html
    assert 'class="level"' not in html
    assert "Best final accuracy: none, no test tells two methods apart (paired" in html


def test_one_seed_marks_nothing_and_says_why():
    runs = [*make_seeds("a", 0.8), *make_seeds("b", 0.5)]
    reason = "not marked, because a test needs several seeds, and each method has one"
    assert table_notes(compare(runs))[-1] == f"best final accuracy: {reason}"
    html = draw_tables(runs)
    assert reason in html
    assert 'class="best"' not in html
    assert "Is the difference real?" not in html
