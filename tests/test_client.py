"""Local training against a loop that a PyTorch user would write, and the batched loop against the plain one."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from conftest import make_task
from fadas.client import BatchTrainer, LocalSGD, check, lessons, train
from fadas.ledger import Job
from fadas.model import FlatModule, Model
from fadas.task import cross_entropy

LOCAL = LocalSGD(lr=0.1, epochs=2, batch_size=5, weight_decay=0.01)


def reference(module, data, batches, local):
    optimizer = torch.optim.SGD(module.parameters(), local.lr, weight_decay=local.weight_decay)
    module.train()
    for index in batches:
        optimizer.zero_grad()
        F.cross_entropy(module(data[0][index]), data[1][index]).backward()
        optimizer.step()


@pytest.mark.parametrize("batchnorm", [False, True])
def test_train_is_torch_sgd(batchnorm):
    task = make_task(batchnorm=batchnorm, sizes=(17,))
    flat, job = FlatModule(task.module()), Job(4, 2, 0)
    start = flat.read()
    update = train(flat, task, LOCAL, 9, job, start)
    module = task.module()
    reference(module, task.clients[2], lessons(task, LOCAL, 9, job, "cpu")[1], LOCAL)
    got = flat.state_dict(Model(start.params + update.delta, update.buffers))
    for name, value in module.state_dict().items():
        if "tracked" not in name:
            torch.testing.assert_close(got[name], value, rtol=1e-5, atol=1e-6)
    assert update.examples == 17
    assert update.base is start.params


def batches(local, seed, job, size=12):
    return [b.tolist() for b in lessons(make_task(sizes=(size,)), local, seed, job, "cpu")[1]]


def test_batches_cover_the_data_and_keep_the_short_one():
    job = Job(1, 0, 0)
    two = batches(LOCAL, 0, job)
    assert [len(b) for b in two] == [5, 5, 2, 5, 5, 2]
    assert all(sorted(i for b in epoch for i in b) == list(range(12)) for epoch in (two[:3], two[3:]))
    assert two[:3] != two[3:]
    assert [len(b) for b in batches(LocalSGD(batch_size=5, steps=4), 0, job)] == [5, 5, 2, 5]
    assert len(batches(LocalSGD(batch_size=50, steps=4), 0, job)) == 4
    assert two == batches(LOCAL, 0, job)
    assert two != batches(LOCAL, 1, job)
    assert two != batches(LOCAL, 0, Job(2, 0, 0))


class Small(nn.Module):
    """Two inputs, a convolution and a buffer that is not a norm's."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(1, 4, 3)
        self.head = nn.Linear(17, 3)
        self.register_buffer("shift", torch.full((1,), 0.5))

    def forward(self, x, scale):
        return self.head(torch.cat([self.conv(x[:, None]).relu().flatten(1), scale + self.shift], 1))


@pytest.mark.parametrize("kind", ["plain", "batchnorm", "mean loss", "two inputs"])
def test_batched_agrees_with_plain(kind):
    task = make_task(clients=8, batchnorm=kind == "batchnorm")
    task.loss = F.cross_entropy if kind == "mean loss" else cross_entropy
    if kind == "two inputs":
        task.model = Small
        task.clients = [(x, x[:, :1], y) for x, y in task.clients]
    jobs = [Job(10 + c, c, c % 3) for c in range(8)]
    flat = FlatModule(task.module())
    first = flat.read()
    versions = [Model(first.params + 0.1 * k, first.buffers.clone()) for k in range(3)]
    plain = [train(flat, task, LOCAL, 5, j, versions[j.version]) for j in jobs]
    trainer = BatchTrainer(FlatModule(task.module()), task, LOCAL, 5)
    groups = trainer.groups([(j, versions[j.version]) for j in jobs])
    assert len(groups) == (1 if kind == "plain" else 4)
    batch = {update.job: update for group in groups for update in trainer.train(group)}
    assert batch.keys() == set(jobs)
    for job, expected in zip(jobs, plain, strict=True):
        update = batch[job]
        assert update.base is versions[job.version].params
        assert update.examples == expected.examples
        torch.testing.assert_close(update.delta, expected.delta, rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(update.buffers, expected.buffers, rtol=1e-4, atol=1e-6)
        assert update.metrics["loss"] == pytest.approx(expected.metrics["loss"], rel=1e-4)


class Centred(nn.Module):
    """Examples see each other, without a norm layer that would tell."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 3)

    def forward(self, x):
        return self.layer(x - x.mean(0))


def column_loss(outputs, targets):
    return (outputs - torch.eye(3)[targets]) ** 2  # one value per example and output


@pytest.mark.parametrize(("model", "loss", "pads"), [(Centred, cross_entropy, False), (None, column_loss, True)])
def test_batched_agrees_for_odd_modules_and_losses(model, loss, pads):
    task = make_task(clients=8)
    task.model, task.loss = model or task.model, loss
    jobs = [Job(c, c, 0) for c in range(8)]
    flat = FlatModule(task.module())
    start = flat.read()
    trainer = BatchTrainer(FlatModule(task.module()), task, LOCAL, 5)
    groups = trainer.groups([(job, start) for job in jobs])
    assert (len(groups) == 1) is pads
    for group in groups:
        for update in trainer.train(group):
            plain = train(flat, task, LOCAL, 5, update.job, start)
            torch.testing.assert_close(update.delta, plain.delta, rtol=1e-4, atol=1e-6)


def test_what_vmap_cannot_take_shows_at_once():
    class Functional(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(6, 3)

        def forward(self, x):
            return F.dropout(self.layer(x), 0.5)

    task = make_task()
    task.model = Functional
    with pytest.raises((RuntimeError, ValueError)):
        BatchTrainer(FlatModule(task.module()), task, LOCAL, 0)


def test_a_batch_of_one_under_batchnorm_is_refused_before_training():
    task = make_task(batchnorm=True, sizes=(8, 11))
    flat = FlatModule(task.module())
    with pytest.raises(ValueError, match=r"batch_size \(5\) leaves client 1 with a batch of one"):
        check(flat, task, LOCAL)
    check(flat, task, LocalSGD(batch_size=4))
    plain = make_task(sizes=(8, 11))
    check(FlatModule(plain.module()), plain, LOCAL)


def test_dropout_is_seeded_per_job_and_refused_in_a_batch():
    task = make_task()
    task.model = lambda: nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.5), nn.Linear(8, 3))
    flat = FlatModule(task.module())
    start = flat.read()

    def delta(id):
        torch.rand(id + 1)  # the global generator's state must not matter
        return train(flat, task, LOCAL, 0, Job(id, 1, 0), start).delta

    assert torch.equal(delta(3), delta(3))
    before = torch.get_rng_state()
    assert not torch.equal(delta(3), delta(4))
    torch.set_rng_state(before)
    with pytest.raises(ValueError, match="dropout"):
        BatchTrainer(flat, task, LOCAL, 0)


def test_local_training_leaves_the_global_generator_alone(task):
    flat = FlatModule(task.module())
    torch.manual_seed(1)
    expected = torch.rand(1)
    torch.manual_seed(1)
    train(flat, task, LOCAL, 0, Job(0, 0, 0), flat.read())
    assert torch.rand(1) == expected


@pytest.mark.parametrize(
    "bad", [{"lr": -0.1}, {"lr": 0}, {"epochs": 0}, {"batch_size": 0}, {"weight_decay": -1}, {"steps": 0}]
)
def test_bad_parameters(bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        LocalSGD(**bad)
