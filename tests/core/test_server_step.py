"""What of a server's state must stay finite, and who is at fault if it does not."""

import pytest
import torch

from fadas.algorithms.algorithm import Algorithm
from fadas.core.ledger import Job, Step
from fadas.core.model import Model, ServerState
from fadas.core.server_step import describe_not_finite, find_culprits
from helpers.updates import make_update

FINITE, INFINITE = torch.tensor([1.0, 2.0]), torch.tensor([1.0, float("inf")])
MEMORY = "an optimizer's memory"


def make_state(params=FINITE, buffers=FINITE, **slots):
    return ServerState(0, Model(params, buffers), {name.replace("_", "."): slot for name, slot in slots.items()})


@pytest.mark.parametrize(
    ("before", "after", "problem"),
    [
        ({}, {}, None),
        ({}, {"params": INFINITE}, "a model"),
        ({}, {"buffers": INFINITE}, "a model"),
        ({"buffers": INFINITE}, {"buffers": INFINITE}, None),
        ({}, {"mine": FINITE}, None),
        ({}, {"mine": INFINITE}, None),
        ({"mine": INFINITE}, {"mine": INFINITE.clone()}, None),
        ({"mine": FINITE}, {"mine": INFINITE}, MEMORY),
        ({"mine": FINITE}, {"mine": torch.tensor([2**62])}, None),
        ({"m": INFINITE}, {"m": INFINITE}, None),  # the step has not touched it
        ({"h_7": FINITE}, {"h_7": FINITE + 1}, None),
        *[({}, {name: INFINITE}, MEMORY) for name in ("m", "v", "vhat", "h_sum", "torch_x")],
        *[({name: FINITE}, {name: INFINITE}, MEMORY) for name in ("m", "v", "vhat", "h_sum", "torch_x")],
    ],
)
def test_state_with_new_infinities_is_not_finite(before, after, problem):
    assert describe_not_finite(make_state(**before), make_state(**after)) == problem


def add_deltas(state, step, updates, clients):
    return sum(update.delta for update in updates), {}


def find(*sizes):
    """The deltas at fault among these, in a rule that adds them up."""
    jobs = tuple(Job(k, k, 0) for k in range(len(sizes)))
    start = Model(torch.zeros(2), torch.zeros(0))
    updates = [make_update(job, start, delta=FINITE * size) for job, size in zip(jobs, sizes, strict=True)]
    found = find_culprits(Algorithm(add_deltas), ServerState(0, start), Step(0, jobs), updates, 9)
    return [update.job.id for update in found]


def test_culprits_are_those_that_spoil_a_step_of_their_copies():
    assert find(1.0, 1e38, 2.0, 1.5e38) == [1, 3]
    assert find(1e38) == [0], "alone it is finite: it is the longest"


def test_longest_update_is_at_fault_if_no_other_is():
    assert find(1.0, -3.0, 2.0) == [1]
