"""Chains of layers are trained stacked, all else mapped."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from fadas import training
from fadas.algorithms.companions import ControlVariates
from fadas.algorithms.presets import FedBuff
from fadas.core.ledger import Job
from fadas.core.model import Model
from fadas.errors import ConfigError
from fadas.tasks.task import Subsets, Task, cross_entropy
from fadas.training.batched.many_jobs import BatchTrainer
from fadas.training.flat_module import FlatModule
from fadas.training.one_job import train_job
from fadas.training.sgd import LocalSGD
from helpers.networks import make_chain, squared_errors
from helpers.training import LOCAL_DECAY, assert_batch_agrees, make_even_task, make_plan, make_task, run_simulation


class Chain(nn.Module):
    """A chain written as a forward: functions, methods, a layer without bias, tokens."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.last = nn.Linear(3, 7), nn.Linear(7, 4, bias=False), nn.Linear(8, 3)

    def forward(self, x):
        x = F.gelu(self.second(torch.relu(self.first(x.view(-1, 2, 3)))))
        return self.last(x.flatten(1).tanh())


class SharedLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.head = nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, x):
        return self.head(self.layer(self.layer(x).relu()))


class Residual(SharedLayer):
    def forward(self, x):
        return self.head(x + self.layer(x))


class Detached(SharedLayer):
    def forward(self, x):
        return self.head(self.layer(x).detach())


class Branching(SharedLayer):
    def forward(self, x):
        return self.head(self.layer(x) if len(x) > 0 else x)


def make_frozen_chain():
    module = make_chain()
    module[0].requires_grad_(False)
    return module


def make_single_layer():
    return nn.Linear(6, 3)


def make_norm_chain():
    return nn.Sequential(nn.LayerNorm(6), nn.Linear(6, 3))


@pytest.mark.parametrize(
    ("model", "stacked"),
    [(model, True) for model in (make_chain, Chain, make_single_layer)]
    + [(model, False) for model in (SharedLayer, Residual, Detached, make_frozen_chain, make_norm_chain, Branching)],
)
@pytest.mark.parametrize("loss", [cross_entropy, squared_errors], ids=["cross entropy", "squares"])
@pytest.mark.parametrize("local", [LOCAL_DECAY, LocalSGD(lr=0.1, steps=7, batch_size=4), LocalSGD(batch_size=100)])
def test_chains_are_stacked_and_other_modules_mapped(model, stacked, loss, local):
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


def test_bad_labels_outside_all_clients_are_ignored():
    inputs, targets = make_task(clients=1, sizes=(60,)).clients[0]
    targets[0] = -1
    task = Task(
        make_chain, Subsets((inputs, targets), [torch.arange(1, 20), torch.arange(20, 24), torch.arange(24, 43)])
    )
    assert assert_batch_agrees(task, LOCAL_DECAY, [Job(c, c, 0) for c in range(3)]).stacked


class SqueezedOutput(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 1)

    def forward(self, x):
        return self.layer(x).squeeze()


class SqueezedInput(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 3)

    def forward(self, x):
        return self.layer(x[:, None].squeeze())


def squared_difference(outputs, targets):
    return (outputs - targets) ** 2


@pytest.mark.parametrize("jobs", [1, 3])
@pytest.mark.parametrize(("model", "shape", "stacked"), [(SqueezedOutput, (), True), (SqueezedInput, (3,), False)])
def test_squeezing_module_agrees_for_single_example(model, shape, stacked, jobs):
    task = make_task(clients=3, sizes=(4,))
    task.model, task.loss = model, squared_difference
    task.clients = [(x, x[:, :3] if shape else x[:, 0]) for x, _ in task.clients]
    trainer = assert_batch_agrees(task, LocalSGD(lr=0.1, batch_size=1), [Job(c, c, 0) for c in range(jobs)])
    assert (trainer.stacked is not None) is stacked


