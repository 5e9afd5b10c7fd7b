"""One job against a loop that a PyTorch user would write."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from fadas.core.ledger import Job
from fadas.core.model import Model
from fadas.training.flat_module import FlatModule
from fadas.training.one_job import train_job
from helpers.training import LOCAL_DECAY, list_batches, make_task


def train_with_torch(module, data, batches, local):
    optimizer = torch.optim.SGD(module.parameters(), local.lr, weight_decay=local.weight_decay)
    module.train()
    for index in batches:
        optimizer.zero_grad()
        F.cross_entropy(module(data[0][index]), data[1][index]).backward()
        optimizer.step()


@pytest.mark.parametrize("batchnorm", [False, True])
def test_train_job_agrees_with_torch_sgd(batchnorm):
    task = make_task(batchnorm=batchnorm, sizes=(17,))
    flat, job = FlatModule(task.module()), Job(4, 2, 0)
    start = flat.read()
    update = train_job(flat, task, LOCAL_DECAY, 9, job, start)
    module = task.module()
    train_with_torch(module, task.clients[2], list_batches(task, LOCAL_DECAY, 9, job), LOCAL_DECAY)
    got = flat.state_dict(Model(start.params + update.delta, update.buffers))
    for name, value in module.state_dict().items():
        if "tracked" not in name:
            torch.testing.assert_close(got[name], value, rtol=1e-5, atol=1e-6)
    assert update.examples == 17
    assert update.base is start.params


def test_dropout_is_seeded_per_job():
    task = make_task()
    task.model = lambda: nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.5), nn.Linear(8, 3))
    flat = FlatModule(task.module())
    start = flat.read()

    def train_delta(id):
        torch.rand(id + 1)  # the global generator's state must not matter
        return train_job(flat, task, LOCAL_DECAY, 0, Job(id, 1, 0), start).delta

    assert torch.equal(train_delta(3), train_delta(3))
    before = torch.get_rng_state()
    assert not torch.equal(train_delta(3), train_delta(4))
    torch.set_rng_state(before)


def test_train_job_leaves_global_generator_alone(task):
    flat = FlatModule(task.module())
    torch.manual_seed(1)
    expected = torch.rand(1)
    torch.manual_seed(1)
    train_job(flat, task, LOCAL_DECAY, 0, Job(0, 0, 0), flat.read())
    assert torch.rand(1) == expected
