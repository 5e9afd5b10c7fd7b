"""Losses of stacked jobs."""

import math

import pytest
import torch
from torch import nn

from fadas.core.ledger import Job
from fadas.tasks.task import Task
from fadas.training.batched.many_jobs import BatchTrainer
from fadas.training.flat_module import FlatModule
from fadas.training.sgd import LocalSGD
from helpers.training import LOCAL_DECAY, assert_batch_agrees, make_task


@pytest.mark.parametrize("gathered", [1 << 24, 100], ids=["all steps at once", "step by step"])
@pytest.mark.parametrize("classes", [3, 40])
@pytest.mark.parametrize("ignored", [False, True])
def test_cross_entropy_agrees_for_any_classes_and_ignored_labels(ignored, classes, gathered, monkeypatch):
    monkeypatch.setattr("fadas.training.batched.many_jobs._GATHERED", gathered)
    task = make_task(clients=6, sizes=(4, 17, 30, 8, 1))
    task.model = lambda: nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, classes))
    if ignored:  # other examples than the trainer's own trial uses
        task.clients[1][1][3:9] = task.clients[2][1][::2] = -100
    assert assert_batch_agrees(task, LOCAL_DECAY, [Job(c, c, 0) for c in range(6)]).stacked


def test_half_precision_losses_add_up_over_many_steps(monkeypatch):
    monkeypatch.setattr("fadas.training.batched.many_jobs._GATHERED", 1)
    task = Task(lambda: nn.Linear(6, 3, bias=False).half(), [(torch.zeros(5, 6).half(), torch.zeros(5).long())])
    trainer = BatchTrainer(FlatModule(task.module()), task, LocalSGD(steps=2000, batch_size=5), 5)
    assert trainer.stacked
    (update,) = trainer.train([(Job(0, 0, 0), trainer.flat.read())])
    assert update.metrics["loss"] == pytest.approx(math.log(3), rel=1e-3)
