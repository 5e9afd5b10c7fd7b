"""Runs that are started from Python and kept in folders, and comparisons of several."""

import json
from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import nn

import fadas
from fadas.errors import ConfigError, FadasWarning, OtherSettings
from fadas.experiments.from_python.describe import describe
from fadas.runs.reader import find_runs, read_run
from helpers.folders import read_initial, read_records
from helpers.training import LOCAL, make_task

PLAN = {"concurrency": 4, "buffer": 2, "clients": 8, "delays": fadas.Mild(), "updates": 24}
METHODS = {
    "fadas": fadas.FADAS(eta=0.1),
    "mine": (fadas.FedBuff(eta=0.5), replace(LOCAL, lr=0.2)),
    "sync": fadas.FedAvg(),
}


@pytest.fixture
def task():
    return make_task()


def make_plan(seed=1):
    return fadas.plan(fadas.Schedule(4, 2), 8, fadas.Mild(), updates=24, seed=seed)


def simulate(task, folder=None, **options):
    options = {"executor": "inline", "eval_every": 3, **options}
    return fadas.simulate(make_plan(), task, fadas.FADAS(eta=0.1), LOCAL, folder=folder, **options)


def test_folder_holds_what_fadas_run_writes(task, tmp_path):
    records = list(simulate(task, tmp_path / "mine" / "fadas-1"))
    folder = tmp_path / "mine" / "fadas-1"
    assert {path.name for path in folder.iterdir()} >= {
        "config.toml",
        "metrics.jsonl",
        "summary.json",
        "model.safetensors",
    }
    assert (tmp_path / "mine" / "report.html").exists()
    assert read_run(folder).records == [replace(record, wall=0.0) for record in records]
    assert read_initial(folder)["metrics"]["accuracy"] >= 0
    assert (read_run(folder).label, read_run(folder).summary.seed) == ("fadas", 1)


def test_folder_does_not_change_the_numbers(task, tmp_path):
    kept, plain = simulate(task, tmp_path / "a-1"), simulate(task)
    assert [r.as_dict() for r in kept] == [r.as_dict() for r in plain]
    assert torch.equal(kept.server.model.params, plain.server.model.params)


def test_run_that_is_left_continues_with_the_same_numbers(task, tmp_path):
    first = simulate(task, tmp_path / "a-1")
    for record in first:
        if record.step == 5:
            break
    del first
    assert len(read_records(tmp_path / "a-1")) == 5
    second, plain = simulate(task, tmp_path / "a-1"), simulate(task)
    assert [r.as_dict() for r in second] == [r.as_dict() for r in plain]
    assert torch.equal(second.server.model.params, plain.server.model.params)


def test_finished_run_is_read_instead_of_trained(task, tmp_path, monkeypatch):
    one = simulate(task, tmp_path / "a-1")
    expected = [replace(record, wall=0.0) for record in one]
    again = simulate(task, tmp_path / "a-1")
    monkeypatch.setattr(type(again.executor), "collect", None)
    assert list(again) == expected
    assert again.complete
    assert again.metrics == expected[-1].metrics
    for name, tensor in one.state_dict().items():
        assert torch.equal(again.state_dict()[name], tensor)


def test_other_settings_are_refused_unless_overwritten(task, tmp_path):
    list(simulate(task, tmp_path / "a-1"))
    with pytest.raises(OtherSettings, match="eval_every was 3 and is 2"):
        list(simulate(task, tmp_path / "a-1", eval_every=2))
    other = make_task(seed=1)
    with pytest.raises(OtherSettings, match=r"run\.digest"):
        list(simulate(other, tmp_path / "a-1"))
    assert len(list(simulate(other, tmp_path / "a-1", overwrite=True))) == 12


def test_options_of_a_folder_need_one(task):
    for options in ({"patience": 3}, {"keep": "best"}, {"overwrite": True}):
        with pytest.raises(ConfigError, match="need a folder"):
            simulate(task, **options)


def test_target_on_the_wrong_side_is_refused_without_a_folder_too(task):
    with pytest.raises(ConfigError, match=r"^target = 99 is reached before the run: .* lower is better; set a lower"):
        simulate(task, metric="loss", target=99)


