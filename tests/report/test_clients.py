"""Tables and figures of clients, from runs made by hand."""

from dataclasses import replace

import pytest

from fadas.core.records import ClientsRecord
from fadas.report.clients import (
    client_tiers,
    clients_table,
    count_arrivals,
    participation_table,
)
from fadas.report.figures import participation, served
from fadas.report.html import page
from helpers.folders import FAST_RUN, draw_axes, make_run

TIERS = {"small": [0, 1], "medium": [], "large": [2]}


def evaluate(run, *values, tiers=TIERS):
    """A run whose clients were evaluated once."""
    record = ClientsRecord(3, 15, 30.0, {"accuracy": list(values), "loss": [1.0] * len(values)})
    return replace(run, clients_evaluations=[replace(record, step=1), record], tiers=tiers)


SERVED = evaluate(FAST_RUN, 0.9, 0.7, 0.2)


def test_clients_table_by_hand():
    header, rows = clients_table([SERVED])
    assert header == [
        "algorithm", "clients", "accuracy\nmean", "worst\n10 %", "Jain's\nindex", "small\ndelays", "large\ndelays"
    ]  # fmt: skip
    assert rows == [["fast", "3", "60.0%", "20.0%", "0.806", "80.0%", "20.0%"]], "1.8^2 / (3 * 1.34)"


def test_clients_table_over_seeds_by_hand():
    runs = [evaluate(make_run("a", [(1, 2, 0.5)], seed), *values) for seed, values in enumerate(
        [(0.5, 0.5, 0.5), (1.0, None, 0.5)]
    )]  # fmt: skip
    _, ((name, clients, mean, worst, jain, small, large),) = clients_table(runs)
    assert (name, clients) == ("a", "2 to 3")
    assert mean == "62.5% ± 17.7", "0.5 and 0.75: the sample's deviation"
    assert (worst, jain) == ("50.0% ± 0.0", "0.950"), "1 and 0.9"
    assert (small, large) == ("75.0%", "50.0%")


def test_methods_that_evaluated_no_clients_are_left_out():
    assert clients_table([FAST_RUN]) == ([], [])
    assert [row[0] for row in clients_table([FAST_RUN, replace(SERVED, folder=SERVED.folder / "b")])[1]] != []
    assert served({"fast": [FAST_RUN]}) is None
    assert clients_table([make_run("a", [(1, 2, 0.5)], diverged="all refused")]) == ([], [])


def test_participation_by_hand():
    """Each step has a job of client 0 and one of client 1; client 2 never arrives."""
    run = replace(FAST_RUN, tiers=TIERS)
    assert count_arrivals(run) == [3, 3, 0]
    header, rows = participation_table([run])
    assert header[:7] == [
        "algorithm", "clients", "updates\nper client", "least", "most", "distance\nto uniform", "by\nchance"
    ]  # fmt: skip
    ((*cells, small, large),) = rows
    assert cells[:6] == ["fast", "3", "2.0", "0.00x", "1.50x", "0.33"]
    assert (small, large) == ("1.50x", "0.00x")


def test_delays_without_tiers_are_divided_by_duration():
    run = make_run("a", [(1, 2, 0.5)], taus=(0, 0, 0))
    (record,) = run.records
    jobs = tuple(replace(job, end=length) for job, length in zip(record.jobs, (5.0, 1.0, 3.0), strict=True))
    run = replace(run, records=[replace(record, jobs=jobs)])
    assert client_tiers(run) == {"fastest third": [1], "middle third": [2], "slowest third": [0]}
    header, rows = participation_table([run])
    assert header[-3:] == ["fastest\nthird", "middle\nthird", "slowest\nthird"]
    assert rows[0][-3:] == ["1.00x"] * 3


def test_clients_of_a_deployment_are_those_seen():
    run = replace(FAST_RUN, config={"task": {"name": "flower"}})
    assert count_arrivals(run) == [3, 3]
    assert client_tiers(run) == {}, "of two clients"
    assert participation({"fast": [run]}).axes[0].get_yticklabels()[0].get_text() == "all"


def test_figures_have_a_row_for_each_tier_with_clients():
    axes = draw_axes(SERVED)
    for name in ("clients", "participation"):
        labels = [label.get_text() for label in axes[name][0].get_yticklabels()]
        assert labels == ["small", "large"]
    points = sorted(x for dots in axes["clients"][0].collections for x, _ in dots.get_offsets())
    assert points == pytest.approx([0.2, 0.7, 0.9])
    assert "clients" not in draw_axes(FAST_RUN)


def test_report_has_tables_of_clients():
    text = page([SERVED])
    assert "How well clients are served" in text
    assert "<td>20.0%</td>" in text
    assert "How well clients are served" not in page([FAST_RUN])
    assert "How often clients took part" in page([FAST_RUN])
