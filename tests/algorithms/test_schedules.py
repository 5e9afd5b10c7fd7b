"""Warm-up and decays: values by hand, composition, and the way through an experiment file."""

import math

import pytest

from fadas.algorithms import Constant, Cosine, DelayAdaptive, InverseSqrt, Warmup
from fadas.core.ledger import Job
from fadas.core.model import ServerStep
from fadas.errors import ConfigError
from fadas.experiments.experiment_file import read_experiment
from fadas.experiments.resolve import resolve
from helpers.cli import DEMO


def step_at(index, tau=0):
    return ServerStep(index, (Job(0, 0, index - tau),), (tau,), 0, None, (), 1)


def rates(step_size, *indices):
    return [step_size(step_at(index)) for index in indices]


def test_warmup_rises_linearly_and_stays():
    assert rates(Warmup(4, Constant(0.8)), 0, 1, 2, 3, 4, 100) == pytest.approx([0.2, 0.4, 0.6, 0.8, 0.8, 0.8])


def test_cosine_falls_to_floor_and_stays():
    assert rates(Cosine(10, eta=2.0, floor=0.1), 0, 5, 10, 11) == pytest.approx([2.0, 1.1, 0.2, 0.2])
    assert rates(Cosine(4), 1) == pytest.approx([(1 + math.cos(math.pi / 4)) / 2])


def test_inverse_sqrt_keeps_then_falls():
    assert rates(InverseSqrt(4, eta=3.0), 0, 3, 15, 99) == pytest.approx([3.0, 3.0, 1.5, 0.6])


def test_schedules_multiply_delay_adaptive_step():
    adaptive = DelayAdaptive(0.5, tau_c=2)
    for outer, factor in (
        (Warmup(10, adaptive), 0.4),
        (Cosine(6, then=adaptive), 0.5),
        (InverseSqrt(1, then=adaptive), 0.5),
    ):
        assert outer(step_at(3, tau=1)) == pytest.approx(0.5 * factor)
        assert outer(step_at(3, tau=3)) == pytest.approx(0.5 / 3 * factor)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Warmup(0), "steps must be at least 1, got 0"),
        (lambda: Cosine(5, eta=-1.0), "eta must be a positive number, got -1.0"),
        (lambda: Cosine(5, floor=1.0), "floor must be at least 0 and below 1, got 1.0"),
        (lambda: InverseSqrt(2.5), "steps must be a whole number, got 2.5"),
    ],
)
def test_schedules_refuse_impossible_parameters(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_nested_step_size_in_file_is_written_out_and_read_back(tmp_path):
    from fadas.runs.serialization import to_toml

    setting = 'algorithms.fadas.step_size={name="warmup",steps=20,then={name="delay-adaptive",eta=0.01,tau_c=8}}'
    config = resolve(read_experiment(DEMO, [setting, "algorithms.fadas.eta=0.001"]), "fadas", 1)
    assert config.algorithm.step_size == Warmup(20, DelayAdaptive(0.01, 8))
    path = tmp_path / "config.toml"
    path.write_text(to_toml(config.tables))
    again = resolve(read_experiment(path), "fadas", 1)
    assert (again.algorithm, again.tables) == (config.algorithm, config.tables)


def test_misspelt_key_of_nested_step_size_is_named():
    setting = 'algorithms.fadas.step_size={name="warmup",steps=20,then={name="hinge",etta=0.01}}'
    with pytest.raises(ConfigError, match=r"unknown key 'algorithms.fadas.step_size.then.etta'; did you mean"):
        resolve(read_experiment(DEMO, [setting, "algorithms.fadas.eta=0.001"]), "fadas", 1)