def test_patience_ends_a_run_and_the_best_model_is_kept(task, tmp_path):
    run = fadas.simulate(
        make_plan(), task, fadas.FADAS(eta=5.0), LOCAL,
        executor="inline", folder=tmp_path / "a-1", patience=2, keep="best",
    )  # fmt: skip
    values = [record.metrics["accuracy"] for record in run]
    summary = read_run(tmp_path / "a-1").summary
    initial = read_initial(tmp_path / "a-1")["metrics"]["accuracy"]
    best = max([initial, *values])
    assert summary.best == best
    assert summary.best_step == [initial, *values].index(best)
    assert len(values) == summary.best_step + 2 < make_plan().steps
    again = fadas.simulate(
        make_plan(), task, fadas.FADAS(eta=5.0), LOCAL,
        executor="inline", folder=tmp_path / "a-1", patience=2, keep="best",
    )  # fmt: skip
    list(again)
    assert again.task.evaluate(again.module())["accuracy"] == pytest.approx(best)


def test_comparison_has_all_methods_and_seeds(task, tmp_path):
    results = fadas.compare(
        task, METHODS, plan=PLAN, local=LOCAL, seeds=[1, 2], folder=tmp_path / "c", executor="inline"
    )
    assert [(run.label, run.summary.seed) for run in results.runs] == [
        (label, seed) for label in METHODS for seed in (1, 2)
    ]
    assert [run.folder.name for run in find_runs(tmp_path / "c")] == [run.folder.name for run in results.runs]
    header, _, *rows = results.table().split("\n\n")[0].splitlines()
    assert header.startswith("algorithm")
    assert [row.split()[0] for row in rows] == list(METHODS)
    assert list(results.frame()["algorithm"]) == ["fadas", "fadas", "mine", "mine", "sync", "sync"]
    assert results.save(tmp_path).read_text().startswith("<!doctype html>")
    assert len(results.plot("updates").axes[0].lines) >= 3
    assert "final loss" in results.table("loss", ["interval"])
    assert "95 % interval" in results.table("loss", ["interval"])
    assert results.plot("updates", "loss").axes[0].get_ylabel() == "test loss"
    assert len(results.frame("clients")) == 6 * 8
    with pytest.raises(ConfigError, match='do not measure "rmse"; choose one of: accuracy, loss'):
        results.plot(metric="rmse")


@pytest.mark.parametrize("jobs", [1, 2])
def test_comparison_gives_the_numbers_of_single_runs(task, tmp_path, jobs):
    results = fadas.compare(task, METHODS, plan=make_plan(), local=LOCAL, seeds=[1], executor="inline", jobs=jobs)
    plan = fadas.plan(fadas.FedBuff().schedule(4, 2), 8, fadas.Mild(), updates=24, seed=1)
    alone = list(fadas.simulate(plan, task, *METHODS["mine"], executor="inline"))
    assert results.runs[1].records == [replace(record, wall=0.0) for record in alone]


def test_comparison_continues_and_skips_finished_runs(task, tmp_path):
    some = {name: METHODS[name] for name in ("fadas", "mine")}
    options = {"plan": PLAN, "local": LOCAL, "executor": "inline", "folder": tmp_path, "jobs": 1}
    fadas.compare(task, some, **options)
    before = (tmp_path / "fadas-0" / "summary.json").stat().st_mtime_ns
    assert len(fadas.compare(task, METHODS, **options).runs) == 3
    assert (tmp_path / "fadas-0" / "summary.json").stat().st_mtime_ns == before


def test_comparison_knows_the_sizes_that_delays_need(task):
    delays = fadas.Delays(fadas.Mild(shares=(0.6, 0.3, 0.1)), scale_by_data=True)
    results = fadas.compare(
        task, {"a": METHODS["fadas"]}, plan={**PLAN, "delays": delays}, local=LOCAL, seeds=[1], executor="inline"
    )
    schedule = METHODS["fadas"].schedule(PLAN["concurrency"], PLAN["buffer"])
    limits = {key: value for key, value in PLAN.items() if key in ("clients", "steps", "updates", "time")}
    timeline = fadas.plan(schedule, delays=delays, sizes=task.sizes, seed=1, **limits)
    assert results.runs[0].summary.time == timeline.time[-1]


