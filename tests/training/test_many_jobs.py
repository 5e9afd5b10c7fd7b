"""Many jobs at once against the same jobs one by one."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from fadas.algorithms.presets import FADAS
from fadas.core.ledger import Job
from fadas.core.model import Model
from fadas.errors import Diverged
from fadas.simulation.planner import plan
from fadas.simulation.simulator import simulate
from fadas.tasks.task import Subsets, Task, cross_entropy
from fadas.training.batched.many_jobs import BatchTrainer
from fadas.training.flat_module import FlatModule
from fadas.training.one_job import train_job
from fadas.training.sgd import LocalSGD
from helpers.networks import Centred, squared_errors
from helpers.training import LOCAL_DECAY, assert_batch_agrees, make_even_task, make_task


class TwoInputs(nn.Module):
    """Two inputs, a convolution, and a buffer outside norm layers."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(1, 4, 3)
        self.head = nn.Linear(17, 3)
        self.register_buffer("shift", torch.full((1,), 0.5))

    def forward(self, x, scale):
        return self.head(torch.cat([self.conv(x[:, None]).relu().flatten(1), scale + self.shift], 1))


class BufferAssigning(nn.Module):
    """Assigns new tensors to its buffers, one of them with a graph of the parameters."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 3)
        self.register_buffer("average", torch.ones(3))
        self.register_buffer("calls", torch.tensor(0))

    def forward(self, x):
        y = self.layer(x)
        self.calls = self.calls + 1
        self.average = 0.8 * self.average.detach() + 0.2 * y.mean(0) * self.calls
        return y - self.average


@pytest.mark.parametrize("kind", ["plain", "batchnorm", "mean loss", "two inputs", "running"])
def test_batch_agrees_with_single_jobs(kind):
    task = make_task(clients=8, batchnorm=kind == "batchnorm")
    task.loss = F.cross_entropy if kind == "mean loss" else cross_entropy
    if kind == "two inputs":
        task.model = TwoInputs
        task.clients = [(x, x[:, :1], y) for x, y in task.clients]
    if kind == "running":
        task.model = BufferAssigning
    jobs = [Job(10 + c, c, c % 3) for c in range(8)]
    flat = FlatModule(task.module())
    first = flat.read()
    versions = [Model(first.params + 0.1 * k, first.buffers.clone()) for k in range(3)]
    plain = [train_job(flat, task, LOCAL_DECAY, 5, j, versions[j.version]) for j in jobs]
    trainer = BatchTrainer(FlatModule(task.module()), task, LOCAL_DECAY, 5)
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


@pytest.mark.parametrize(("model", "loss", "pads"), [(Centred, cross_entropy, False), (None, squared_errors, True)])
def test_batch_agrees_for_unusual_modules_and_losses(model, loss, pads):
    task = make_task(clients=8)
    task.model, task.loss = model or task.model, loss
    jobs = [Job(c, c, 0) for c in range(8)]
    flat = FlatModule(task.module())
    start = flat.read()
    trainer = BatchTrainer(FlatModule(task.module()), task, LOCAL_DECAY, 5)
    groups = trainer.groups([(job, start) for job in jobs])
    assert (len(groups) == 1) is pads
    for group in groups:
        for update in trainer.train(group):
            plain = train_job(flat, task, LOCAL_DECAY, 5, update.job, start)
            torch.testing.assert_close(update.delta, plain.delta, rtol=1e-4, atol=1e-6)


def test_examples_that_interact_are_noticed_behind_equal_examples():
    task = make_task(clients=4)
    task.model = Centred
    for inputs, _ in task.clients:
        inputs[1:3] = inputs[0]
    trainer = BatchTrainer(FlatModule(task.module()), task, LOCAL_DECAY, 5)
    assert len(trainer.groups([(Job(c, c, 0), trainer.flat.read()) for c in range(4)])) > 1


def weighted_loss(outputs, targets):
    weights = torch.tensor([1.0, 2, 4])[targets]
    return cross_entropy(outputs, targets) * weights / weights.mean()


def broadcast_loss(outputs, targets):
    return (outputs[:, :1] - targets) ** 2  # a common mistake: this compares every output with every target


@pytest.mark.parametrize("loss", [weighted_loss, broadcast_loss])
def test_loss_with_interacting_examples_is_not_padded(loss):
    task = make_task(clients=4, sizes=(20, 20, 7, 20))
    task.loss = loss
    assert_batch_agrees(task, LOCAL_DECAY, [Job(c, c, 0) for c in range(4)])


def test_job_alone_or_in_batch_differs_by_rounding_only():
    task = make_task(clients=6, sizes=(4, 17, 30, 8, 1))
    trainer = BatchTrainer(FlatModule(task.module()), task, LOCAL_DECAY, 5)
    start = trainer.flat.read()
    work = [(Job(c, c, 0), start) for c in range(6)]
    together = {u.job.id: u.delta for u in trainer.train(work)}
    again = {u.job.id: u.delta for u in trainer.train(work)}
    for item in work:
        (alone,) = trainer.train([item])
        torch.testing.assert_close(alone.delta, together[alone.job.id], rtol=1e-5, atol=1e-7)
        assert torch.equal(together[alone.job.id], again[alone.job.id])


def test_subsets_train_like_separate_client_data():
    whole = make_task(clients=1, sizes=(60,))
    parts = [torch.arange(c, 60, 4) for c in range(4)]
    dealt = Task(whole.model, Subsets(whole.clients[0], parts))
    given = Task(whole.model, [dealt.clients[c] for c in range(4)])
    start = FlatModule(whole.module()).read()
    work = [(Job(c, c, 0), start) for c in range(4)]
    one, two = (
        {u.job.id: u.delta for u in BatchTrainer(FlatModule(t.module()), t, LOCAL_DECAY, 5).train(work)}
        for t in (dealt, given)
    )
    assert all(torch.equal(one[c], two[c]) for c in range(4))


def test_untrained_batch_of_one_is_ignored_by_batchnorm():
    task, local = make_task(batchnorm=True, sizes=(6,)), LocalSGD(lr=0.1, batch_size=5, steps=1)
    flat = FlatModule(task.module())
    trainer = BatchTrainer(FlatModule(task.module()), task, local, 5)
    trainer.check_batching()
    (update,) = trainer.train([(Job(0, 0, 0), flat.read())])
    torch.testing.assert_close(update.delta, train_job(flat, task, local, 5, Job(0, 0, 0), flat.read()).delta)


@pytest.mark.parametrize("batchnorm", [False, True])
def test_double_precision_agrees_with_single_job(batchnorm):
    task = make_task(batchnorm=batchnorm, sizes=(7,))  # a seventh differs in single precision
    model = task.model
    task.model = lambda: model().double()
    task.clients = [(inputs.double(), targets) for inputs, targets in task.clients]
    flat, local = FlatModule(task.module()), LocalSGD(lr=0.1, batch_size=7)
    trainer = BatchTrainer(FlatModule(task.module()), task, local, 5)
    (update,) = trainer.train([(Job(0, 0, 0), flat.read())])
    plain = train_job(flat, task, local, 5, Job(0, 0, 0), flat.read())
    torch.testing.assert_close(update.delta, plain.delta, rtol=1e-10, atol=1e-14)
    assert update.metrics["loss"] == pytest.approx(float(plain.metrics["loss"]), rel=1e-12)
    assert update.buffers.dtype == plain.buffers.dtype


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_not_finite_data_diverge_on_every_executor(number):
    """The settings are valid, so the run diverges on every executor."""
    data = [(torch.full((6, 4), number), torch.zeros(6).long()) for _ in range(4)]
    task = Task(lambda: nn.Linear(4, 3), data)
    schedule = plan(FADAS().schedule(2, 1), 4, steps=3)
    for executor in ("inline", "batched", "auto"):
        with pytest.raises(Diverged, match="not finite"):
            list(simulate(schedule, task, FADAS(), LOCAL_DECAY, executor=executor))


class TwoBiases(nn.Module):
    """Two parameters with the same gradient, as in an LSTM."""

    def __init__(self):
        super().__init__()
        self.layer, self.one, self.other = nn.Linear(6, 3), nn.Parameter(torch.ones(3)), nn.Parameter(-torch.ones(3))

    def forward(self, x):
        return self.layer(x) + (self.one + self.other)


def test_weight_decay_is_separate_when_gradients_are_shared():
    local = LocalSGD(lr=0.1, batch_size=4, weight_decay=0.5)
    task = make_even_task(TwoBiases)
    trainer = BatchTrainer(FlatModule(task.module(1)), task, local, 1)
    trainer.check_batching()
    start = trainer.flat.read()
    (batched,) = trainer.train([(Job(0, 0, 0), start)])
    alone = train_job(trainer.flat, task, local, 1, Job(0, 0, 0), start)
    torch.testing.assert_close(batched.delta, alone.delta, rtol=1e-4, atol=1e-6)
