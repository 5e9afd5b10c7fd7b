"""Experiment files resolved to the settings of a run."""

from dataclasses import replace

import pytest

from fadas.algorithms.algorithm import Algorithm
from fadas.algorithms.combine import Calibrated, ExampleWeighted
from fadas.algorithms.optimizers import AMSGrad, Torch
from fadas.algorithms.presets import FADAS
from fadas.algorithms.step_sizes import DelayAdaptive
from fadas.core.ledger import Schedule
from fadas.errors import ConfigError
from fadas.experiments.experiment_file import read_experiment, select_algorithms
from fadas.experiments.resolve import experiment_seeds, resolve
from fadas.runs.serialization import to_toml
from fadas.simulation.delays import Mild
from helpers.experiments import BASE, resolve_text, write_experiment


def test_algorithm_sections_override_experiment_sections(tmp_path):
    text = BASE + "eta = 0.5\nlocal.lr = 0.2\nrun.eval_every = 7\nschedule.buffer = 2\n[local]\nlr = 0.1\nepochs = 9\n"
    config = resolve_text(tmp_path, text)
    assert (config.local.lr, config.local.epochs) == (0.2, 9)
    assert (config.run.eval_every, config.run.steps) == (7, 4)
    assert config.schedule == Schedule(6, 2, "arrival")
    assert config.algorithm.step_size.eta == 0.5
    assert isinstance(config.delays.model, Mild)


def test_presets_resolve_to_their_schedules(tmp_path):
    text = (
        BASE
        + "[algorithms.fedasync]\n[algorithms.fedavg]\n[algorithms.five]\npreset = 'fedasync'\nschedule.buffer = 5\n"
    )
    assert resolve_text(tmp_path, text, "fedasync").schedule == Schedule(6, 1, "update")
    assert resolve_text(tmp_path, text, "fedavg").schedule == Schedule(6, 6, "round")
    assert resolve_text(tmp_path, text, "five").schedule == Schedule(6, 5, "update")
    assert resolve_text(tmp_path, text, "fadas", ["schedule.refill=update"]).schedule == Schedule(6, 3, "update")


def test_parts_of_presets_can_be_exchanged(tmp_path):
    text = (
        BASE
        + """
[algorithms.mine]
preset = "fadas-da"
tau_c = 2
combine = "calibrated"
[algorithms.other]
preset = "fedavg"
combine = "examples"
optimizer = { name = "torch", optimizer = "RMSprop", options = { alpha = 0.9 } }
[algorithms.whole]
preset = "custom"
optimizer = { name = "amsgrad", bias_correction = true }
step_size = { name = "delay-adaptive", eta = 0.1, tau_c = 3, form = "capped" }
refill = "update"
"""
    )
    mine = resolve_text(tmp_path, text, "mine").algorithm
    assert isinstance(mine.combine, Calibrated)
    assert isinstance(mine.optimizer, AMSGrad)
    assert mine.step_size == DelayAdaptive(0.001, 2)
    other = resolve_text(tmp_path, text, "other").algorithm
    assert isinstance(other.combine, ExampleWeighted)
    assert other.optimizer == Torch("RMSprop", {"alpha": 0.9})
    assert resolve_text(tmp_path, text, "whole").algorithm == Algorithm(
        optimizer=AMSGrad(bias_correction=True), step_size=DelayAdaptive(0.1, 3, "capped"), refill="update"
    )
    assert resolve_text(tmp_path, text, "mine").tables["algorithms"]["mine"]["optimizer"] == {
        "name": "amsgrad", "beta1": 0.9, "beta2": 0.99, "eps": 1e-8, "bias_correction": False, "floor": 0.0
    }  # fmt: skip
    for label in ("mine", "other", "whole"):
        config = resolve_text(tmp_path, text, label)
        assert resolve_text(tmp_path, to_toml(config.tables), label).algorithm == config.algorithm


def test_limits_can_stand_with_algorithm(tmp_path):
    tables = read_experiment(write_experiment(tmp_path, BASE.replace("[run]\nsteps = 4\n", "") + "run.steps = 5\n"))
    assert experiment_seeds(tables) == (0,)
    assert resolve(tables, "fadas", 0).run.steps == 5


def test_preset_can_be_outside_code(tmp_path):
    config = resolve_text(tmp_path, BASE + "preset = 'fadas.algorithms.presets:FedBuff'\n")
    assert config.algorithm.schedule(4, 2).refill == "arrival"