def test_comparison_ends_runs_early_as_a_file_does(task, tmp_path):
    options = {"plan": PLAN, "local": LOCAL, "executor": "inline", "folder": tmp_path, "jobs": 1}
    slow = fadas.FADAS(eta=1e-12)
    (run,) = fadas.compare(task, {"patient": slow}, patience=2, keep="best", **options).runs
    assert (run.summary.step, run.summary.best_step) == (2, 0)
    (run,) = fadas.compare(task, {"reached": METHODS["mine"]}, target=0.4, stop_at_target=True, **options).runs
    assert run.summary.time_to_target == run.summary.time > 0
    assert run.summary.updates < 24
    with pytest.raises(ConfigError, match='"best" keeps no model: the task has no test data'):
        fadas.compare(replace(task, test=None), {"a": slow}, keep="best", **options)


def test_run_ends_well_beside_a_run_of_another_metric(task, tmp_path):
    list(simulate(task, tmp_path / "accuracy-1"))
    with pytest.warns(FadasWarning, match=r"no report of .*judged by different metrics"):
        list(simulate(task, tmp_path / "loss-1", metric="loss"))
    assert (tmp_path / "loss-1" / "summary.json").exists()


def test_comparison_makes_the_task_of_each_seed(tmp_path):
    results = fadas.compare(
        lambda seed: make_task(seed=seed), {"a": METHODS["mine"]}, plan=PLAN, seeds=[0, 1], executor="inline"
    )
    one, two = (run.initial.metrics["loss"] for run in results.runs)
    assert one != two
    assert results.table().split("\n\n")[0].count("\n") == 2, "both seeds are one method"


def test_comparison_goes_by_any_metric(tmp_path):
    def rmse(outputs, targets):
        return (outputs.flatten() - targets).square().mean().sqrt()

    clients = [(torch.randn(6, 3), torch.randn(6)) for _ in range(8)]
    task = fadas.Task(
        nn.Sequential(nn.Linear(3, 1), nn.Flatten(0)),
        clients,
        loss=nn.MSELoss(),
        test=clients[0],
        metrics={"rmse": rmse},
    )
    results = fadas.compare(task, {"a": METHODS["mine"]}, plan=PLAN, executor="inline", folder=tmp_path)
    summary = json.loads((tmp_path / "a-0" / "summary.json").read_text())
    assert (summary["metric"], summary["better"], summary["metric_format"]) == ("rmse", "lower", "number")
    assert summary["final"] == pytest.approx(results.frame()["score"][0])
    assert "accuracy" not in summary


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"methods": {}}, "at least one method"),
        ({"methods": {"a": 3}}, "a must be an algorithm, got 3"),
        ({"methods": {"a/b": fadas.FADAS()}}, "cannot be 'a/b'"),
        ({"seeds": []}, "seeds must be different numbers"),
        ({"seeds": [1, 1]}, "seeds must be different numbers"),
        ({"plan": {**PLAN, "concurency": 3}}, "plan has no key 'concurency'"),
        ({"plan": {"clients": 8}}, "plan needs the key 'concurrency'"),
        ({"metric": "rmse"}, "the task does not measure 'rmse'; choose one of: accuracy, loss"),
    ],
)
def test_mistake_in_a_comparison_gives_a_clear_error(task, change, message):
    options = {"methods": METHODS, "plan": PLAN, "seeds": [0], "jobs": 1, "executor": "inline", **change}
    with pytest.raises(ConfigError, match=message):
        fadas.compare(task, options.pop("methods"), **options)


def test_descriptions_tell_settings_apart():
    assert describe(fadas.FADAS(eta=0.1)) == describe(fadas.FADAS(eta=0.1)) != describe(fadas.FADAS(eta=0.2))
    assert describe(lambda x: x + 1) != describe(lambda x: x + 2)
    assert describe(torch.zeros(3)) != describe(torch.ones(3))
    assert describe({"a": None, "b": (1, 2)}) == {"b": [1, 2]}
    assert "0x" not in str(describe(object()))
    assert describe(partial(max, 3)) == describe(partial(max, 3))
