"""The section [local]: which trainer, its settings, what a method overrides, and what counts as a setting."""

import sys

import pytest

from fadas import simulate
from fadas.errors import ConfigError
from fadas.experiments.prepare import make_plan, make_task
from fadas.registry import ALLOW_CODE
from fadas.runs.same_run import differing_settings, same_run
from fadas.runs.serialization import to_toml
from fadas.training import Adam, AdamW, Cosine, CustomStep, LocalSGD, Momentum, Nesterov, Steps, TorchOptimizer
from helpers.experiments import BASE, resolve_text

OWN = """
from dataclasses import dataclass
from fadas.executors import Inline
from fadas.training import Momentum

def signs(params, grads, state, t):
    params -= state["lr"] * grads.sign()

@dataclass(frozen=True)
class Heavy(Momentum):
    beta: float = 0.99

class Slow(Inline):
    def __init__(self, task, local, seed, device="cpu", pause: float = 0.0):
        super().__init__(task, local, seed, device)
"""


@pytest.fixture
def own_code(tmp_path, monkeypatch):
    (tmp_path / "own_local.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv(ALLOW_CODE, "1")
    yield
    sys.modules.pop("own_local", None)


@pytest.mark.parametrize(
    ("text", "local"),
    [
        ("", LocalSGD()),
        ('name = "sgd"\nmu = 0.1', LocalSGD(mu=0.1)),
        ('name = "momentum"\nlr = 0.2\nbeta = 0.5\nclip = 3', Momentum(0.2, beta=0.5, clip=3.0)),
        ('name = "nesterov"', Nesterov()),
        ('name = "adamw"\nweight_decay = 0.1\nschedule = {name = "cosine", steps = 9}',
         AdamW(weight_decay=0.1, schedule=Cosine(9))),
        ('schedule = {name = "steps", every = 5}', LocalSGD(schedule=Steps(5))),
        ('name = "torch"\noptimizer = "RMSprop"\noptions = {alpha = 0.5}',
         TorchOptimizer(optimizer="RMSprop", options={"alpha": 0.5})),
    ],
)  # fmt: skip
def test_section_names_a_trainer(tmp_path, text, local):
    config = resolve_text(tmp_path, f"{BASE}\n[local]\n{text}\n")
    assert config.local == local
    again = resolve_text(tmp_path, f"{BASE}\n[local]\n")
    assert same_run(config.tables, again.tables) is (local == LocalSGD())


def test_settings_of_sgd_are_written_as_before(tmp_path):
    """A run of an earlier version is the same run."""
    config = resolve_text(tmp_path, f'{BASE}\n[local]\nname = "sgd"\n')
    assert config.tables["local"] == {"lr": 0.01, "epochs": 2, "batch_size": 50, "weight_decay": 1e-4}


def test_method_overrides_trainer_and_drops_settings_of_the_other(tmp_path):
    text = f'{BASE}\n[algorithms.fedbuff]\nlocal.name = "sgd"\n[local]\nname = "momentum"\nlr = 0.3\nbeta = 0.5\n'
    assert resolve_text(tmp_path, text).local == Momentum(0.3, beta=0.5)
    assert resolve_text(tmp_path, text, "fedbuff").local == LocalSGD(0.3)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('name = "momentun"', "unknown local 'momentun'; did you mean 'momentum'"),
        ('name = "momentum"\nbeta = 1.5', "local.beta must be"),
        ("mu = -1", "local.mu must be"),
        ("steps = 0", "local.steps must be at least 1, got 0"),
        ("momentum = 0.9", "unknown key 'local.momentum'"),
        ("schedule = 3", "local.schedule must be a name or a table with a name, got 3"),
        ('schedule = "cosine"', "local.schedule.steps is missing"),
        ('schedule = {name = "cosine", steps = 0}', "local.schedule.steps must be at least 1, got 0"),
        ('schedule = "linear"', "unknown rate schedule 'linear'"),
        ('name = "torch"\noptimizer = "Sgd"', "local: torch.optim.Sgd cannot train clients"),
    ],
)
def test_mistake_gives_one_line(tmp_path, text, message):
    with pytest.raises(ConfigError) as error:
        resolve_text(tmp_path, f"{BASE}\n[local]\n{text}\n")
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_trainer_and_step_may_be_own_code(tmp_path, own_code):
    config = resolve_text(tmp_path, f'{BASE}\n[local]\nname = "own_local:signs"\nlr = 0.2\n')
    assert isinstance(config.local, CustomStep)
    assert config.tables["local"]["name"] == "own_local:signs"
    assert config.tables["code"].keys() == {"own_local"}, "changed code is another run"
    assert "function" not in config.tables["local"]
    assert resolve_text(tmp_path, f'{BASE}\n[local]\nname = "own_local:Heavy"\n').local.beta == 0.99


