"""Baselines: pooled data, and clients that train alone."""

import math
from dataclasses import replace

import pytest
import torch

import fadas
from fadas.algorithms.algorithm import Algorithm
from fadas.algorithms.companions import Proximal
from fadas.algorithms.presets import ALGORITHMS, Centralised, FedBuff, LocalOnly
from fadas.core.model import Model
from fadas.errors import ConfigError
from fadas.executors.inline import Inline
from fadas.experiments.prepare import make_plan as prepare_plan, make_simulation, make_task as prepare_task
from fadas.experiments.run import execute_until
from fadas.report.clients import participation_table
from fadas.report.comparison import compare
from fadas.report.figures.curves import collect_points
from fadas.report.table import table_cells, table_header
from fadas.runs.folder import claim
from fadas.runs.reader import read_run
from fadas.simulation.baselines import pool_clients
from fadas.simulation.planner import ARRIVED
from fadas.tasks.task import Subsets, Task, evaluate_clients
from fadas.training.flat_module import FlatModule
from fadas.training.one_job import train_job
from helpers.experiments import BASE, execute_in, resolve_text
from helpers.training import LOCAL, make_plan, make_task

TEXT = BASE.replace("[algorithms.fadas]", "[algorithms.fadas]\n[algorithms.centralised]\n[algorithms.local-only]")


def split(task):
    """The task with a test split for each client, of which one is empty."""
    return replace(task, client_test=[[c[: client % 3] for c in task.test] for client in range(len(task.clients))])


def train_alone(task, plan):
    """Each client's model after its jobs, trained without the simulator."""
    flat = FlatModule(task.module(plan.seed))
    models = dict.fromkeys(range(plan.clients), flat.read())
    for id in plan.ended.tolist():
        job = plan.job(id)
        if plan.outcome[id] == ARRIVED:
            update = train_job(flat, task, LOCAL, plan.seed, job, models[job.client])
            models[job.client] = Model(update.base + update.delta, update.buffers)
    return flat, models


@pytest.mark.parametrize("executor", ["inline", "batched", "processes"])
@pytest.mark.parametrize("batchnorm", [False, True])
def test_clients_that_train_alone_start_from_their_own_models(executor, batchnorm):
    task = split(make_task(batchnorm=batchnorm))
    plan = make_plan(LocalOnly(), len(task.clients))
    simulation = fadas.simulate(plan, task, LocalOnly(), LOCAL, executor=executor, clients_eval_every=1000)
    *_, last = simulation
    flat, models = train_alone(task, plan)
    measured, own = [], []
    for client, model in models.items():
        flat.load(model)
        measured.append(task.evaluate(flat.module))
        own.append(evaluate_clients(task, flat.module)["loss"][client])
        torch.testing.assert_close(simulation.own[client].params, model.params, rtol=1e-3, atol=1e-5)
    expected = {name: sum(row[name] for row in measured) / len(measured) for name in measured[0]}
    assert last.metrics == pytest.approx(expected, rel=1e-3, abs=0.011)
    assert simulation.clients_metrics["loss"] == pytest.approx(own, rel=1e-3, nan_ok=True)
    assert len({model.params.sum().item() for model in models.values()}) > 2, "the models differ"


def test_local_only_needs_no_server_test_data_and_takes_any_values():
    task = replace(make_task(), test=None)
    plan = make_plan(LocalOnly(), len(task.clients), dropout=0.0, steps=40)
    simulation = fadas.simulate(plan, task, LocalOnly(), LOCAL, executor="inline", eval_every=1000)
    records = list(simulation)
    assert len({job.client for record in records for job in record.jobs}) == len(task.clients), "all have trained"
    assert records[-1].metrics == {}
    simulation.own.take_tensors(simulation.own.to_tensors())
    values = iter([math.inf, -math.inf, *[1e308] * 6])
    assert math.isnan(simulation.own.evaluate(lambda model: {"a": next(values)})["a"])


def test_server_holds_the_average_of_models_that_train_alone():
    task = make_task()
    plan = make_plan(LocalOnly(), len(task.clients))
    simulation = fadas.simulate(plan, task, LocalOnly(), LOCAL, executor="inline")
    list(simulation)
    mean = torch.stack([simulation.own[client].params for client in range(plan.clients)]).mean(0)
    torch.testing.assert_close(simulation.server.model.params, mean)


def test_refused_updates_leave_a_clients_own_model():
    faults = (fadas.simulation.faults.Fault("nan", (1, 2)),)
    task = make_task()
    plan = make_plan(LocalOnly(), len(task.clients), faults=faults)
    simulation = fadas.simulate(plan, task, LocalOnly(), LOCAL, executor="inline")
    *_, last = simulation
    assert simulation.progress.refusals
    assert last.metrics["loss"] == last.metrics["loss"], "not NaN"
    initial = FlatModule(task.module(plan.seed)).read().params
    assert torch.equal(simulation.own[1].params, initial)


