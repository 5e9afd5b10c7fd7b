"""What the user's parts see in the trial step before a run."""

import pytest
import torch

from fadas.algorithms.algorithm import Algorithm
from fadas.core.ledger import Job
from fadas.core.model import Model
from fadas.core.trial_step import trial_step
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
