"""Tasks: modules, evaluation, accuracy."""

import pytest
import torch
from torch import nn

from fadas.tasks import TASKS
from fadas.tasks.task import Task, accuracy


def test_evaluation_in_chunks_agrees():
    task = TASKS["digits"](clients=5)
    module = task.module()
    whole, parts = task.evaluate(module, chunk=10**6), task.evaluate(module, chunk=7)
    assert whole == pytest.approx(parts, rel=1e-6)
    assert module.training is False


def test_given_module_is_copied():
    module = nn.Linear(2, 2)
    task = Task(module, [(torch.zeros(1, 2), torch.zeros(1).long())])
    copy = task.module()
    assert copy is not module
    assert torch.equal(copy.weight, module.weight)
    assert task.evaluate(copy) == {}


@pytest.mark.parametrize(
    ("outputs", "targets"), [((8, 1), (8,)), ((8, 1), (8, 1)), ((8, 2), (8, 1)), ((8,), (8,)), ((8, 3, 5), (8,))]
)
def test_accuracy_of_unsuitable_shapes_is_refused(outputs, targets):
    """For one logit, or labels in a column, torch would compare the wrong things without an error."""
    with pytest.raises(ValueError, match="an output per class and a label per example"):
        accuracy(torch.randn(outputs), torch.zeros(targets, dtype=torch.int64))


def test_accuracy_counts_every_pixel():
    outputs = torch.zeros(2, 3, 4, 4)
    outputs[:, 1] = 1.0
    assert accuracy(outputs, torch.ones(2, 4, 4, dtype=torch.int64)) == 1.0