def test_pooled_data_are_all_data_in_parts_of_the_same_sizes():
    task = make_task()
    pooled = pool_clients(task, seed=3)
    assert pooled.sizes == task.sizes
    before = torch.cat([x for x, _ in task.clients])
    after = torch.cat([pooled.clients[client][0] for client in range(len(task.clients))])
    assert sorted(before.tolist()) == sorted(after.tolist())
    assert not torch.equal(before, after)
    again = pool_clients(task, seed=3)
    assert all(torch.equal(one, other) for one, other in zip(pooled.clients.parts, again.clients.parts, strict=True))
    other = pool_clients(task, seed=4)
    assert any(
        not torch.equal(one, other) for one, other in zip(pooled.clients.parts, other.clients.parts, strict=True)
    )


def test_subsets_are_pooled_without_a_copy():
    data = (torch.arange(20.0)[:, None], torch.arange(20) % 2)
    task = Task(torch.nn.Linear(1, 2), Subsets(data, [torch.arange(3), torch.arange(5, 12)]), client_test=[data] * 2)
    pooled = pool_clients(task, seed=0)
    assert pooled.clients.data[0].data_ptr() == data[0].data_ptr()
    assert sorted(torch.cat(pooled.clients.parts).tolist()) == [0, 1, 2, *range(5, 12)], "no other example"
    assert pooled.client_test is task.client_test or len(pooled.client_test) == 2


def test_examples_of_different_shapes_cannot_be_pooled():
    data = [(torch.zeros(3, length), torch.zeros(3, dtype=torch.long)) for length in (2, 5)]
    with pytest.raises(ConfigError, match="centralised: the clients' examples differ in shape"):
        pool_clients(Task(torch.nn.Linear(2, 2), data), seed=0)


def test_centralised_training_is_sgd_on_one_model():
    """Job after job, each from where the last one ended."""
    task = make_task()
    plan = make_plan(Centralised(), len(task.clients))
    simulation = fadas.simulate(plan, task, Centralised(), LOCAL, executor="inline")
    records = list(simulation)
    assert all(job.tau == 0 for record in records for job in record.jobs)
    assert all(len(record.jobs) == 1 for record in records)
    pooled = pool_clients(task, plan.seed)
    flat = FlatModule(pooled.module(plan.seed))
    model = flat.read()
    for id in plan.ended.tolist():
        if plan.outcome[id] == ARRIVED:
            update = train_job(flat, pooled, LOCAL, plan.seed, plan.job(id), model)
            model = Model(model.params + update.delta, update.buffers)
    torch.testing.assert_close(simulation.server.model.params, model.params)


@pytest.mark.parametrize("schedule", [fadas.Schedule(5, 3), fadas.Schedule(1, 1, "arrival")])
def test_centralised_refuses_jobs_that_do_not_follow_each_other(schedule):
    task = make_task()
    plan = make_plan(Centralised(), len(task.clients), schedule=schedule)
    with pytest.raises(ConfigError, match=r"centralised training takes one job after the other: .* got concurrency "):
        fadas.simulate(plan, task, Centralised(), LOCAL)


def test_refill_of_the_experiment_is_not_for_centralised(tmp_path):
    _, simulation = prepare(tmp_path, "centralised", 'schedule.refill="arrival"')
    assert not simulation.plan.tau.any()
    _, simulation = prepare(tmp_path, "local-only", 'schedule.refill="round"')
    assert simulation.plan.schedule.refill == "round"


@pytest.mark.parametrize("as_template", [False, True])
def test_comparison_from_python_delays_and_loses_nothing_of_centralised(as_template):
    task, delays = make_task(), fadas.Delays(fadas.Large(), dropout=0.4, deadline=60.0)
    settings = {"concurrency": 5, "buffer": 3, "clients": 8, "delays": delays, "updates": 24}
    plan = fadas.plan(fadas.Schedule(5, 3), 8, delays, updates=24) if as_template else settings
    results = fadas.compare(task, {"fedbuff": FedBuff(), "centralised": Centralised()}, plan=plan, local=LOCAL, jobs=1)
    fedbuff, centralised = (run.summary for run in results.runs)
    assert (fedbuff.updates, centralised.updates) == (24, 24)
    assert fedbuff.dropped + fedbuff.expired > 0
    assert centralised.dropped + centralised.expired == 0
    if not as_template:
        time = {key: value for key, value in settings.items() if key != "updates"} | {"time": 100.0}
        with pytest.raises(ConfigError, match=r"^centralised: centralised training has no virtual time; set"):
            fadas.compare(task, {"centralised": Centralised()}, plan=time, local=LOCAL)


