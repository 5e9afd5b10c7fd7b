"""Many jobs at once against the same jobs one by one."""

import math
import random

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from fadas.algorithms.presets import FADAS
from fadas.core.ledger import Job
from fadas.core.model import Model
from fadas.errors import Diverged
from fadas.executors import EXECUTORS, Batched
from fadas.simulation.planner import plan
from fadas.simulation.simulator import simulate
from fadas.tasks.task import Subsets, Task, cross_entropy
from fadas.training.flat_module import FlatModule
from fadas.training.many_jobs import BatchTrainer
from fadas.training.one_job import train_job
from fadas.training.sgd import LocalSGD
from helpers.networks import Centred, make_chain, squared_errors
from helpers.training import LOCAL_DECAY, assert_batch_agrees, make_even_task, make_task


class Small(nn.Module):
    """Two inputs, a convolution and a buffer that is not a norm's."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(1, 4, 3)
        self.head = nn.Linear(17, 3)
        self.register_buffer("shift", torch.full((1,), 0.5))

    def forward(self, x, scale):
        return self.head(torch.cat([self.conv(x[:, None]).relu().flatten(1), scale + self.shift], 1))


class Running(nn.Module):
    """Puts new tensors in its buffers' places, one of them with a graph of the parameters."""

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
def test_batched_agrees_with_plain(kind):
    task = make_task(clients=8, batchnorm=kind == "batchnorm")
    task.loss = F.cross_entropy if kind == "mean loss" else cross_entropy
    if kind == "two inputs":
        task.model = Small
        task.clients = [(x, x[:, :1], y) for x, y in task.clients]
    if kind == "running":
        task.model = Running
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
def test_batched_agrees_for_odd_modules_and_losses(model, loss, pads):
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


def test_examples_that_see_each_other_are_noticed_though_the_first_ones_are_alike():
    task = make_task(clients=4)
    task.model = Centred
    for inputs, _ in task.clients:
        inputs[1:3] = inputs[0]
    trainer = BatchTrainer(FlatModule(task.module()), task, LOCAL_DECAY, 5)
    assert len(trainer.groups([(Job(c, c, 0), trainer.flat.read()) for c in range(4)])) > 1


class Forked(Centred):
    def forward(self, x):
        y = self.layer(x)
        return y if y.sum() > 0 else -y


class Counting(Centred):
    """Its state is a plain attribute, which no load puts back."""

    calls = 0

    def forward(self, x):
        self.calls += 1
        return self.layer(x) * self.calls


def cumulative():
    return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8, momentum=None), nn.Linear(8, 3))


def spectral():
    return nn.Sequential(nn.utils.parametrizations.spectral_norm(nn.Linear(6, 8)), nn.Linear(8, 3))


class Dropping(Centred):
    def forward(self, x):
        return F.dropout(self.layer(x), 0.5)


@pytest.mark.parametrize(
    ("model", "reason"),
    [(Forked, "cannot be trained in batches"), (cumulative, "cannot be trained in batches")]
    + [(spectral, "cannot be trained in batches"), (Counting, "something else in a batch"), (Dropping, "dropout")],
)
def test_what_cannot_be_batched_is_refused_in_one_line_that_names_the_way_out(model, reason):
    task = make_task()
    task.model = model
    with pytest.raises(ValueError, match=reason) as refused:
        Batched(task, LOCAL_DECAY, 0)
    assert str(refused.value).endswith("name another executor: inline or processes")
    assert "\n" not in str(refused.value)


