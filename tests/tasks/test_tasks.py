"""What holds for every task."""

import inspect

import pytest
import torch

from fadas.tasks import TASKS
from helpers.data_files import choose_options


@pytest.mark.parametrize("name", TASKS)
def test_every_task_keeps_contract(name, data):
    """The number of clients, none empty, seeded initialisation, an accuracy among the metrics."""
    options = choose_options(name, data)
    if "seed" in inspect.signature(TASKS[name]).parameters:
        options["seed"] = 3
    task = TASKS[name](clients=7, **options)
    assert len(task.clients) == 7
    assert task.sizes == [len(task.clients[c][-1]) for c in range(7)]
    assert min(task.sizes) > 0
    one, two, other = task.module(5), task.module(5), task.module(6)
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), two.parameters(), strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))
    metrics = task.evaluate(one)
    assert 0 <= metrics["accuracy"] <= 1
    *inputs, targets = task.clients[0]
    generator = torch.Generator().manual_seed(0)
    assert task.loss(one(*task.prepare(inputs, generator)), targets).shape == (task.sizes[0],)
    held = TASKS[name](clients=7, **options, validation=0.3)
    assert sum(held.sizes) + len(held.test[-1]) == sum(task.sizes)
