"""Every field of a summary, and what summary.json holds of it."""

import re
from dataclasses import replace

import pytest

from fadas.runs.summary import Summary, Tally, require_counts, require_possible, require_seeds, summarise
from helpers.folders import make_record, make_summary

FIRST = make_record(1, 0.2, (0, 1), time=4.0, updates=2, dropped=1, expired=1, refused={"dropped": 1})
LAST = make_record(
    3, 0.6, (4, 2), time=9.5, updates=6, dropped=5, expired=2, refused={"not finite": 3}, privacy={"epsilon": 2.5}
)


def test_summary_is_that_of_the_last_record():
    summary = summarise([FIRST, make_record(2, None, (0, 2)), LAST])
    assert (summary.step, summary.updates, summary.time) == (3, 6, 9.5)
    assert (summary.dropped, summary.expired, summary.refused) == (5, 2, {"not finite": 3})
    assert summary.privacy == {"epsilon": 2.5}
    assert summary.metrics == {"accuracy": 0.6}
    assert summary.accuracy == pytest.approx(0.4)
    assert summary.accuracy_std == pytest.approx(0.2)
    assert (summary.tau_max, summary.tau_avg, summary.tau_med) == (4, pytest.approx(7 / 3), 2.0)
    assert summarise([FIRST, make_record(2)]).metrics is None, "the last step was not evaluated"


def test_summary_of_no_records_is_zero():
    summary = summarise([])
    assert (summary.step, summary.updates, summary.time, summary.dropped, summary.expired) == (0, 0, 0.0, 0, 0)
    assert (summary.refused, summary.privacy, summary.metrics, summary.accuracy) == ({}, None, None, None)
    assert (summary.tau_max, summary.tau_avg, summary.tau_med) == (0, 0.0, 0.0)


def test_target_is_reached_at_its_exact_value():
    lines = [make_record(k, k / 10) for k in (1, 2, 3, 4)]
    assert summarise(lines, target=0.3).time_to_target == 30.0
    assert summarise(lines, target=0.3000001).time_to_target == 40.0
    assert summarise(lines, target=0.1).time_to_target == 10.0
    assert summarise(lines, target=0.3).target == 0.3


def test_accuracy_is_over_the_last_five_evaluations():
    lines = [make_record(k, accuracy) for k, accuracy in enumerate((0.9, 0.1, 0.2, 0.3, 0.4, 0.5), 1)]
    assert summarise(lines).accuracy == pytest.approx(0.3)
    assert summarise(lines[:5]).accuracy == pytest.approx(0.38)
    assert summarise(lines[:1]).accuracy_std == 0.0


def test_diverged_run_has_no_accuracy_and_no_target():
    summary = summarise([FIRST, LAST], target=0.1, diverged="not finite")
    assert (summary.accuracy, summary.accuracy_std, summary.target, summary.time_to_target) == (None,) * 4
    assert (summary.diverged, summary.step, summary.metrics) == ("not finite", 3, {"accuracy": 0.6})


def test_file_holds_identity_first_and_leaves_out_what_is_unknown():
    table = make_summary([FIRST], label="fadas", seed=4).as_dict()
    assert list(table)[:4] == ["experiment", "algorithm", "seed", "place"]
    assert [table[name] for name in list(table)[:4]] == ["x", "fadas", 4, 0]
    assert set(table) == {
        "experiment", "algorithm", "seed", "place", "step", "updates", "time", "dropped", "expired", "refused",
        "tau_max", "tau_avg", "tau_med", "metrics", "accuracy", "accuracy_std", "wall",
    }  # fmt: skip
    assert table["wall"] == 0.0
    assert make_summary([make_record(1)]).as_dict()["metrics"] is None, "null says that it was not evaluated"
    assert make_summary([FIRST], target=0.9).as_dict()["time_to_target"] is None, "null says that it was not reached"
    assert make_summary([FIRST], target=0.1).as_dict()["time_to_target"] == 4.0


def test_zero_is_known():
    outcome = vars(summarise([make_record(1, 0.0)]))
    table = Summary(experiment="x", algorithm="a", seed=0, place=0, **outcome).as_dict()
    assert (table["accuracy"], table["dropped"], table["tau_avg"]) == (0.0, 0, 0.0)


def test_counts_and_seeds_are_bounded_exactly():
    require_counts(updates=2**53)
    require_seeds([0, 2**64 - 1])
    with pytest.raises(ValueError, match=r"updates must be from 0 to 2\^53, got 9007199254740993"):
        require_counts(updates=2**53 + 1)
    for seed in (-1, 2**64):
        with pytest.raises(ValueError, match=rf"a seed must be from 0 to 2\^64 - 1, got {seed}"):
            require_seeds([seed])


POSSIBLE = make_summary([FIRST, LAST])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"step": -1}, "step must be from 0 to 2^53, got -1"),
        ({"updates": -1}, "updates must be from 0 to 2^53, got -1"),
        ({"place": -1}, "place must be from 0 to 2^53, got -1"),
        ({"dropped": -1}, "dropped must be from 0 to 2^53, got -1"),
        ({"expired": 2**53 + 1}, "expired must be from 0 to 2^53, got 9007199254740993"),
        ({"refused": {"late": -1}}, "refused.late must be from 0 to 2^53, got -1"),
        ({"privacy": {"epsilon": -0.5}}, "privacy.epsilon must be at least 0, got -0.5"),
        ({"time": -0.5}, "time must be at least 0, got -0.5"),
        ({"wall": -0.5}, "wall must be at least 0, got -0.5"),
        ({"accuracy_std": -0.5}, "accuracy_std must be at least 0, got -0.5"),
        ({"time_to_target": -0.5}, "time_to_target must be at least 0, got -0.5"),
        ({"tau_max": -1}, "tau_max must be at least 0, got -1"),
        ({"tau_avg": -0.5}, "tau_avg must be at least 0, got -0.5"),
        ({"tau_med": -0.5}, "tau_med must be at least 0, got -0.5"),
        ({"seed": -1}, "a seed must be from 0 to 2^64 - 1, got -1"),
        ({"diverged": ""}, "diverged must say why"),
        ({"experiment": "e" * 256}, "experiment must have at most 255 characters"),
        ({"algorithm": "a" * 256}, "algorithm must have at most 255 characters"),
    ],
    ids=str,
)
def test_impossible_summary_is_refused_in_these_words(change, message):
    require_possible(POSSIBLE)
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        require_possible(replace(POSSIBLE, **change))


@pytest.mark.parametrize(
    "change",
    [
        {"step": 0, "updates": 0, "dropped": 2**53, "place": 2**53, "refused": {"late": 0}},
        {"time": 0.0, "wall": 0.0, "accuracy_std": None, "time_to_target": None, "privacy": None},
        {"tau_max": 0, "tau_avg": 0.0, "tau_med": 0.0, "seed": 2**64 - 1, "diverged": "_"},
        {"experiment": "e" * 255, "algorithm": "a" * 255},
    ],
    ids=str,
)
def test_bounds_of_a_summary_are_possible(change):
    assert require_possible(replace(POSSIBLE, **change)) is None


def test_tally_before_the_first_record_lacks_no_evaluation():
    tally = Tally(target=0.5)
    assert (tally.step, tally.lacks_evaluation) == (0, False)
    tally.add(make_record(4))
    assert (tally.step, tally.lacks_evaluation) == (4, True)
