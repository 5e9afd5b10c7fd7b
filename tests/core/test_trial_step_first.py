"""The step of zeros that a deployment tries before it opens its folder."""

import torch

from fadas.algorithms.algorithm import Algorithm
from fadas.core.ledger import Ledger, Schedule
from fadas.core.model import Model
from fadas.core.server import Server
from fadas.core.trial_step import try_one_step


class Watching:
    """A combine rule that remembers what it was given."""

    def __init__(self):
        self.seen = []

    def __call__(self, state, step, updates, clients):
        self.seen.append((state.version, step.index, step.delays, [update.examples for update in updates], clients))
        assert not any(update.delta.any() for update in updates)
        return updates[0].delta, {}


def test_first_step_of_zeros_is_tried_with_as_many_clients_as_may_come():
    watching = Watching()
    model = Model(torch.ones(3), torch.zeros(1))
    server = Server(Algorithm(watching), Ledger(Schedule(8, 2), 0, open=True), model)
    try_one_step(server)
    assert watching.seen == [(0, 0, [0, 0], [1, 1], 10)]
    assert server.state.version == 0