@pytest.mark.parametrize("name", ["helpers.importable:PlainStepSize", "helpers.importable:make_plain_step_size"])
def test_user_parts_are_recorded(tmp_path, name):
    config = resolve_text(tmp_path, BASE + f"step_size = {{ name = '{name}', k = 3.0 }}\n")
    table = config.tables["algorithms"]["fadas"]
    assert table["step_size"] == {"name": name, "k": 3.0}
    again = resolve({**config.tables, "algorithms": {"fadas": table}}, "fadas", 0)
    assert again.algorithm.step_size([0]) == 3.0
    assert again.tables == config.tables


USER_STEP_SIZE = "helpers.importable:PlainStepSize"


@pytest.mark.parametrize("then", [{"name": USER_STEP_SIZE, "k": 3.0}, {"name": USER_STEP_SIZE}, USER_STEP_SIZE])
def test_user_parts_within_parts_are_recorded(tmp_path, then):
    outer = {"name": "warmup", "steps": 2, "then": then}
    tables = {**read_experiment(write_experiment(tmp_path, BASE)), "algorithms": {"fadas": {"step_size": outer}}}
    config = resolve(tables, "fadas", 0)
    written = config.tables["algorithms"]["fadas"]["step_size"]
    assert written == {**outer, "then": {"name": then} if isinstance(then, str) else then}
    again = resolve_text(tmp_path, to_toml(config.tables))
    assert again.algorithm.step_size.then.k == config.algorithm.step_size.then.k
    assert again.tables == config.tables


MISTAKES = [
    ("", ["runn.steps=3"], "unknown section 'runn'; did you mean 'run'?"),
    ("", ["run.stepz=3"], "unknown key 'run.stepz'; did you mean 'run.steps'?"),
    ("", ["local.momentum=1"], "unknown key 'local.momentum'; known: local.batch_size"),
    ("eta = 0.5\nstep_size = { name = 'constant', eta = 0.1 }\n", [], "algorithms.fadas.eta has no effect"),
    ("beta1 = 0.5\noptimizer = 'sgd'\n", [], "algorithms.fadas.beta1 has no effect"),
    ("etta = 1\n", [], "unknown key 'algorithms.fadas.etta'; did you mean 'algorithms.fadas.eta'?"),
    ("", ["run.steps=ten"], "run.steps must be a whole number, got 'ten'"),
    ("", ["run.steps=1.5"], "run.steps must be a whole number"),
    ("", ["run.steps=true"], "run.steps must be a whole number"),
    ("", ["run.steps=0"], "run.steps must be at least 1, got"),
    ("", ["run.time=-1"], "run.time must be a positive number"),
    ("", ['run.metric="accuracy"', "run.target=1.5"], "run.target must be above 0 and at most 1 for accuracy"),
    ("", ['run.metric="score"'], 'run.better must be "higher" or "lower" for the metric "score"'),
    ("", ['run.better="lower"'], "run.better needs a metric"),
    ("", ['run.metric="rmse"', "run.target=-5"], "run.target must be at least 0 for rmse, got -5"),
    ("", ['run.eval_every="50 jobs"'], 'run.eval_every must be a number of server steps, or a text such as "50 upd'),
    ("", ["run.patience=0"], "run.patience must be at least 1"),
    ("", ['run.keep="first"'], "run.keep must be one of"),
    ("", ["run.stop_at_target=true"], "needs a target"),
    ("", ["run.seeds=[1, 1]"], "seeds must be different"),
    ("", ["run.seeds=1"], "run.seeds must be a list"),
    ("", ["local.lr=-0.1"], "local.lr must be a positive number"),
    ("local.lr = nan\n", [], "lr must be a positive number"),
    ("", ["local.lr=nan"], "lr must be a positive number"),
    ("eta = -1\n", [], "algorithms.fadas.eta must be a positive number"),
    ("eta = 'big'\n", [], "algorithms.fadas.eta must be a number, got 'big'"),
    ("", ["schedule.concurrency=13"], "concurrency (13) exceeds the number of clients (12)"),
    ("", ["schedule.buffer=7", "schedule.refill=round"], "buffer (7) exceeds concurrency (6)"),
    ("", ["schedule.refill=never"], "schedule.refill must be one of 'arrival', 'update', 'round', 'released'"),
    ("", ["delays.name=mildd"], "unknown delays 'mildd'; did you mean 'mild'?"),
    ("", ["delays.small=3"], "delays.small must be a list of 2"),
    ("", ["delays.small=[3, 2]"], "delays: small must be a range"),
    ("", ["delays.dropout=1.0"], "delays.dropout must be"),
    ("", ["task.name=mnist"], "unknown task 'mnist'"),
    ("", ["task=3"], "task must be a table"),
    ("", ["task.clients=many"], "task.clients must be a whole number"),
    ("", ["task.seed=3"], "task.seed cannot be set here: set it under [run]"),
    ("", ["task.sed=3"], "unknown key 'task.sed'; known: task.alpha"),
    ("", ["task.hiden=3"], "did you mean 'task.hidden'?"),
    ("", ["delays.dropot=0.5"], "did you mean 'delays.dropout'?"),
    ("", ["executor.divice=cpu"], "did you mean 'executor.device'?"),
    ("", ["executor.name=batched", "executor.thread=2"], "did you mean 'executor.threads'?"),
    ("", ["executor.name=batched", "executor.sed=2"], "known: executor.device, executor.size, executor.threads"),
    ("", ["executor.name=gpu"], "unknown executor 'gpu'"),
    ("", ["executor.wings=3"], "unknown key 'executor.wings'"),
    ("preset = 'fedbuf'\n", [], "unknown algorithm 'fedbuf'; did you mean 'fedbuff'?"),
    ("preset = 'no.such:thing'\n", [], "cannot import algorithm 'no.such:thing'"),
    ("preset = 'no.such:thing'\n", [], "searched the current folder"),
    ("", ["task={name='helpers.training:make_clientless_task', clients=3}"], "must take the argument `clients`"),
    ("preset = 'math:sqrt'\n", [], "algorithms.fadas"),
    ("combine = 'medial'\n", [], "unknown combine rule 'medial'"),
    ("combine = 3\n", [], "must be a name or a table"),
    ("optimizer = { name = 'torch', optimizer = 'Nope' }\n", [], "cannot serve as the server optimizer"),
    ("run.seeds = [3]\n", [], "seeds belong to the experiment"),
    ("[algorithms.nothing]\n", [], None),
    ("", ["run"], "--set takes a.b=c"),
    ("", ["name.x=3"], "name is not a table"),
    ("", ["algorithms.fadas=3"], "algorithms.fadas must be a table"),
    ("", ["name=../up"], "cannot name a folder"),
]


