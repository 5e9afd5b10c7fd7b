"""Settings that would run or allocate memory without end are refused before anything runs."""

import numpy as np
import pytest

from fadas.errors import ConfigError
from fadas.experiments import prepare
from fadas.experiments.experiment_file import read_experiment
from fadas.experiments.prepare import make_plan, make_simulation, make_task
from fadas.experiments.resolve import experiment_seeds
from fadas.experiments.sweeps.points import grid_points
from fadas.simulation.planner import plan
from fadas.tasks import partition
from helpers.cli import DEMO, run_fadas
from helpers.experiments import BASE, resolve_text

HUGE = 2**62
ABSURD = [
    (f"local.steps={HUGE}", "local.steps must be at most 1,000,000 (one job would train for hours), got 4,611,686"),
    (f"local.epochs={HUGE}", "local.epochs must be at most 1,000,000 (one job would train for hours)"),
    (f"local.batch_size={HUGE}", "local.batch_size must be at most 100,000,000 (no client has so many examples)"),
    (f"executor.threads={HUGE}", "executor.threads must be at most 1,024 (threads beyond"),
    (f"run.eval_every={HUGE}", "run.eval_every must be at most 1,000,000,000 (no run has so many steps)"),
    (f"run.checkpoint_every={HUGE}", "run.checkpoint_every must be at most 1,000,000,000"),
    (f"schedule.buffer={HUGE}", "schedule.buffer must be at most 1,000,000 (the server would hold"),
    ("run.time=1e400", "run.time must be a positive number, got inf"),
    ("local.lr=1e400", "local.lr must be a positive number, got inf"),
]


@pytest.mark.parametrize(("override", "message"), ABSURD, ids=[override for override, _ in ABSURD])
def test_absurd_setting_is_refused_with_reason(tmp_path, override, message):
    with pytest.raises(ConfigError) as caught:
        resolve_text(tmp_path, overrides=[override])
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize("name", ["warmup", "cosine", "inverse-sqrt"])
def test_absurd_length_of_step_size_is_refused(tmp_path, name):
    override = f"algorithms.fadas={{preset='custom',step_size={{name='{name}',steps={HUGE}}}}}"
    with pytest.raises(ConfigError, match=r"step_size.steps must be at most 1,000,000,000 \(no run has so many steps"):
        resolve_text(tmp_path, overrides=[override])


@pytest.mark.parametrize("key", ["local.steps", "task.clients", "executor.size", "run.seeds", "faults.x.clients"])
@pytest.mark.parametrize(
    ("value", "shown"), [(2**64, "18,446,744,073,709,551,616"), (10**400, "a number of 1,329 bits")]
)
def test_whole_number_beyond_64_bits_is_refused(key, value, shown):
    with pytest.raises(
        ConfigError, match=f"{key} must fit into 64 bits, the size of TOML's whole numbers, got {shown}"
    ):
        read_experiment(DEMO, [f"{key}=[{value}]" if key.endswith("s") else f"{key}={value}"])


def test_seed_option_beyond_64_bits_is_refused(tmp_path):
    done = run_fadas("plan", DEMO, "--seed", 2**64, cwd=tmp_path, code=2)
    assert done.stderr.startswith("fadas: run.seeds must fit into 64 bits")


def test_thousands_of_seeds_are_refused():
    assert len(experiment_seeds(read_experiment(DEMO, [f"run.seeds={list(range(1000))}"]))) == 1000
    tables = read_experiment(DEMO, [f"run.seeds={list(range(1001))}"])
    with pytest.raises(ConfigError, match=r"run: the number of seeds must be at most 1,000 \(each seed is a run"):
        experiment_seeds(tables)


@pytest.mark.parametrize(("kind", "clients", "shards"), [("dirichlet", 10**12, 2), ("shards", 5, 10**12)])
def test_partition_into_more_parts_than_examples_is_refused_at_once(monkeypatch, kind, clients, shards):
    monkeypatch.setattr(np, "unique", pytest.fail)
    monkeypatch.setattr(np, "array_split", pytest.fail)
    with pytest.raises(ValueError, match=r"must be at most the number of training examples \(20\), got 1000000000000"):
        partition.deal(np.arange(20), clients, np.random.default_rng(0), kind, 1.0, shards)


def test_absurd_width_of_network_is_refused(tmp_path):
    config = resolve_text(tmp_path, overrides=[f"task.hidden={HUGE}"])
    with pytest.raises(
        ConfigError, match=r"task: hidden must be at most 1,000,000 \(the network would not fit into mem"
    ):
        make_task(config)


def test_epochs_that_make_a_job_of_hours_are_refused(tmp_path):
    """The number of epochs is allowed, but not with so many small batches."""
    config = resolve_text(tmp_path, overrides=["local.epochs=100000", "local.batch_size=1", "executor.name=inline"])
    task = make_task(config)
    largest = max(task.sizes)
    text = rf"at most 1,000,000 \(one job would train for hours\), got {largest * 100000:,} for client"
    with pytest.raises(ConfigError, match=text):
        make_simulation(config, task, make_plan(config, task))


def test_time_limit_beyond_any_plan_is_refused_at_once(tmp_path, monkeypatch):
    planned = []
    monkeypatch.setattr(prepare, "plan", lambda *given, **limits: planned.append(limits) or plan(*given, **limits))
    config = resolve_text(tmp_path, BASE.replace("steps = 4", "time = 1e30"))
    with pytest.raises(ConfigError, match=r"run.time \(1e\+30\) leaves time for about .e\+30 updates; a plan holds at"):
        make_plan(config)
    assert [limits["updates"] for limits in planned] == [1000]


def test_sensible_time_limit_ends_the_plan(tmp_path):
    timeline = make_plan(resolve_text(tmp_path, BASE.replace("steps = 4", "time = 5000.0")))
    assert 4900 < timeline.time[-1] <= 5000
    assert timeline.arrivals.size > 1000


def test_grid_of_too_many_points_is_refused_before_it_is_made():
    grid = {f"k{number}": list(range(10)) for number in range(40)}
    with pytest.raises(
        ConfigError, match=r"sweep.fadas: the number of points must be at most 10,000 \(each point is a"
    ):
        grid_points({"sweep": {"fadas": grid}}, "fadas")
    assert len(grid_points({"sweep": {"fadas": {"eta": list(range(10_000))}}}, "fadas")) == 10_000


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["sweep", DEMO, "-j", "100000"], "--jobs must be at most 1,000 (each is a process with a model of its own)"),
        (["reproduce", "large-cifar10", "--seeds", "10000"], "--seeds must be at most 1,000 (each seed is a run"),
        (["bench", "cpu", "--scale", "1e300"], "--scale must be at most 100 (the benchmark would take hours)"),
    ],
)
def test_absurd_option_is_refused_with_reason(tmp_path, arguments, message):
    done = run_fadas(*arguments, cwd=tmp_path, code=2)
    assert done.stderr.startswith(f"fadas: {message}")
    assert len(done.stderr.splitlines()) == 1