class FoldedExamples(nn.Module):
    """Between two layers, the parts of an example are rows."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(2, 4), nn.Linear(12, 3)

    def forward(self, x):
        return self.last(self.first(x.view(-1, 2)).tanh().view(-1, 12))


def make_token_classifier():
    return nn.Sequential(nn.Unflatten(1, (3, 2)), nn.Linear(2, 5))  # three classes for each of five tokens


@pytest.mark.parametrize(
    ("model", "targets"),
    [
        (FoldedExamples, lambda y: y),
        (make_chain, lambda y: F.one_hot(y, 3).float()),
        (make_chain, lambda y: y.to(torch.uint8)),
    ]
    + [
        (make_token_classifier, lambda y: y[:, None].expand(-1, 5)),
        (make_token_classifier, lambda y: F.one_hot(y, 3)[..., None].expand(-1, 3, 5) / 1),
    ],
    ids=["folded", "soft", "bytes", "tokens", "soft tokens"],
)
def test_unusual_chains_and_targets_are_stacked(model, targets):
    task = make_task(clients=6, sizes=(4, 17, 30, 8, 1))
    task.model, task.clients = model, [(x, targets(y).contiguous()) for x, y in task.clients]
    assert assert_batch_agrees(task, LOCAL_DECAY, [Job(c, c, 0) for c in range(6)]).stacked


def test_stacked_weights_decay_at_given_rate():
    """Weights with inputs of 0 change by decay alone. Rounding must not go one way in all of them."""
    data = [(torch.zeros(5, 1000), torch.zeros(5).long())]
    task, local = Task(lambda: nn.Linear(1000, 3), data), LocalSGD(lr=0.01, steps=200, batch_size=5, weight_decay=1e-4)
    trainer = BatchTrainer(FlatModule(task.module(1)), task, local, 1)
    assert trainer.stacked
    start = FlatModule(task.module(1)).read()
    (update,) = trainer.train([(Job(0, 0, 0), start)])
    weights = start.params[:3000].double()
    decayed = -(update.delta[:3000].double() @ weights) / (weights @ weights)
    assert float(decayed) == pytest.approx(200 * 0.01 * 1e-4, rel=0.005)


class Words(nn.Module):
    """An embedding, its mean, and a linear layer."""

    def __init__(self, **options):
        super().__init__()
        self.words, self.head = nn.Embedding(11, 4, **options), nn.Linear(4, 3)

    def forward(self, x):
        return self.head(self.words(x).mean(1))


def make_words_task(model) -> Task:
    source = torch.Generator().manual_seed(0)
    sizes = (12, 7, 20, 12, 5, 9)
    clients = [(torch.randint(0, 11, (n, 6), generator=source), torch.arange(n) % 3) for n in sizes]
    return Task(model, clients)


EMBEDDINGS = {
    "mean": Words,
    "padding": lambda: Words(padding_idx=2),
    "flat": lambda: nn.Sequential(nn.Embedding(11, 4), nn.Flatten(), nn.ReLU(), nn.Linear(24, 3)),
}
LOCALS = [
    LOCAL_DECAY,
    training.Momentum(0.1, 2, 5, weight_decay=0.01),
    training.Adam(0.01, 2, 5, eps=1e-4),
    training.LocalSGD(0.1, 2, 5, mu=0.3, decoupled=True, weight_decay=0.1),
    replace(LOCAL_DECAY, companion=ControlVariates()),
]


@pytest.mark.parametrize("local", LOCALS, ids=["sgd", "momentum", "adam", "proximal", "variates"])
@pytest.mark.parametrize("model", EMBEDDINGS.values(), ids=EMBEDDINGS)
def test_embedding_is_stacked(model, local):
    task = make_words_task(model)
    assert assert_batch_agrees(task, local, [Job(k, k, 0) for k in range(6)]).stacked


@pytest.mark.parametrize("options", [{"max_norm": 1.0}, {"scale_grad_by_freq": True}], ids=str)
def test_embedding_that_looks_at_the_whole_batch_is_not_stacked(options):
    flat = FlatModule(Words(**options))
    assert BatchTrainer(flat, make_words_task(lambda: Words(**options)), LOCAL_DECAY, 0).stacked is None


@pytest.mark.parametrize("wrong", [10, -1])
def test_index_beyond_an_embedding_is_refused(wrong):
    """The next row of the stacked weights is one of another job."""
    source = torch.Generator().manual_seed(0)
    clients = [(torch.randint(0, 10, (12, 3), generator=source), torch.arange(12) % 3) for _ in range(6)]
    task = make_even_task(lambda: nn.Sequential(nn.Embedding(10, 4), nn.Flatten(), nn.Linear(12, 3)), clients=clients)
    p = make_plan(FedBuff(), 6, steps=2)
    run_simulation(p, task, FedBuff(), executor="batched")
    clients[4][0][10, 0] = wrong
    with pytest.raises(ConfigError, match=f"hold the index {wrong}, but the embedding has the rows 0 to 9"):
        run_simulation(p, task, FedBuff(), executor="batched")
