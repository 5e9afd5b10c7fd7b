"""The seeded noise of simulations, and what a newcomer is charged."""

import pytest
import torch

from fadas.algorithms.algorithm import Algorithm
from fadas.algorithms.privacy import Private, Spending
from fadas.core.ledger import Ledger, Schedule
from fadas.core.model import Model
from fadas.core.server import Server
from helpers.updates import make_update

pytest.importorskip("dp_accounting")


def take_silent_steps(seed, steps, clip=0.5, noise=2.0):
    """What steps of zero updates make of a zero model: the noise alone."""
    server = Server(
        Algorithm(Private(clip, noise)), Ledger(Schedule(2, 2), 4, seed), Model(torch.zeros(4), torch.zeros(0))
    )
    server.start()
    models = []
    while server.state.version < steps:
        job = min(server.ledger.running.values())
        if server.receive(make_update(job, server.model, delta=torch.zeros(4))).step:
            models.append(server.model.params)
    return models


def test_seeded_noise_is_that_of_earlier_versions():
    """A resumed or repeated simulation must find the same noise: clip * noise / M = 0.5 times a standard normal."""
    first, second = take_silent_steps(seed=7, steps=2)
    assert first.tolist() == pytest.approx(GOLDEN[0], abs=1e-6)
    assert (second - first).tolist() == pytest.approx(GOLDEN[1], abs=1e-6)
    assert take_silent_steps(seed=8, steps=1)[0].tolist() != pytest.approx(GOLDEN[0], abs=1e-3)


GOLDEN = [
    [0.054894253611564636, 0.5962104797363281, -0.14049193263053894, 0.7407714128494263],
    [0.4263124465942383, 0.6707181930541992, 0.21076293289661407, 0.07090306282043457],
]


@pytest.mark.parametrize(
    ("spent", "waiting", "size", "charged"),
    [
        ({}, [], 4, 0),
        ({1: 3, 2: 7}, [], 4, 7),  # as much as the client that spent most
        ({1: 3, 2: 7}, [1], 4, 7 + 2 * 1 * 4),
        ({1: 3, 2: 7}, [1, 2, 2, 2, 3], 4, 7 + 2 * 3 * 4),  # the client with most updates to come
        ({}, [5, 5, 6], 10, 2 * 2 * 10),
    ],
)
def test_newcomer_is_charged_for_largest_spending_and_largest_wait(spent, waiting, size, charged):
    spending = Spending(Private())
    spending.counts.update(spent)
    spending.admit(9, waiting, size)
    assert spending.counts[9] == charged
    assert {client: spending.counts[client] for client in spent} == spent


@pytest.mark.parametrize("length", [0.0, 0.25, 0.5, 1.0, 4.0])
def test_sensitivity_is_clip_over_number_of_updates(length):
    """The noise is a function of the step alone, so the difference of two runs is what one update has moved."""
    silent, moved = (run_one_step(delta) for delta in (0.0, length))
    assert float((moved - silent).norm()) == pytest.approx(min(length, 0.5) / 2, abs=1e-6)


def run_one_step(length):
    server = Server(Algorithm(Private(0.5, 2.0)), Ledger(Schedule(2, 2), 4), Model(torch.zeros(4), torch.zeros(0)))
    one, two = server.start()
    server.receive(make_update(one, server.model, delta=torch.zeros(4)))
    server.receive(make_update(two, server.model, delta=torch.tensor([0.0, length, 0.0, 0.0])))
    return server.model.params


def test_missing_accountant_is_named_with_the_way_to_get_it(monkeypatch):
    monkeypatch.setattr("fadas.algorithms.privacy.find_spec", lambda name: None)
    with pytest.raises(ValueError, match="differential privacy needs dp-accounting: pip install"):
        Private()
