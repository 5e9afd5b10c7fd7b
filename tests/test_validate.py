"""Numbers that users give."""

import numpy as np
import pytest

from fadas.algorithms.presets import FedBuff
from fadas.algorithms.robust import Trimmed
from fadas.core.ledger import Schedule
from fadas.simulation.planner import plan
from fadas.simulation.simulator import simulate
from fadas.training.sgd import LocalSGD
from helpers.training import make_task


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("steps", lambda n: plan(Schedule(4, 2), 8, steps=n)),
        ("updates", lambda n: plan(Schedule(4, 2), 8, updates=n)),
        ("clients", lambda n: plan(Schedule(2, 2), n, steps=3)),
        ("seed", lambda n: plan(Schedule(4, 2), 8, steps=3, seed=n)),
        ("concurrency", lambda n: Schedule(n, 1)),
        ("buffer", lambda n: Schedule(4, n)),
        ("epochs", lambda n: LocalSGD(epochs=n)),
        ("batch_size", lambda n: LocalSGD(batch_size=n)),
        ("steps", lambda n: LocalSGD(steps=n)),
        ("trim", lambda n: Trimmed(n)),
        (
            "eval_every",
            lambda n: simulate(plan(Schedule(4, 2), 8, steps=3), make_task(8), FedBuff(), LocalSGD(), eval_every=n),
        ),
    ],
)
def test_counts_must_be_whole_numbers(name, make):
    make(np.int64(3))
    for number in (2.5, 3.0, "3"):
        with pytest.raises(ValueError, match=f"{name} must be a whole number, got {number!r}"):
            make(number)
