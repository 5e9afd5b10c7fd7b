"""What the user's parts see in the trial step before a run."""

import re

import pytest
import torch

from fadas.algorithms.algorithm import Algorithm
from fadas.core.ledger import Job
from fadas.core.model import NOTHING, Model
from fadas.core.trial_step import trial_step
from fadas.errors import ConfigError
from helpers.updates import make_update

START = Model(torch.zeros(4), torch.zeros(0))


class Watching:
    """A combine rule and a step size that remember what they were given."""

    def __init__(self):
        self.combined, self.sized = [], []

    def __call__(self, state, step, updates, clients):
        self.combined.append((state.version, step.index, step.delays, step.seed, len(updates), clients))
        return updates[0].delta, {}

    def size(self, step):
        self.sized.append((step.index, step.delays, step.seed, step.state.version, len(step.updates), step.clients))
        return 0.5


def test_trial_step_is_the_first_step():
    watching, updates = Watching(), [make_update(Job(k, k, 0), START) for k in range(3)]
    after = trial_step(Algorithm(watching, step_size=watching.size), START, updates, 10)
    assert watching.combined == [(0, 0, [0, 0, 0], 0, 3, 10)]
    assert watching.sized == [(0, (0, 0, 0), 0, 0, 3, 10)] * 2, "asked twice, to see whether it repeats"
    assert after.version == 1
    assert after.model.params.tolist() == [0.5] * 4


class Failing:
    def __call__(self, step):
        raise RuntimeError("no luck")


def test_error_of_step_size_is_passed_on():
    with pytest.raises(RuntimeError, match=r"^no luck$"):
        trial_step(Algorithm(step_size=Failing()), START, [make_update(Job(0, 0, 0), START)], 10)


class ReturningWords:
    """Fails with a server step, and returns no number for delays either."""

    def __call__(self, step):
        return "fast" if isinstance(step, list) else step.speed


def test_step_size_that_takes_neither_form_fails_with_its_own_error():
    with pytest.raises(AttributeError, match="speed"):
        trial_step(Algorithm(step_size=ReturningWords()), START, [make_update(Job(0, 0, 0), START)], 10)


class FailingOptimizer:
    def apply(self, x, delta, slots, eta):
        raise RuntimeError("no memory")


def test_error_of_optimizer_is_not_blamed_on_a_fitting_combine_rule():
    with pytest.raises(RuntimeError, match=r"^no memory$"):
        trial_step(Algorithm(optimizer=FailingOptimizer()), START, [make_update(Job(0, 0, 0), START)], 10)


@pytest.mark.parametrize(
    ("result", "kinds"),
    [
        (lambda delta: (delta,), "(Tensor)"),
        (lambda delta: (delta, delta), "(Tensor, Tensor)"),
        (lambda delta: (delta, {}, {}), "(Tensor, dict, dict)"),
        (lambda delta: ({}, {}), "(dict, dict)"),
        (lambda delta: [delta, {}, 0], "list"),
        (lambda delta: None, "NoneType"),
    ],
)
def test_result_of_combine_rule_is_described(result, kinds):
    def combine(state, step, updates, clients):
        return result(updates[0].delta)

    message = f"a combine rule must return (delta, slots), a tensor and a dict of tensors; got {kinds}"
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}$"):
        trial_step(Algorithm(combine), START, [make_update(Job(0, 0, 0), START)], 10)


def test_delta_that_is_not_a_number_has_not_been_written_to():
    update = make_update(Job(0, 0, 0), START, delta=torch.tensor([1.0, float("nan"), float("inf"), 0.0]))
    assert trial_step(Algorithm(), START, [update], 10).version == 1


def test_update_rule_without_parts_may_fail_with_its_own_error():
    class Rule:
        exchange = NOTHING

        def step_size(self, step):
            return 1.0

        def apply(self, state, step, updates, clients, eta):
            raise RuntimeError("no luck")

    with pytest.raises(RuntimeError, match=r"^no luck$"):
        trial_step(Rule(), START, [make_update(Job(0, 0, 0), START)], 10)


def test_step_size_of_fadas_01_is_told_what_has_changed():
    message = "not the delays: write `def __call__(self, step): ...` and read `step.delays`"
    with pytest.raises(ConfigError, match=f"^a step size takes the server step, {re.escape(message)}$"):
        trial_step(Algorithm(step_size=max), START, [make_update(Job(0, 0, 0), START)], 10)
