"""Evaluations on the clients' own test data: when they happen, and clients.jsonl in a run's folder."""

import json
from dataclasses import replace
from itertools import chain

import pytest

import fadas
from fadas.core.records import Record
from fadas.errors import ConfigError, Damaged
from fadas.executors.inline import Inline
from fadas.experiments.prepare import make_plan, make_simulation, make_task
from fadas.experiments.run import execute_until
from fadas.runs.folder import claim
from fadas.runs.reader import read_run
from fadas.simulation.delays import Uniform
from fadas.tasks.task import evaluate_clients
from helpers.experiments import BASE, execute_in, resolve_text
from helpers.training import LOCAL, make_task as make_small_task

SPLIT = BASE.replace('name = "digits"', 'name = "digits"\nclient_test = 0.2')


def prepare_clients_run(folder, *overrides, text=SPLIT):
    """The settings of a short run that evaluates clients, and its simulation."""
    config = resolve_text(folder, text, overrides=("run.steps=7", "run.clients_eval_every=3", *overrides))
    task = make_task(config)
    return config, make_simulation(config, task, make_plan(config, task))


@pytest.fixture
def split_task():
    task = make_small_task()
    return replace(task, client_test=[task.clients[(client + 1) % 8] for client in range(8)])


def steps_of(folder):
    return [json.loads(line)["step"] for line in (folder / "clients.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("executor", ["inline", "batched", "processes"])
def test_clients_are_evaluated_under_every_executor(split_task, executor):
    plan = fadas.plan(fadas.Schedule(4, 2), 8, fadas.Mild(), steps=5, seed=1)
    simulation = fadas.simulate(plan, split_task, fadas.FADAS(), LOCAL, executor=executor, clients_eval_every=2)
    seen = {}
    for record in simulation:
        if simulation.clients_metrics:
            seen[record.step] = simulation.clients_metrics
    assert [*seen] == [2, 4, 5], "the last model too"
    expected = evaluate_clients(split_task, simulation.module())
    assert seen[5] == {name: pytest.approx(row, abs=1e-5) for name, row in expected.items()}


def test_interval_may_be_in_updates_or_time(split_task):
    plan = fadas.plan(fadas.Schedule(4, 2), 8, Uniform(1, 1.5), steps=6, seed=1)
    for every, steps in (("6 updates", [3, 6]), ("1000 time", [6])):
        simulation = fadas.simulate(plan, split_task, fadas.FADAS(), LOCAL, clients_eval_every=every)
        assert [record.step for record in simulation if simulation.clients_metrics] == steps


def test_clients_are_evaluated_at_the_end_of_a_run_that_ends_early(split_task):
    plan = fadas.plan(fadas.Schedule(4, 2), 8, fadas.Mild(), steps=50, seed=1)
    simulation = fadas.simulate(plan, split_task, fadas.FADAS(), LOCAL, clients_eval_every=40, target=0.2)
    steps = [record.step for record in simulation]
    assert steps[-1] < 40
    assert simulation.clients_metrics == evaluate_clients(split_task, simulation.module())


def test_clients_are_not_evaluated_by_default(split_task):
    plan = fadas.plan(fadas.Schedule(4, 2), 8, fadas.Mild(), steps=2, seed=1)
    simulation = fadas.simulate(plan, split_task, fadas.FADAS(), LOCAL)
    list(simulation)
    assert simulation.clients_metrics is None


def test_task_without_client_tests_is_refused():
    task = make_small_task()
    plan = fadas.plan(fadas.Schedule(4, 2), 8, fadas.Mild(), steps=2, seed=1)
    with pytest.raises(ConfigError, match="clients_eval_every needs test data of each client's own"):
        fadas.simulate(plan, task, fadas.FADAS(), LOCAL, clients_eval_every=1)


def test_executor_that_evaluates_no_clients_is_refused(split_task, monkeypatch):
    monkeypatch.delattr(Inline, "evaluate_clients")
    plan = fadas.plan(fadas.Schedule(4, 2), 8, fadas.Mild(), steps=2, seed=1)
    with pytest.raises(ValueError, match=r"Inline does not evaluate clients.*use another executor"):
        fadas.simulate(plan, split_task, fadas.FADAS(), LOCAL, executor="inline", clients_eval_every=1)
    fadas.simulate(plan, split_task, fadas.FADAS(), LOCAL, executor="inline")


@pytest.mark.parametrize("value", ['"50 apples"', "0", '"-1 time"'])
def test_impossible_interval_is_named(tmp_path, value):
    with pytest.raises(ConfigError, match=r"^run\.clients_eval_every"):
        resolve_text(tmp_path, SPLIT, overrides=(f"run.clients_eval_every={value}",))


def test_run_writes_evaluations_and_tiers(tmp_path):
    config, simulation = prepare_clients_run(tmp_path)
    execute_in(tmp_path / "fadas-0", config, simulation)
    run = read_run(tmp_path / "fadas-0")
    assert steps_of(tmp_path / "fadas-0") == [3, 6, 7]
    last, record = run.clients_evaluations[-1], run.records[-1]
    assert (last.step, last.updates, last.time) == (7, record.updates, record.time)
    assert last.clients == 12
    expected = evaluate_clients(simulation.task, simulation.module())
    assert last.metrics["accuracy"] == [None if value != value else value for value in expected["accuracy"]]
    assert run.tiers == simulation.plan.tiers
    assert sorted(chain.from_iterable(run.tiers.values())) == [*range(12)]
    assert run.counts == simulation.task.label_counts()


def test_evaluation_of_clients_changes_nothing_else(tmp_path):
    for name, value in (("with", "3"), ("without", "1000")):
        config, simulation = prepare_clients_run(tmp_path, f"run.clients_eval_every={value}")
        execute_in(tmp_path / name, config, simulation)
    for file in ("metrics.jsonl", "model.safetensors", "partition.json"):
        assert (tmp_path / "with" / file).read_bytes() == (tmp_path / "without" / file).read_bytes()


def test_run_that_evaluates_no_clients_has_no_such_file(tmp_path):
    config = resolve_text(tmp_path)
    task = make_task(config)
    execute_in(tmp_path / "fadas-0", config, make_simulation(config, task, make_plan(config, task)))
    assert not (tmp_path / "fadas-0" / "clients.jsonl").exists()
    assert read_run(tmp_path / "fadas-0").clients_evaluations == []


@pytest.mark.parametrize("pause_at", [6, 9, 11, 21])
def test_resumed_run_writes_the_same_evaluations(tmp_path, pause_at):
    """Some pauses are before the first evaluation, some between two, some after one."""
    config, simulation = prepare_clients_run(tmp_path)
    execute_in(tmp_path / "whole", config, simulation)
    config, simulation = prepare_clients_run(tmp_path)
    folder = tmp_path / "paused"
    execute_until(config, simulation, claim(folder, config.tables), pause_at)
    with (folder / "clients.jsonl").open("a") as file:  # as if the run had gone on after its checkpoint
        file.write('{"step": 7, "updates": 21, "time": 1.0, "metrics": {"accuracy": [0.5]}}\n')
    execute_in(folder, *prepare_clients_run(tmp_path), mode="resume")
    for file in ("clients.jsonl", "metrics.jsonl", "model.safetensors"):
        assert (folder / file).read_bytes() == (tmp_path / "whole" / file).read_bytes()


def test_checkpoint_whose_evaluations_have_changed_is_not_used(tmp_path):
    config, simulation = prepare_clients_run(tmp_path)
    folder = tmp_path / "fadas-0"
    execute_until(config, simulation, claim(folder, config.tables), 12)
    lines = (folder / "clients.jsonl").read_bytes()
    (folder / "clients.jsonl").write_bytes(lines.replace(b"0.", b"1.", 1))
    config, simulation = prepare_clients_run(tmp_path)
    said = []
    execute_in(folder, config, simulation, mode="resume", say=said.append)
    assert any("clients.jsonl does not match this checkpoint" in text for text in said)
    assert steps_of(folder) == [3, 6, 7]


def test_patience_ends_run_with_an_evaluation_of_clients(tmp_path):
    steps = ("run.steps=40", "run.patience=1", "run.clients_eval_every=1000", "algorithms.fadas.eta=1e-12")
    config, simulation = prepare_clients_run(tmp_path, *steps)
    summary = execute_in(tmp_path / "fadas-0", config, simulation)
    assert summary.step < 40
    assert steps_of(tmp_path / "fadas-0") == [summary.step]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"step": 3}', "line 1: it.updates is missing|updates"),
        ('{"step": 0, "updates": 1, "time": 1.0, "metrics": {"a": [1.0]}}', "step must be from 1"),
        ('{"step": 3, "updates": 9, "time": -1.0, "metrics": {"a": [1.0]}}', "time must be at least 0"),
        ('{"step": 3, "updates": 9, "time": 1.0, "metrics": {"a": [1.0]}}', "values of 1 clients, and there are 12"),
        ('{"step": 3, "updates": 9, "time": 1.0, "metrics": {}}', "one value per client"),
        ('{"step": 3, "updates": 9, "time": 1.0, "metrics": {"a": "b"}}', "line 1"),
        ("[]", "line 1"),
        ("{", "line 1"),
    ],
)
def test_damaged_evaluations_are_reported(tmp_path, line, message):
    config, simulation = prepare_clients_run(tmp_path)
    execute_in(tmp_path / "fadas-0", config, simulation)
    (tmp_path / "fadas-0" / "clients.jsonl").write_text(line + "\n")
    with pytest.raises(Damaged, match=rf"clients\.jsonl: .*({message})"):
        read_run(tmp_path / "fadas-0")


