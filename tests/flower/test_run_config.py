"""An app's settings as an algorithm and a schedule."""

import sys
import tomllib
from dataclasses import replace

import pytest

pytest.importorskip("flwr")

import fadas
from fadas.algorithms import SGD, AMSGrad, Clipped, Constant, DelayAdaptive, Mean, Private, Trimmed
from fadas.flower import AsyncStrategy
from fadas.flower.journal import Journal
from fadas.flower.options import find_misspelt
from fadas.runs.same_run import differing_settings


def options_of(**settings):
    return AsyncStrategy.from_run_config({key.replace("_", "-"): value for key, value in settings.items()}).options


def test_part_of_preset_is_exchanged():
    pytest.importorskip("dp_accounting")
    options = options_of(
        algorithm="fadas-da",
        algorithm_eta=0.02,
        algorithm_combine="private",
        algorithm_combine_clip=0.5,
        algorithm_combine_noise=2,
        per_client=1,
    )
    assert options.algorithm == fadas.Algorithm(Private(0.5, 2.0), AMSGrad(), DelayAdaptive(0.02, 8))
    assert (options.schedule.per_client, options.name) == (1, "fadas-da")
    assert options.checks.norm_factor == 0.0, "a private rule clips deltas itself"


def test_settings_of_app_are_kept_with_the_run(tmp_path):
    """Not those of sinks, which may hold passwords. A run with others continues: the server uses none of them."""
    settings = {"algorithm": "fadas", "metric": "", "folder": str(tmp_path), "sinks": "mlflow"}
    options = [
        AsyncStrategy.from_run_config({**settings, "lr": lr, "sinks-mlflow-tracking-uri": "http://me:secret@x"}).options
        for lr in (0.1, 0.2)
    ]
    assert options[0].app == {"algorithm": "fadas", "lr": 0.1}
    journals = [Journal(tmp_path, replace(one, sinks=()), 5, "none") for one in options]
    journals[0].open(lambda tensors, values: 0)
    config = tomllib.loads((tmp_path / "fadas-0" / "config.toml").read_text())
    journals[0].close()
    assert config["app"] == options[0].app
    assert differing_settings(config, {**config, "app": options[1].app}) == []


def test_misspelt_setting_of_app_is_named():
    config = {"epoch": 5, "algorithm-eta": 0.1, "my-own-key": 3, "lr": 0.1}
    assert find_misspelt(config) == {"epoch": "epochs"}


def test_metric_of_app_has_direction_and_format():
    metric = options_of(metric="score", better="lower", format="percent", target=0.2).metric
    assert metric == fadas.Metric("score", "lower", "percent")


def test_custom_algorithm_is_made_of_named_parts():
    made = options_of(
        algorithm="custom",
        algorithm_combine="trimmed",
        algorithm_combine_trim=2,
        algorithm_optimizer="amsgrad",
        algorithm_optimizer_beta1=0.8,
        algorithm_step_size="delay-adaptive",
        algorithm_step_size_eta=0.3,
        algorithm_step_size_tau_c=4,
    )
    assert made.algorithm == fadas.Algorithm(Trimmed(2), AMSGrad(beta1=0.8), DelayAdaptive(0.3, 4))
    assert made.schedule.per_client == 1, "the default of robust rules"


OWN = """
import fadas
from fadas.algorithms import Constant, Mean, SGD

SCALE = 2.0

def Double(eta: float = 1.0):
    return fadas.Algorithm(Mean(), SGD(), Constant(SCALE * eta))
"""


@pytest.fixture
def own_module(monkeypatch, tmp_path):
    """A module beside an app, whose settings may name it without further permission."""
    monkeypatch.delenv("FADAS_ALLOW_CODE")
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "ownrule.py").write_text(OWN)
    yield
    sys.modules.pop("ownrule", None)


def test_app_may_name_its_own_method(own_module):
    options = options_of(algorithm="ownrule:Double", algorithm_eta=0.5)
    assert options.algorithm == fadas.Algorithm(Mean(), SGD(), Constant(1.0))
    assert options.name == "Double"
    parts = options_of(algorithm="custom", algorithm_combine="fadas.algorithms:Trimmed", algorithm_combine_trim=2)
    assert parts.algorithm.combine == Trimmed(2)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("ownrule:Duble", "cannot import algorithm 'ownrule:Duble' in the app: "),
        ("nothing:Double", "cannot import algorithm 'nothing:Double' in the app: No module named 'nothing'"),
        ("ownrule:SCALE", "algorithm 'ownrule:SCALE' must be a class or a function, got float"),
    ],
)
def test_own_method_that_cannot_be_used_is_named(own_module, name, message):
    with pytest.raises(fadas.ConfigError) as refused:
        options_of(algorithm=name)
    assert message in str(refused.value)


def test_zero_per_client_lifts_limit_of_robust_rules():
    options = options_of(algorithm_combine="clipped", per_client=0)
    assert options.algorithm == fadas.Algorithm(Clipped(), AMSGrad(), Constant(0.001))
    assert options.schedule.per_client == 0
    assert options_of(algorithm_combine="clipped", per_client="").schedule.per_client == 1


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"algorithm_combine": "privat"}, "unknown combine rule 'privat'; did you mean 'private'?"),
        ({"algorithm_combine": 1.0}, "combine rule must be a name, got 1.0"),
        ({"algorithm_combine_clip": 1.0}, "algorithm-combine is missing: algorithm-combine-clip needs it; known: mean"),
        (
            {"algorithm_combine": "trimmed", "algorithm_combine_trem": 1},
            "unknown key 'algorithm-combine-trem'; did you mean 'algorithm-combine-trim'?",
        ),
        ({"algorithm_combin": "mean"}, "unknown key 'algorithm-combin'; did you mean 'algorithm-combine'?"),
        ({"algorithm_combiner": "mean"}, "unknown key 'algorithm-combiner'; did you mean 'algorithm-combine'?"),
        ({"algorithm": "fadas-da", "algorithm_tau_d": 3}, "did you mean 'algorithm-tau-c'?"),
        ({"algorithm_eta": -1.0}, "algorithm-eta must be"),
        ({"algorithm_step_size": "constant", "algorithm_step_size_eta": "x"}, "algorithm-step-size-eta must be a num"),
        (
            {"algorithm_eta": 0.5, "algorithm_step_size": "constant"},
            "algorithm-eta has no effect together with algorithm-step-size; set it there",
        ),
    ],
)
def test_bad_settings_are_named_as_in_the_app(settings, message):
    with pytest.raises(fadas.ConfigError) as refused:
        options_of(**settings)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(("folder", "warned"), [("", True), ("/srv/runs", False)])
def test_missing_folder_is_logged(monkeypatch, folder, warned):
    told = []
    monkeypatch.setattr("fadas.flower.strategy.log", lambda level, text, *values: told.append(text))
    options_of(folder=folder)
    assert any(text.startswith("folder is not set: no model is kept") for text in told) == warned
