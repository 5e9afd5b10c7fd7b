"""The workloads of the benchmarks: tasks of known size, and the plain loop that a researcher would write for them."""

import copy
import math
import time
from collections.abc import Iterator
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fadas.simulation.planner import Plan
from fadas.tasks import TASKS
from fadas.tasks.cifar import CIFAR10, crop_and_flip
from fadas.tasks.networks import cnn, resnet18
from fadas.tasks.partition import deal
from fadas.tasks.task import Subsets, Task
from fadas.training.optimizers import Adam, Momentum
from fadas.training.sgd import LocalSGD

CLIENTS, CONCURRENCY, BUFFER = 50, 25, 10
STEPS = 5
LOCAL = LocalSGD(lr=0.05, batch_size=20, steps=STEPS)
OTHERS: dict[str, LocalSGD] = {
    "momentum": Momentum(lr=0.05, batch_size=20, steps=STEPS),
    "Adam": Adam(lr=1e-3, batch_size=20, steps=STEPS),
    "a proximal term": LocalSGD(lr=0.05, batch_size=20, steps=STEPS, mu=0.1),
}


def _learnable(shape: tuple[int, ...], examples: int) -> tuple[Tensor, Tensor]:
    """Return random inputs, and labels that a linear map of the inputs decides, so that there is something to learn."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(examples, *shape, generator=generator)
    directions = torch.randn(inputs[0].numel(), 10, generator=generator)
    return inputs, (inputs.flatten(1) @ directions).argmax(1)


def _make_task(model: Any, shape: tuple[int, ...], clients: int = CLIENTS, examples: int = 100) -> Task:
    data = _learnable(shape, min(clients, 50) * examples)
    parts = [torch.arange(examples) + examples * (client % 50) for client in range(clients)]
    return Task(model, Subsets(data, parts), test=[tensor[:1000] for tensor in data])


def _mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 10))


def mlp(clients: int = CLIENTS) -> Task:
    """Return a task with a network of 2,762 parameters on vectors of 32 numbers."""
    return _make_task(_mlp, (32,), clients)


def small_cnn() -> Task:
    """Return a task with a network of 57,398 parameters on 32x32 images."""
    return _make_task(partial(cnn, 10), (3, 32, 32))


def plain_loop(task: Task, local: LocalSGD, timeline: Plan, seconds: float = math.inf) -> tuple[nn.Module, int]:
    """Train as a researcher would: one module, torch.optim on the client and the server, one job at a time.

    Each job starts from the version that the plan gives it.

    Args:
        task: The task to train on.
        local: What the clients do: SGD, momentum or Adam, with or without a proximal term, for `STEPS` steps.
        timeline: The plan.
        seconds: End after the first server step that is done later than this.

    Returns:
        The module with the final model, and the number of updates.
    """
    end = time.perf_counter() + seconds
    module = task.module(timeline.seed)
    x = nn.Parameter(nn.utils.parameters_to_vector(module.parameters()).detach().clone())
    server = torch.optim.Adam([x], lr=1e-3, betas=(0.9, 0.99), amsgrad=True)
    versions = [x.detach().clone()]
    for jobs in timeline.arrivals:
        mean = torch.zeros_like(x)
        for id in jobs:
            start = versions[int(timeline.version[id])]
            nn.utils.vector_to_parameters(start.clone(), module.parameters())
            optimizer = _torch_optimizer(local, module)
            before = [p.detach().clone() for p in module.parameters()] if local.mu else []
            inputs, targets = task.clients[int(timeline.client[id])]
            for index in islice(_batches(len(targets), local.batch_size), STEPS):
                optimizer.zero_grad()
                F.cross_entropy(module(inputs[index]), targets[index]).backward()
                for p, first in zip(module.parameters(), before):
                    p.grad.add_(p.detach() - first, alpha=local.mu)  # type: ignore[union-attr]
                optimizer.step()
            mean += (nn.utils.parameters_to_vector(module.parameters()).detach() - start) / len(jobs)
        x.grad = -mean
        server.step()
        versions.append(x.detach().clone())
        if time.perf_counter() > end:
            break
    nn.utils.vector_to_parameters(x.detach(), module.parameters())
    return module, (len(versions) - 1) * timeline.schedule.buffer


def _torch_optimizer(local: LocalSGD, module: nn.Module) -> torch.optim.Optimizer:
    options: dict[str, Any] = {"lr": local.lr, "weight_decay": local.weight_decay}
    if isinstance(local, Adam):
        return torch.optim.Adam(module.parameters(), betas=(local.beta1, local.beta2), eps=local.eps, **options)
    momentum = local.beta if isinstance(local, Momentum) else 0.0
    return torch.optim.SGD(module.parameters(), momentum=momentum, **options)


def _batches(examples: int, size: int) -> Iterator[Tensor]:
    while True:
        yield from torch.randperm(examples).split(size)


def hand_batched(task: Task, jobs: int, seconds: float) -> float:
    """Return the updates per second of the MLP's arithmetic alone, written by hand for many jobs at once.

    It gathers batches, takes SGD steps on all models in batched products, and returns losses and deltas. It draws no
    orders, plans nothing and has no server: no simulator can be faster on these products.

    Args:
        task: The task, from `mlp`.
        jobs: How many jobs are trained at once.
        seconds: How long to measure.
    """
    assert isinstance(task.clients, Subsets)
    inputs, targets = task.clients.data
    start = nn.utils.parameters_to_vector(task.module(1).parameters()).detach()
    rows, rate, shrink = LOCAL.batch_size, LOCAL.lr, LOCAL.lr * LOCAL.weight_decay
    ones = torch.ones(jobs, 1, rows)
    picks = torch.randint(0, len(targets), (16, STEPS * jobs * rows), generator=torch.Generator().manual_seed(0))
    begin, done = time.perf_counter(), 0
    while time.perf_counter() < begin + seconds:
        starts = torch.stack([start] * jobs)
        pieces = starts.split([2048, 64, 640, 10], 1)
        w1, b1, w2, b2 = (p.reshape(jobs, *s) for p, s in zip(pieces, ((64, 32), (1, 64), (10, 64), (1, 10))))
        pick = picks[done // jobs % len(picks)]
        x_steps = inputs.index_select(0, pick).view(STEPS, jobs, rows, -1)
        y_steps = targets.index_select(0, pick).view(STEPS, jobs, rows, 1)
        hits: list[Tensor] = []
        for x, y in zip(x_steps, y_steps):
            hidden = torch.baddbmm(b1, x, w1.mT).relu_()
            log_p = torch.baddbmm(b2, hidden, w2.mT).log_softmax(2)
            hits.append(log_p.gather(2, y))
            grad = log_p.exp_().scatter_add_(2, y, log_p.new_full((), -1.0).expand(y.shape)).div_(rows)
            below = torch.ops.aten.threshold_backward(torch.bmm(grad, w2), hidden, 0)
            for weight, bias, above, under in ((w2, b2, grad, hidden), (w1, b1, below, x)):
                weight.add_(weight, alpha=-shrink).baddbmm_(above.mT, under, alpha=-rate)
                bias.add_(bias, alpha=-shrink).baddbmm_(ones, above, alpha=-rate)
        torch.stack(hits).mean((0, 2, 3)).tolist()
        (torch.cat([p.flatten(1) for p in (w1, b1, w2, b2)], 1) - starts).unbind()
        done += jobs
    return done / (time.perf_counter() - begin)


def cifar() -> tuple[Task, str]:
    """Return the paper's task, CIFAR-10 with ResNet-18, and the name of the data: random images without CIFAR-10."""
    if CIFAR10.complete():
        return TASKS["cifar10"](seed=1), "CIFAR-10"
    generator = torch.Generator().manual_seed(0)
    train, test = (
        (torch.randint(0, 256, (n, 3, 32, 32), dtype=torch.uint8, generator=generator), torch.arange(n) % 10)
        for n in (50_000, 10_000)
    )
    parts = deal(train[1].numpy(), 50, np.random.default_rng(1), "dirichlet-capped", 0.1, 2)

    def transform(inputs: list[Tensor], source: torch.Generator | None) -> list[Tensor]:
        images = crop_and_flip(inputs[0], source) if source else inputs[0]
        return [images.float().sub_(128).div_(64)]

    return Task(partial(resnet18, 10), Subsets(train, parts), test=test, transform=transform), "random images"


def bert(dropout: float, length: int = 128, clients: int = 10, examples: int = 320) -> Task:
    """Return a task with an encoder of the size of BERT-base, with random weights and tokens, and LoRA of rank 1."""
    from transformers import BertConfig, BertForSequenceClassification

    from fadas.tasks.encoders import lora

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        rates: dict[str, Any] = {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout}
        base = BertForSequenceClassification(BertConfig(**rates)).requires_grad_(False)
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(1000, 30_000, (clients * examples, length), dtype=torch.int32, generator=generator)
    labels = torch.randint(0, 2, (len(ids),), generator=generator)
    parts = list(torch.arange(len(ids)).chunk(clients))

    def model() -> nn.Module:
        return lora(copy.copy(base), 1, 8, ("query", "key", "value"))

    return Task(model, Subsets((ids, torch.zeros_like(ids), labels), parts))
