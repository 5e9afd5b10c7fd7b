"""The trial step before a run finds mistakes in the user's parts of an algorithm."""

import numpy as np
import pytest
import torch

from fadas.algorithms.algorithm import Algorithm
from fadas.algorithms.combine import Mean
from fadas.algorithms.optimizers import SGD
from fadas.algorithms.presets import FADAS
from fadas.core.ledger import Job
from fadas.core.model import Model
from fadas.core.trial_step import trial_step
from fadas.errors import ConfigError
from helpers.updates import make_update


def make_three_updates(start):
    return [make_update(Job(k, k, 0), start, examples=1) for k in range(3)]


class WritingInPlace:
    def apply(self, x, delta, slots, eta):
        return x.add_(delta, alpha=eta), {}


class Normalising:
    def __call__(self, state, step, updates, clients):
        delta = updates[0].delta
        delta /= 2
        return delta, {}


class Shortening:
    def apply(self, x, delta, slots, eta):
        return (x + delta)[:2], {}


class DoublePrecision:
    def apply(self, x, delta, slots, eta):
        return (x + delta).double(), {}


class Counting:
    def apply(self, x, delta, slots, eta):
        return x + delta, {"t": slots.get("t", 0) + 1}


class CallCounting:
    calls = 0

    def __call__(self, step):
        self.calls += 1
        return 1.0 / self.calls


@pytest.mark.parametrize(
    ("algorithm", "message"),
    [
        (Algorithm(Mean(), WritingInPlace()), "writes to x_t"),
        (Algorithm(Normalising()), "writes to the delta of an update"),
        (Algorithm(Mean(), Shortening()), r"torch.float32 of shape \[2\], not torch.float32 of shape \[4\]"),
        (Algorithm(Mean(), DoublePrecision()), "torch.float64 of shape"),
        (Algorithm(Mean(), Counting()), r"slot 't' must be a tensor, got int; a counter is torch.tensor\(1.0\)"),
        (Algorithm(Mean(), SGD(), CallCounting()), "must depend on the step alone: it returned 1.0, and then 0.5"),
        (Algorithm(Mean(), SGD(), lambda step: torch.tensor(0.1)), "a number, got Tensor"),
    ],
    ids=["writes", "writes-delta", "shape", "dtype", "slot", "decays", "tensor"],
)
def test_unfit_or_impure_parts_are_refused(algorithm, message):
    start = Model(torch.zeros(4), torch.zeros(0))
    with pytest.raises(ValueError, match=message):
        trial_step(algorithm, start, make_three_updates(start), 10)


class DividingByOthers:
    """Divides by the number of clients outside the buffer."""

    def __call__(self, state, step, updates, clients):
        return updates[0].delta / (clients - len(updates)), {}


def test_fitting_parts_pass():
    start = Model(torch.zeros(4), torch.zeros(0))
    for algorithm in (FADAS(), Algorithm(Mean(), SGD(), lambda step: np.float32(1)), Algorithm(DividingByOthers())):
        assert trial_step(algorithm, start, make_three_updates(start), 10).version == 1
    assert not start.params.any()


def returns_delta_only(state, step, updates, clients):
    return updates[0].delta


def takes_too_few(state, updates):
    return updates[0].delta, {}


def returns_list(state, step, updates, clients):
    return updates[0].delta.tolist(), {}


@pytest.mark.parametrize(
    ("combine", "message"),
    [
        (returns_delta_only, r"must return \(delta, slots\), a tensor and a dict of tensors; got Tensor$"),
        (returns_list, r"must return \(delta, slots\), .* got \(list, dict\)"),
        (takes_too_few, r"called as combine\(state, step, updates, clients\): too many positional arguments"),
    ],
)
def test_combine_rule_of_another_form_is_refused(combine, message):
    start = Model(torch.zeros(4), torch.zeros(0))
    with pytest.raises(ConfigError, match=message):
        trial_step(Algorithm(combine), start, make_three_updates(start), 10)
