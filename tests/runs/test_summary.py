"""Summaries of runs."""

import math
from dataclasses import replace
from statistics import median

import pytest
from hypothesis import given, strategies as st

from fadas.runs.folder import read_summary
from fadas.runs.reader import read_records
from fadas.runs.summary import Outcome, Tally, measured_accuracy, summarise
from helpers.cli import ROOT
from helpers.folders import make_record

FOLDERS = sorted(path.parent for path in (ROOT / "tests" / "data").rglob("metrics.jsonl"))


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


def summarise_list(records, target, diverged) -> Outcome:
    """The results of a run, computed from the list of all its records."""
    reached = [(record.time, value) for record in records if (value := measured_accuracy(record)) is not None]
    records = [record for record in records if record.step]  # the initial model may reach a target, and is no result
    accuracies = [value for record in records if (value := measured_accuracy(record)) is not None][-5:]
    accuracies = accuracies if diverged is None else []
    mean = sum(accuracies) / len(accuracies) if accuracies else None
    target = target if diverged is None else None
    taus = [max(job.tau for job in record.jobs) for record in records] or [0]
    last = records[-1] if records else replace(make_record(0), updates=0, time=0.0)
    return Outcome(
        **{key: getattr(last, key) for key in ("step", "updates", "time", "dropped", "expired", "refused")},
        metrics=last.metrics,
        privacy=last.privacy,
        tau_max=max(taus),
        tau_avg=sum(taus) / len(taus),
        tau_med=float(median(taus)),
        accuracy=mean,
        accuracy_std=None if mean is None else math.sqrt(sum((a - mean) ** 2 for a in accuracies) / len(accuracies)),
        target=target,
        time_to_target=None if target is None else next((time for time, a in reached if a >= target), None),
        diverged=diverged,
    )


accuracies = st.one_of(st.none(), st.floats(0, 1), st.just(math.nan))
runs = st.lists(st.tuples(accuracies, st.lists(st.integers(0, 9), min_size=1, max_size=3)), max_size=40)


@given(runs, st.one_of(st.none(), st.floats(0.01, 1)), st.sampled_from([None, "why"]))
def test_tally_gives_the_numbers_of_the_whole_list(run, target, diverged):
    records = [make_record(k, accuracy, taus) for k, (accuracy, taus) in enumerate(run, 1)]
    tally = Tally(target)
    for record in records:
        tally.add(record)
    assert repr(tally.outcome(diverged)) == repr(summarise_list(records, target, diverged))


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: "-".join(folder.parts[-3:]))
def test_tally_gives_the_numbers_of_recorded_runs(folder):
    records = read_records(folder / "metrics.jsonl")
    for target in (None, 0.3):
        assert repr(summarise(records, target)) == repr(summarise_list(records, target, None))
    if (folder / "summary.json").exists():
        written = read_summary(folder)
        again = summarise(records, written.target, written.diverged)
        assert all(getattr(written, name) == value for name, value in vars(again).items())


def test_evaluation_added_to_the_last_record_counts():
    tally = Tally(target=0.5)
    tally.add(make_record(1, 0.1))
    assert not tally.lacks_evaluation
    tally.add(make_record(2))
    assert tally.lacks_evaluation
    tally.add_evaluation({"accuracy": 0.6})
    assert repr(tally.outcome()) == repr(summarise([make_record(1, 0.1), make_record(2, 0.6)], 0.5))
