"""Updates, server states and combine rules, without any training."""

from collections.abc import Sequence
from dataclasses import replace

import torch

from fadas.algorithms.algorithm import Algorithm
from fadas.algorithms.presets import FADAS
from fadas.core.ledger import Job, Ledger, Schedule, Step
from fadas.core.model import Model, ServerState, ServerStep, Update
from fadas.core.server import Server


def make_state(*values, version=3, **slots) -> ServerState:
    return ServerState(version, Model(torch.tensor(values), torch.zeros(0)), slots)


def make_updates(*rows, index=3) -> tuple[Step, list[Update]]:
    """A step and its updates, from rows of client, version, delta, examples and base."""
    updates = [
        Update(Job(k, client, version), torch.tensor(delta), torch.zeros(0), torch.tensor(base), examples)
        for k, (client, version, delta, examples, base) in enumerate(rows)
    ]
    return Step(index, tuple(update.job for update in updates)), updates


def with_vectors(algorithm: Algorithm, state: ServerState, updates: list[Update]) -> tuple[ServerState, list[Update]]:
    """The state and the updates with what travels beside them for an algorithm: ones."""
    exchange = algorithm.exchange
    ones = torch.ones_like(state.model.params)
    vectors = dict.fromkeys(exchange.returns, ones) | dict.fromkeys(exchange.numbers, torch.tensor(2.0))
    model = replace(state.model, vectors=dict.fromkeys(exchange.sends, ones))
    return replace(state, model=model), [replace(update, vectors=vectors) for update in updates]


STEP, TWO_UPDATES = make_updates((0, 3, [1.0, 2.0], 10, [0.0, 0.0]), (1, 0, [3.0, -2.0], 30, [5.0, 5.0]))


def delayed_step(taus: Sequence[int], index=1000) -> ServerStep:
    """A server step whose updates have these delays, as a step size sees it."""
    jobs = tuple(Job(k, k, index - tau) for k, tau in enumerate(taus))
    return ServerStep(index, jobs, tuple(taus), 0, make_state(0.0, version=index), (), len(jobs))


NOT_FINITE = torch.tensor([0.0, 1, float("nan"), 2, 3])


def make_server(checks=None, buffer=3):
    """A server with four slots, and its first jobs."""
    server = Server(FADAS(), Ledger(Schedule(4, buffer), 10), Model(torch.zeros(5), torch.zeros(2)), checks)
    return server, server.start()


def make_update(job: Job, base: Model, **changes) -> Update:
    """An update of ones. `changes` replace its delta, its buffers or its number of examples."""
    fields = {"delta": torch.ones_like(base.params), "buffers": torch.ones_like(base.buffers), "examples": 3}
    fields |= changes
    return Update(job, fields["delta"], fields["buffers"], base.params, fields["examples"], {"loss": 1.0})


def combine_deltas(rule, deltas: Sequence[torch.Tensor], index=0, seed=0, buffers=0) -> torch.Tensor:
    """What a combine rule makes of the deltas of clients 0, 1, ..."""
    jobs = tuple(Job(k, k, 0) for k in range(len(deltas)))
    state = ServerState(index, Model(torch.zeros_like(deltas[0]), torch.zeros(buffers)))
    updates = [
        Update(job, delta, torch.zeros(buffers), state.model.params, 1) for job, delta in zip(jobs, deltas, strict=True)
    ]
    return rule(state, Step(index, jobs, seed), updates, 100)[0]
