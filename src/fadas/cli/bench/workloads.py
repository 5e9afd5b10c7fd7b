"""The workloads of the benchmarks: tasks of known size, and the plain loop that a researcher would write for them."""

import copy
import math
import time
from functools import partial
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
from fadas.training.sgd import LocalSGD

CLIENTS, CONCURRENCY, BUFFER = 50, 25, 10
STEPS = 5
LOCAL = LocalSGD(lr=0.05, batch_size=20, steps=STEPS)


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
    """Train as a researcher would: one module, torch.optim.SGD on the client, Adam on the server, one job at a time.

    Each job starts from the version that the plan gives it.

    Args:
        task: The task to train on.
        local: The batch size, learning rate and weight decay of the clients, which take `STEPS` steps.
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
            optimizer = torch.optim.SGD(module.parameters(), local.lr, weight_decay=local.weight_decay)
            inputs, targets = task.clients[int(timeline.client[id])]
            for index in torch.randperm(len(targets)).split(local.batch_size)[:STEPS]:
                optimizer.zero_grad()
                F.cross_entropy(module(inputs[index]), targets[index]).backward()
                optimizer.step()
            mean += (nn.utils.parameters_to_vector(module.parameters()).detach() - start) / len(jobs)
        x.grad = -mean
        server.step()
        versions.append(x.detach().clone())
        if time.perf_counter() > end:
            break
    nn.utils.vector_to_parameters(x.detach(), module.parameters())
    return module, (len(versions) - 1) * timeline.schedule.buffer


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