def test_centralised_takes_no_executor_of_another_task(task):
    plan = make_plan(Centralised(), len(task.clients))
    with pytest.raises(ConfigError, match="give the executor by name"):
        fadas.simulate(plan, task, Centralised(), LOCAL, executor=Inline(task, LOCAL, 0))


@pytest.mark.parametrize("name", ["centralised", "local-only"])
def test_baseline_is_refused_in_deployments(name):
    with pytest.raises(ConfigError, match=f'the baseline "{name}" runs in simulations only'):
        ALGORITHMS[name]().deployed()


def test_impossible_baselines_are_refused():
    with pytest.raises(ValueError, match="companion has no meaning for the baseline"):
        Algorithm(baseline="local-only", companion=Proximal(0.1))
    with pytest.raises(ValueError, match="baseline must be one of centralised, local-only"):
        Algorithm(baseline="central")


def prepare(folder, label, *overrides):
    config = resolve_text(folder, TEXT, label=label, overrides=("run.steps=8", "task.client_test=0.3", *overrides))
    task = prepare_task(config)
    return config, make_simulation(config, task, prepare_plan(config, task))


@pytest.mark.parametrize("label", ["centralised", "local-only"])
@pytest.mark.parametrize("pause_at", [3, 7])
def test_baseline_resumes_with_same_files(tmp_path, label, pause_at):
    evaluate = ("run.clients_eval_every=2",)
    execute_in(tmp_path / "whole", *prepare(tmp_path, label, *evaluate))
    config, simulation = prepare(tmp_path, label, *evaluate)
    execute_until(config, simulation, claim(tmp_path / "o", config.tables), pause_at)
    execute_in(tmp_path / "o", *prepare(tmp_path, label, *evaluate), mode="resume")
    for file in ("metrics.jsonl", "clients.jsonl", "model.safetensors", "config.toml"):
        assert (tmp_path / "o" / file).read_bytes() == (tmp_path / "whole" / file).read_bytes()
    assert read_run(tmp_path / "o").baseline == label


def test_settings_of_a_baseline_resolve_to_themselves(tmp_path):
    for label in ("centralised", "local-only"):
        config = resolve_text(tmp_path, TEXT, label=label)
        assert config.algorithm == ALGORITHMS[label]()
        assert config.schedule.concurrency == (1 if label == "centralised" else 6)


def test_custom_parts_keep_the_baseline(tmp_path):
    parts = ('algorithms.centralised.optimizer={name="adam"}', 'algorithms.centralised.step_size={name="constant"}')
    config = resolve_text(tmp_path, TEXT, label="centralised", overrides=parts)
    assert config.algorithm.baseline == "centralised"
    assert config.tables["algorithms"]["centralised"]["baseline"] == "centralised"


def test_delays_play_no_role_for_centralised_training(tmp_path):
    lost = ("delays.dropout=0.5", "delays.deadline=2.0", "run.time=3.0", "run.updates=20")
    _, simulation = prepare(tmp_path, "centralised", *lost)
    assert simulation.plan.statistics()["updates"] == 8
    assert simulation.plan.statistics()["dropped"] == simulation.plan.statistics()["expired"] == 0
    assert simulation.plan.tiers is not None
    text = TEXT.replace("steps = 4", "time = 30.0")
    config = resolve_text(tmp_path, text, label="centralised")
    with pytest.raises(ConfigError, match=r"algorithms\.centralised: .*has no virtual time; set run\.updates"):
        prepare_plan(config)


def test_comparison_has_baselines_without_times(tmp_path):
    target = ("run.target=0.01",)
    runs = []
    for label in ("fadas", "centralised", "local-only"):
        execute_in(tmp_path / f"{label}-0", *prepare(tmp_path, label, *target))
        runs.append(read_run(tmp_path / f"{label}-0"))
    comparison = compare(runs)
    assert comparison.time == min(runs[0].records[-1].time, runs[2].records[-1].time)
    rows = {row[0]: dict(zip(table_header(comparison), row, strict=True)) for row in table_cells(comparison)}
    (at_time,) = [title for title in table_header(comparison) if "at time" in title]
    (to_target,) = [title for title in table_header(comparison) if "time to" in title]
    assert rows["centralised"][at_time] == rows["centralised"][to_target] == "-"
    assert "%" in rows["local-only"][at_time]
    (line,) = collect_points(runs, "time", None)["centralised"]
    assert line[0, 1] == line[1, 1] == runs[1].records[-1].metrics["accuracy"], "a level line"
    assert [row[0] for row in participation_table(runs)[1]] == ["fadas", "local-only"]