class Chain(nn.Module):
    """A chain in a forward of its own: functions, methods, a layer without bias, tokens."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.last = nn.Linear(3, 7), nn.Linear(7, 4, bias=False), nn.Linear(8, 3)

    def forward(self, x):
        x = F.gelu(self.second(torch.relu(self.first(x.view(-1, 2, 3)))))
        return self.last(x.flatten(1).tanh())


class Shared(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.head = nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, x):
        return self.head(self.layer(self.layer(x).relu()))


class Residual(Shared):
    def forward(self, x):
        return self.head(x + self.layer(x))


class Detached(Shared):
    def forward(self, x):
        return self.head(self.layer(x).detach())


class Branching(Shared):
    def forward(self, x):
        return self.head(self.layer(x) if len(x) > 0 else x)


def frozen():
    module = make_chain()
    module[0].requires_grad_(False)
    return module


def single():
    return nn.Linear(6, 3)


def embedding():
    return nn.Sequential(nn.LayerNorm(6), nn.Linear(6, 3))


@pytest.mark.parametrize(
    ("model", "stacked"),
    [(model, True) for model in (make_chain, Chain, single)]
    + [(model, False) for model in (Shared, Residual, Detached, frozen, embedding, Branching)],
)
@pytest.mark.parametrize("loss", [cross_entropy, squared_errors], ids=["cross entropy", "squares"])
@pytest.mark.parametrize("local", [LOCAL_DECAY, LocalSGD(lr=0.1, steps=7, batch_size=4), LocalSGD(batch_size=100)])
def test_chains_are_stacked_and_all_else_is_mapped(model, stacked, loss, local):
    task = make_task(clients=6, sizes=(4, 17, 30, 8, 1))
    task.model, task.loss = model, loss
    flat = FlatModule(task.module())
    first = flat.read()
    work = [(Job(c, c, c % 3), Model(first.params * (1 + 0.1 * (c % 3)), first.buffers)) for c in range(6)]
    trainer = BatchTrainer(FlatModule(task.module()), task, local, 5)
    assert (trainer.stacked is not None) is stacked
    for update in trainer.train(work):
        plain = train_job(flat, task, local, 5, *work[update.job.id])
        torch.testing.assert_close(update.delta, plain.delta, rtol=1e-4, atol=1e-6)
        assert update.metrics["loss"] == pytest.approx(plain.metrics["loss"], rel=1e-4)


@pytest.mark.parametrize("gathered", [1 << 24, 100], ids=["all steps at once", "step by step"])
@pytest.mark.parametrize("classes", [3, 40])
@pytest.mark.parametrize("ignored", [False, True])
def test_cross_entropy_over_few_or_many_classes_some_examples_left_out(ignored, classes, gathered, monkeypatch):
    monkeypatch.setattr("fadas.training.many_jobs._GATHERED", gathered)
    task = make_task(clients=6, sizes=(4, 17, 30, 8, 1))
    task.model = lambda: nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, classes))
    if ignored:  # not those that the trainer tries itself with
        task.clients[1][1][3:9] = task.clients[2][1][::2] = -100
    assert assert_batch_agrees(task, LOCAL_DECAY, [Job(c, c, 0) for c in range(6)]).stacked


def test_labels_of_examples_that_no_client_has_do_not_matter():
    inputs, targets = make_task(clients=1, sizes=(60,)).clients[0]
    targets[0] = -1
    task = Task(
        make_chain, Subsets((inputs, targets), [torch.arange(1, 20), torch.arange(20, 24), torch.arange(24, 43)])
    )
    assert assert_batch_agrees(task, LOCAL_DECAY, [Job(c, c, 0) for c in range(3)]).stacked


class Squeezed(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 1)

    def forward(self, x):
        return self.layer(x).squeeze()


class SqueezedFirst(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 3)

    def forward(self, x):
        return self.layer(x[:, None].squeeze())


def squares(outputs, targets):
    return (outputs - targets) ** 2


@pytest.mark.parametrize("jobs", [1, 3])
@pytest.mark.parametrize(("model", "shape", "stacked"), [(Squeezed, (), True), (SqueezedFirst, (3,), False)])
def test_one_example_in_all_where_a_module_squeezes(model, shape, stacked, jobs):
    task = make_task(clients=3, sizes=(4,))
    task.model, task.loss = model, squares
    task.clients = [(x, x[:, :3] if shape else x[:, 0]) for x, _ in task.clients]
    trainer = assert_batch_agrees(task, LocalSGD(lr=0.1, batch_size=1), [Job(c, c, 0) for c in range(jobs)])
    assert (trainer.stacked is not None) is stacked


class Folded(nn.Module):
    """The parts of an example are rows for a while."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(2, 4), nn.Linear(12, 3)

    def forward(self, x):
        return self.last(self.first(x.view(-1, 2)).tanh().view(-1, 12))


def tokens():
    return nn.Sequential(nn.Unflatten(1, (3, 2)), nn.Linear(2, 5))  # three classes of each of five


@pytest.mark.parametrize(
    ("model", "targets"),
    [(Folded, lambda y: y), (make_chain, lambda y: F.one_hot(y, 3).float()), (make_chain, lambda y: y.to(torch.uint8))]
    + [
        (tokens, lambda y: y[:, None].expand(-1, 5)),
        (tokens, lambda y: F.one_hot(y, 3)[..., None].expand(-1, 3, 5) / 1),
    ],
    ids=["folded", "soft", "bytes", "tokens", "soft tokens"],
)
def test_unusual_chains_and_targets_are_stacked(model, targets):
    task = make_task(clients=6, sizes=(4, 17, 30, 8, 1))
    task.model, task.clients = model, [(x, targets(y).contiguous()) for x, y in task.clients]
    assert assert_batch_agrees(task, LOCAL_DECAY, [Job(c, c, 0) for c in range(6)]).stacked


