"""Summaries of runs."""

import math

import pytest

from fadas.runs.summary import summarise
from helpers.folders import make_record


def test_summary_of_records():
    accuracies = [0.1, 0.5, 0.6, 0.7, 0.8, 0.9]
    lines = [make_record(k + 1, a, taus=(0, k)) for k, a in enumerate(accuracies)]
    summary = summarise(lines, target=0.65)
    assert summary.accuracy == pytest.approx(0.7)
    assert summary.accuracy_std == pytest.approx(0.02**0.5)
    assert summary.time_to_target == 40.0
    assert (summary.tau_max, summary.tau_avg, summary.tau_med) == (5, 2.5, 2.5)
    assert summarise(lines, target=0.95).time_to_target is None
    for none in (None, math.nan, math.inf):
        odd = make_record(9, metrics={"accuracy": none})
        one, other = summarise([odd, *lines, odd], target=0.65), summarise([*lines, make_record(9)], target=0.65)
        assert (one.accuracy, one.accuracy_std, one.time_to_target) == (
            other.accuracy,
            other.accuracy_std,
            other.time_to_target,
        )
        assert summarise([odd]).accuracy is None
        assert "accuracy" not in summarise([odd]).as_dict()
    assert summarise(lines).target is None
    assert "target" not in summarise(lines).as_dict()
    assert summarise(lines, target=0.95).as_dict()["time_to_target"] is None, "never reached, which is worth saying"