def test_own_code_needs_permission(tmp_path, own_code, monkeypatch):
    monkeypatch.delenv(ALLOW_CODE)
    with pytest.raises(ConfigError, match="runs only with --allow-code"):
        resolve_text(tmp_path, f'{BASE}\n[local]\nname = "own_local:signs"\n')


def test_settings_of_own_executor_count(tmp_path, own_code):
    one, other, same = (
        resolve_text(tmp_path, f'{BASE}\n[executor]\nname = "own_local:Slow"\n{text}\n').tables
        for text in ("", "pause = 1.0", "threads = 1")
    )
    assert not same_run(one, other)
    assert differing_settings(one, other) == ["executor.pause was 0.0 and is 1.0"]
    assert same_run(one, same)
    assert not same_run(one, resolve_text(tmp_path).tables)


def test_python_and_experiment_give_the_same_model(tmp_path):
    text = f'{BASE}\n[local]\nname = "adam"\nlr = 0.003\nmu = 0.1\nsteps = 3\n'
    config = resolve_text(tmp_path, text)
    task = make_task(config)
    plan = make_plan(config, task)
    one = simulate(plan, task, config.algorithm, config.local, executor="inline")
    other = simulate(plan, task, config.algorithm, Adam(0.003, mu=0.1, steps=3), executor="inline")
    assert [record.train_loss for record in one] == [record.train_loss for record in other]
    assert one.server.model.params.equal(other.server.model.params)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{name = 'uniform', low = 0, high = 4}", "local.steps.low must be at least 1, got 0"),
        ("{name = 'unifrom', low = 1, high = 4}", "unknown step law 'unifrom'; did you mean 'uniform'"),
        ("{low = 1, high = 4}", "local.steps.name is missing; known: table, uniform, lognormal"),
        ("'uniform'", "local.steps.low is missing"),
    ],
)
def test_mistake_in_a_law_says_nothing_of_whole_numbers(tmp_path, text, message):
    with pytest.raises(ConfigError) as error:
        resolve_text(tmp_path, f"{BASE}\n[local]\nsteps = {text}\n")
    assert str(error.value).startswith(message)


@pytest.mark.parametrize(
    "text",
    ['preset = "fedbuff"\ncompanion = "control-variates"', 'preset = "fednova"\ncombine = {name = "normalized"}'],
)
def test_parts_with_class_variables_are_written_as_they_are_read(tmp_path, text):
    config = resolve_text(tmp_path, f"{BASE}\n[algorithms.mine]\n{text}\n", "mine")
    written = to_toml(config.tables)
    again = resolve_text(tmp_path, written, "mine")
    assert again.algorithm == config.algorithm
    assert again.tables == config.tables


def test_method_that_does_not_fit_is_refused_before_any_run(tmp_path):
    text = f'{BASE}\n[algorithms.scaffold]\n[local]\nname = "adam"\n'
    assert resolve_text(tmp_path, text).local == Adam()
    with pytest.raises(ConfigError, match=r'algorithms.scaffold: control variates .* need local.name = "sgd"'):
        resolve_text(tmp_path, text, "scaffold")