def test_damaged_tiers_are_reported(tmp_path):
    config, simulation = prepare_clients_run(tmp_path)
    execute_in(tmp_path / "fadas-0", config, simulation)
    path = tmp_path / "fadas-0" / "partition.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "tiers": {"small": [0, 0]}}))
    with pytest.raises(Damaged, match=r"partition\.json: every client must be in one tier"):
        read_run(tmp_path / "fadas-0")


def test_delays_without_tiers_have_none():
    plan = fadas.plan(fadas.Schedule(4, 2), 8, Uniform(1, 2), steps=2)
    assert plan.tiers is None
    record: Record = next(iter(fadas.simulate(plan, make_small_task(), fadas.FADAS(), LOCAL)))
    assert record.step == 1


def test_tiers_are_those_of_the_plan():
    plan = fadas.plan(fadas.Schedule(10, 5), 20, fadas.Large(shares=(0.5, 0.3, 0.2)), steps=40, seed=3)
    assert {name: len(members) for name, members in plan.tiers.items()} == {"small": 10, "medium": 6, "large": 4}
    for name, (low, high) in {"small": (1, 2), "medium": (3, 5), "large": (50, 80)}.items():
        durations = [plan.end[id] - plan.start[id] for id, c in enumerate(plan.client) if c in plan.tiers[name]]
        assert all(low <= duration <= high + 1e-9 for duration in durations)


def test_run_from_python_keeps_evaluations_and_reads_them_again(split_task, tmp_path):
    plan = fadas.plan(fadas.Schedule(4, 2), 8, fadas.Mild(shares=(0.5, 0.25, 0.25)), steps=4, seed=1)
    seen = []
    for _ in range(2):  # the second one reads the first
        simulation = fadas.simulate(
            plan, split_task, fadas.FADAS(), LOCAL, clients_eval_every=3, folder=tmp_path / "mine" / "fadas-1"
        )
        assert len(list(simulation)) == 4
        seen.append(simulation.clients_metrics)
    assert seen[0] == seen[1] == evaluate_clients(split_task, simulation.module())
    assert steps_of(tmp_path / "mine" / "fadas-1") == [3, 4]
