"""Successive halving and the ranking of points."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

import fadas.experiments.run
import fadas.experiments.sweeps.halving
import fadas.simulation.snapshot
from fadas.errors import ConfigError
from fadas.experiments.queue import RunQueue
from fadas.experiments.sweeps.halving import HALVING, count_runs, rank_points, search_points
from fadas.experiments.sweeps.points import Point, run_point, sweep_points
from fadas.runs.reader import read_run
from fadas.runs.summary import summarise
from helpers.experiments import make_sweep
from helpers.processes import hold_lock


def make_outcome(label, lr, seed, accuracy):
    return Point(label, seed, {"local.lr": lr}, Path(), {}), outcome_of(accuracy)


def outcome_of(accuracy):
    """What a run with this accuracy amounts to. None: it diverged."""
    return replace(summarise([], diverged="why" if accuracy is None else None), accuracy=accuracy)


def test_points_are_ranked_by_mean_over_seeds():
    results = [
        make_outcome("a", 0.1, 1, 0.9),
        make_outcome("a", 0.2, 1, 0.7),
        make_outcome("a", 0.1, 2, 0.1),
        make_outcome("a", 0.2, 2, 0.7),
        make_outcome("a", 0.3, 1, 0.99),
        make_outcome("a", 0.3, 2, None),
        make_outcome("b", 0.1, 1, None),
    ]
    ranked = rank_points(results)
    assert [(r.label, r.point["local.lr"], r.best) for r in ranked] == [
        ("a", 0.2, True),
        ("a", 0.1, False),
        ("a", 0.3, False),
        ("b", 0.1, False),
    ]
    assert ranked[1].score == pytest.approx(0.5)
    assert [(r.score, r.diverged) for r in ranked[2:]] == [(None, 1), (None, 1)], (
        "a point with a diverged seed has no score"
    )


def test_points_without_accuracy_are_not_ranked():
    without = replace(summarise([]), metrics={"loss": 1.0})
    (point,) = rank_points([(Point("a", 1, {"local.lr": 0.1}, Path(), {}), without)])
    assert (point.score, point.diverged, point.best) == (None, 0, False)


def facts_of(outcome):
    """What a run amounts to, without what a summary says of its origin."""
    return {name: getattr(outcome, name) for name in ("step", "updates", "accuracy", "accuracy_std", "diverged")}


def test_halving_continues_best_quarter_and_drops_checkpoints(tmp_path):
    todo = sweep_points(make_sweep(), ["fedbuff", "fadas"], [1, 2], tmp_path / "halved", 0.2)
    results, most = [], 0
    for result in search_points(todo, 1, HALVING):
        results.append(result)
        most = max(most, len(list(tmp_path.rglob("*.ckpt"))))
    assert most <= 1 + 2 * 2 + 2 * 1, "one per point that may continue, and one of the last run"
    assert len(results) == count_runs(todo, HALVING) == 2 * (6 + 2 + 1) + 2 * 3
    ranked = rank_points(list({point.folder: (point, summary) for point, summary in results}.values()))
    assert [row.share for row in ranked] == [1, 1 / 2, 1 / 8, 1 / 8, 1 / 8, 1 / 8, 1]
    assert [row.best for row in ranked] == [True, *[False] * 5, True]
    assert ranked[5].point == {"local.lr": 1e30}
    assert ranked[5].diverged == 2
    assert all(outcome.updates == 80 * point.share for point, outcome in results if outcome.diverged is None)
    best = {row.name: row.score for row in ranked if row.best}

    again = list(search_points(todo, 1, HALVING))
    assert [facts_of(outcome) for _, outcome in again] == [facts_of(o) for _, o in results], "nothing is rerun"

    whole = {point.folder: summary for point, summary in search_points(todo, 1, (1.0,))}
    afresh = sweep_points(make_sweep(), ["fedbuff", "fadas"], [1, 2], tmp_path / "whole", 0.2)
    full = list(search_points(afresh, 1, (1.0,)))
    assert len(full) == len(whole) == 2 * (6 + 1)
    for point, summary in full:
        halved = tmp_path / "halved" / point.label / point.folder.name
        assert whole[halved].accuracy == summary.accuracy
        assert read_run(halved).records == read_run(point.folder).records, "pauses must not change a run"
    assert {row.name: row.score for row in rank_points([*search_points(afresh, 1, (1.0,))]) if row.best} == best


def test_halving_without_early_evaluation_is_refused(tmp_path):
    todo = sweep_points(make_sweep(eval_every=6), ["fedbuff"], [1], tmp_path, 0.2)
    text = r"fedbuff, local\.lr=0\.001: 12\.5% of a run is 5 steps; run\.eval_every must be at most 5"
    with pytest.raises(ConfigError, match=text):
        list(search_points(todo, 1, HALVING))
    assert not list(tmp_path.iterdir())
    later = make_sweep()
    later["sweep"]["fedbuff"] = {"run": {"eval_every": [1, 6]}}
    with pytest.raises(ConfigError, match=r"fedbuff, run\.eval_every=6: 12\.5% of a run is 5 steps"):
        list(search_points(sweep_points(later, ["fedbuff"], [1], tmp_path, 0.2), 1, HALVING))
    todo = sweep_points(make_sweep(eval_every=5), ["fedbuff"], [1], tmp_path, 0.2)
    outcomes = [outcome for _, outcome in search_points(todo, 1, HALVING)]
    assert len(outcomes) == count_runs(todo, HALVING) == 6 + 2 + 1
    assert all((outcome.accuracy is None) == (outcome.diverged is not None) for outcome in outcomes)
    assert sum(outcome.diverged is not None for outcome in outcomes) == 1, "one rate of the grid is 1e30"


def search_made_up(monkeypatch, tmp_path, last):
    """Search four points with made-up runs. The accuracy is the rate. `last` says at which share a point diverges."""

    def make_up_run(tasks, point):
        rate = point.point["local.lr"]
        return outcome_of(None if point.share >= last.get(rate, 2) else rate)

    monkeypatch.setattr(fadas.experiments.sweeps.halving, "run_point", make_up_run)
    tables = make_sweep()
    tables["sweep"]["fedbuff"]["local"]["lr"] = [0.1, 0.2, 0.3, 0.4]
    todo = sweep_points(tables, ["fedbuff"], [1], tmp_path, 0.2)
    return [(point.point["local.lr"], point.share, summary) for point, summary in search_points(todo, 1, HALVING)], todo


@pytest.mark.parametrize(
    ("last", "went_on", "best"),
    [
        ({}, [(0.4, 1 / 2), (0.4, 1)], 0.4),
        ({0.4: 1 / 8}, [(0.3, 1 / 2), (0.3, 1)], 0.3),
        ({0.4: 1 / 2}, [(0.4, 1 / 2), (0.3, 1 / 2), (0.3, 1)], 0.3),
        ({0.4: 1 / 2, 0.3: 1 / 2, 0.2: 1 / 2}, [(rate, 1 / 2) for rate in (0.4, 0.3, 0.2, 0.1)] + [(0.1, 1)], 0.1),
        (dict.fromkeys((0.1, 0.2, 0.3, 0.4), 1 / 2), [(rate, 1 / 2) for rate in (0.4, 0.3, 0.2, 0.1)], None),
    ],
)
def test_next_best_point_replaces_late_diverged_one(monkeypatch, tmp_path, last, went_on, best):
    results, todo = search_made_up(monkeypatch, tmp_path, last)
    assert [(rate, share) for rate, share, _ in results[:4]] == [(rate, 1 / 8) for rate in (0.1, 0.2, 0.3, 0.4)]
    assert [(rate, share) for rate, share, _ in results[4:]] == went_on
    final = {rate: (share, summary) for rate, share, summary in results}
    by_rate = {point.point["local.lr"]: point for point in todo}
    ranked = rank_points([(replace(by_rate[rate], share=share), summary) for rate, (share, summary) in final.items()])
    assert [row.point["local.lr"] for row in ranked if row.best] == ([best] if best else [])


def test_halving_keeps_checkpoints_of_longer_runs(tmp_path):
    todo = sweep_points(make_sweep(), ["fedbuff"], [1], tmp_path, 0.2)
    for point in todo[:4]:
        run_point({}, replace(point, share=0.9))
    before = sorted(tmp_path.rglob("*.ckpt"))
    assert len(before) == 4
    list(search_points(todo, 1, HALVING))
    assert len(set(before) & set(tmp_path.rglob("*.ckpt"))) >= 3, "all but that of the winner are kept"


@pytest.mark.parametrize("rungs", [HALVING, (1.0,)])
def test_metric_that_the_task_does_not_measure_is_refused(tmp_path, rungs):
    tables = make_sweep()
    tables["run"]["metric"] = "r2"
    with pytest.raises(ConfigError, match="the task does not measure 'r2'; choose one of: accuracy, loss"):
        list(search_points(sweep_points(tables, ["fedbuff"], [1], tmp_path, 0.2), 1, rungs))
    assert not list(tmp_path.iterdir())


def test_first_rung_of_locked_run_is_read(tmp_path):
    pytest.importorskip("fcntl")
    todo = sweep_points(make_sweep(), ["fadas"], [1], tmp_path, 0.2)
    first = [result for result in search_points(todo, 1, HALVING) if result[0].share < 1 / 2]
    (todo[0].folder / "summary.json").unlink()
    with hold_lock(todo[0].folder):
        attempt = partial(run_point, {})
        assert list(RunQueue([point for point, _ in first], str).run(attempt)) == first
        queue = RunQueue(todo, lambda point: point.folder.name)
        assert list(queue.run(attempt)) == []
        with pytest.raises(ConfigError, match="1 of 1 runs skipped, because another process is running them"):
            queue.raise_if_skipped()


def test_rung_is_judged_at_its_end_after_torn_line(tmp_path):
    (point,) = sweep_points(make_sweep(), ["fadas"], [1], tmp_path, 0.2)
    rungs = [replace(point, share=share) for share in (1 / 8, 1 / 2)]
    first = [run_point({}, one) for one in rungs]
    with (point.folder / "metrics.jsonl").open("a") as file:
        file.write('{"step": 21, "upd')
    assert [run_point({}, one) for one in rungs] == first