def weighted(outputs, targets):
    weights = torch.tensor([1.0, 2, 4])[targets]
    return cross_entropy(outputs, targets) * weights / weights.mean()


def across(outputs, targets):
    return (outputs[:, :1] - targets) ** 2  # a common mistake: every output against every target


@pytest.mark.parametrize("loss", [weighted, across])
def test_a_loss_in_which_examples_see_each_other_is_not_padded(loss):
    task = make_task(clients=4, sizes=(20, 20, 7, 20))
    task.loss = loss
    assert_batch_agrees(task, LOCAL_DECAY, [Job(c, c, 0) for c in range(4)])


def test_losses_in_half_precision_add_up_over_many_steps(monkeypatch):
    monkeypatch.setattr("fadas.training.many_jobs._GATHERED", 1)
    task = Task(lambda: nn.Linear(6, 3, bias=False).half(), [(torch.zeros(5, 6).half(), torch.zeros(5).long())])
    trainer = BatchTrainer(FlatModule(task.module()), task, LocalSGD(steps=2000, batch_size=5), 5)
    assert trainer.stacked
    (update,) = trainer.train([(Job(0, 0, 0), trainer.flat.read())])
    assert update.metrics["loss"] == pytest.approx(math.log(3), rel=1e-3)


def test_company_does_not_change_a_jobs_numbers_by_more_than_rounding_nor_repeats_at_all():
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


def test_one_data_set_dealt_out_trains_as_the_same_data_given_client_by_client():
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


def test_a_batch_of_one_that_is_never_trained_does_not_matter_to_batchnorm():
    task, local = make_task(batchnorm=True, sizes=(6,)), LocalSGD(lr=0.1, batch_size=5, steps=1)
    flat = FlatModule(task.module())
    trainer = BatchTrainer(FlatModule(task.module()), task, local, 5)
    trainer.rehearse()
    (update,) = trainer.train([(Job(0, 0, 0), flat.read())])
    torch.testing.assert_close(update.delta, train_job(flat, task, local, 5, Job(0, 0, 0), flat.read()).delta)


def test_what_is_random_is_refused_in_a_batch():
    task = make_task()
    task.model = lambda: nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.5), nn.Linear(8, 3))
    with pytest.raises(ValueError, match="dropout"):
        BatchTrainer(FlatModule(task.module()), task, LOCAL_DECAY, 0).rehearse()


@pytest.mark.parametrize("batchnorm", [False, True])
def test_a_module_in_double_precision(batchnorm):
    task = make_task(batchnorm=batchnorm, sizes=(7,))  # a seventh is not the same number in single precision
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


def test_weights_decay_as_fast_when_jobs_are_stacked():
    """Seen where nothing else happens: in weights whose inputs are 0. Rounding must not go one way in all of them."""
    data = [(torch.zeros(5, 1000), torch.zeros(5).long())]
    task, local = Task(lambda: nn.Linear(1000, 3), data), LocalSGD(lr=0.01, steps=200, batch_size=5, weight_decay=1e-4)
    trainer = BatchTrainer(FlatModule(task.module(1)), task, local, 1)
    assert trainer.stacked
    start = FlatModule(task.module(1)).read()
    (update,) = trainer.train([(Job(0, 0, 0), start)])
    weights = start.params[:3000].double()
    decayed = -(update.delta[:3000].double() @ weights) / (weights @ weights)
    assert float(decayed) == pytest.approx(200 * 0.01 * 1e-4, rel=0.005)


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_data_that_are_not_finite_diverge_in_a_batch_too(number):
    """They are no mistake in the settings: the run is kept as what it is, as with any other executor."""
    data = [(torch.full((6, 4), number), torch.zeros(6).long()) for _ in range(4)]
    task = Task(lambda: nn.Linear(4, 3), data)
    schedule = plan(FADAS().schedule(2, 1), 4, steps=3)
    for executor in ("inline", "batched", "auto"):
        with pytest.raises(Diverged, match="not finite"):
            list(simulate(schedule, task, FADAS(), LOCAL_DECAY, executor=executor))