@pytest.mark.parametrize(("text", "overrides", "message"), MISTAKES)
def test_mistake_gives_one_clear_line(tmp_path, text, overrides, message):
    with pytest.raises(ConfigError) as caught:
        tables = read_experiment(write_experiment(tmp_path, BASE + text), overrides)
        for label in select_algorithms(tables):
            for seed in experiment_seeds(tables):
                resolve(tables, label, seed)
    assert "\n" not in str(caught.value)
    assert (message or "unknown algorithm 'nothing'") in str(caught.value)


def test_missing_parts_are_named(tmp_path):
    for missing, message in (
        ("schedule", "schedule.concurrency is missing"),
        ("run", "set a limit: steps, updates or time"),
    ):
        tables = read_experiment(write_experiment(tmp_path, BASE))
        del tables[missing]
        with pytest.raises(ConfigError, match=message):
            resolve(tables, "fadas", 0)
    with pytest.raises(ConfigError, match="No such file"):
        read_experiment(tmp_path / "nowhere.toml")
    tables = read_experiment(write_experiment(tmp_path, BASE))
    with pytest.raises(ConfigError, match="did you mean 'fadas'"):
        select_algorithms(tables, ["fadaz"])


def test_statistics_setting_is_kept_in_saved_settings(tmp_path):
    config = resolve_text(tmp_path, BASE + "eta = 0.5\nstatistics = 0.1\n")
    assert config.algorithm == replace(FADAS(0.5), statistics=0.1)
    assert resolve_text(tmp_path, to_toml(config.tables)).algorithm == config.algorithm
    assert resolve_text(tmp_path, BASE).tables["algorithms"]["fadas"].get("statistics") is None
    with pytest.raises(ConfigError, match="statistics"):
        resolve_text(tmp_path, BASE + "statistics = 2.0\n")


def test_limit_per_client_reaches_schedule_and_saved_settings(tmp_path):
    config = resolve_text(tmp_path, BASE, "fadas", ["schedule.per_client=1", "schedule.excess=replace"])
    assert (config.schedule.per_client, config.schedule.excess) == (1, "replace")
    assert resolve(config.tables, "fadas", 0).schedule == config.schedule
    assert "per_client" not in to_toml(resolve_text(tmp_path, BASE).tables), "older runs stay the same"


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["schedule.per_client=1", "schedule.buffer=9", "task.clients=8"], "8 clients with per_client = 1 never fill"),
        (["schedule.excess=replace"], "excess has no effect without per_client"),
        (["schedule.per_client=-1"], "per_client must be at least 0"),
        (["checks.norm_factor=-1"], "norm_factor must be at least 0"),
        (["checks.examples=0"], "examples must be at least 1"),
    ],
)
def test_limits_and_checks_that_make_no_sense_are_refused(tmp_path, overrides, message):
    with pytest.raises(ConfigError, match=message):
        resolve_text(tmp_path, BASE, "fadas", overrides)