def clipped():
    module = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
    for parameter in module.parameters():
        parameter.register_hook(lambda grad: grad.clamp(-1e-3, 1e-3))
    return module


def clamped():
    module = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
    module[0].register_forward_hook(lambda module, inputs, output: output.clamp(-1e-3, 1e-3))
    return module


@pytest.mark.parametrize("model", [clipped, clamped])
def test_hooks_are_not_left_out(model):
    task, local = make_even_task(model), LocalSGD(lr=0.5, batch_size=4)
    executors = [EXECUTORS[name](task, local, 1) for name in ("auto", "inline")]
    start = FlatModule(task.module(1)).read()
    deltas = []
    for executor in executors:
        executor.submit(Job(0, 0, 0), start, 0)
        deltas.append(executor.collect(Job(0, 0, 0)).delta)
        executor.close()
    assert torch.equal(*deltas)
    if model is clipped:
        with pytest.raises(ValueError, match="hooks on gradients are not called"):
            Batched(task, local, 1)
    else:
        assert not Batched(task, local, 1)._trainer.stacked


class Named(nn.Module):
    """Gives a dict."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 3)

    def forward(self, x):
        return {"logits": self.layer(x)}


def test_what_batches_cannot_take_others_train():
    local = LocalSGD(batch_size=4)
    wide = [(torch.randn(12, 5 + k), torch.arange(12) % 3) for k in range(4)]
    task = make_even_task(lambda: nn.Sequential(nn.AdaptiveAvgPool1d(4), nn.Linear(4, 3)), clients=wide)
    EXECUTORS["auto"](task, local, 1).close()
    with pytest.raises(ValueError, match="clients whose examples differ in shape share no batch; name another"):
        Batched(task, local, 1)
    named = make_even_task(Named, loss=lambda outputs, targets: cross_entropy(outputs["logits"], targets))
    EXECUTORS["auto"](named, local, 1).close()
    rare = make_even_task(lambda: nn.Sequential(nn.Dropout(0.001), nn.Linear(6, 3)))
    for seed in range(5):  # that no value was dropped when it was tried says nothing
        torch.manual_seed(seed)
        assert not isinstance(EXECUTORS["auto"](rare, local, 1), Batched)


class TwoBiases(nn.Module):
    """Parameters that have one gradient in common, as those of an LSTM."""

    def __init__(self):
        super().__init__()
        self.layer, self.one, self.other = nn.Linear(6, 3), nn.Parameter(torch.ones(3)), nn.Parameter(-torch.ones(3))

    def forward(self, x):
        return self.layer(x) + (self.one + self.other)


def test_weights_decay_each_by_themselves_where_gradients_are_shared():
    local = LocalSGD(lr=0.1, batch_size=4, weight_decay=0.5)
    task = make_even_task(TwoBiases)
    trainer = BatchTrainer(FlatModule(task.module(1)), task, local, 1)
    trainer.rehearse()
    start = trainer.flat.read()
    (batched,) = trainer.train([(Job(0, 0, 0), start)])
    alone = train_job(trainer.flat, task, local, 1, Job(0, 0, 0), start)
    torch.testing.assert_close(batched.delta, alone.delta, rtol=1e-4, atol=1e-6)


def test_modules_that_share_what_they_train_are_refused():
    body = nn.Linear(6, 6)
    task = make_even_task(lambda: nn.Sequential(body, nn.ReLU(), nn.Linear(6, 3)))
    timeline = plan(FADAS().schedule(3, 2), 6, steps=2, seed=1)
    for executor in ("auto", "inline", "processes", "batched"):
        with pytest.raises(ValueError, match=r"share the trainable parameter '0.weight'"):
            simulate(timeline, task, FADAS(), LocalSGD(), executor=executor)
    body.requires_grad_(False)  # as LoRA has it
    assert len(list(simulate(timeline, task, FADAS(), LocalSGD(), executor="inline"))) == 2


@pytest.mark.parametrize("draw", [random.random, lambda: np.random.rand()])  # noqa: NPY002
def test_generators_that_no_job_seeds_are_refused(draw):
    task = make_even_task(
        lambda: nn.Linear(6, 3), loss=lambda outputs, targets: cross_entropy(outputs * draw(), targets)
    )
    with pytest.raises(ValueError, match="draws from the global generator of Python or numpy"):
        simulate(plan(FADAS().schedule(3, 2), 6, steps=2), task, FADAS(), LocalSGD(), executor="inline")
