"""A task: a model, the clients' data, a loss, and what to measure on the server's test data."""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fadas.client import Data, Loss
from fadas.rng import INIT, mix

Metric = Callable[[Tensor, Tensor], Tensor]


def cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(outputs, targets, reduction="none")


def accuracy(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs.argmax(1) == targets).float()


@dataclass
class Task:
    """Bring your own: a module (or a function that makes one), one tuple of tensors per client, a loss.

    `clients[i]` is (inputs, targets), or (input, input, ..., targets) for modules with several arguments. `loss` takes
    (outputs, targets) and returns one value per example or their mean. `test` is shaped like a client's data; `metrics`
    are per-example functions of (outputs, targets) whose means are reported beside the loss.
    """

    model: nn.Module | Callable[[], nn.Module]
    clients: Sequence[Data]
    loss: Loss = cross_entropy
    test: Data | None = None
    metrics: Mapping[str, Metric] = field(default_factory=lambda: {"accuracy": accuracy})

    def __post_init__(self) -> None:
        for client, data in enumerate(self.clients):
            lengths = {len(tensor) for tensor in data}
            if len(data) < 2 or len(lengths) != 1:
                raise ValueError(f"client {client}: expected (inputs, ..., targets), all of one length")
            if not lengths.pop():
                raise ValueError(f"client {client} has no examples")

    @property
    def sizes(self) -> list[int]:
        return [len(data[-1]) for data in self.clients]

    def module(self, seed: int = 0) -> nn.Module:
        """A fresh module. One made by a function is initialised from the seed; a given one is copied as it is."""
        if isinstance(self.model, nn.Module):
            return copy.deepcopy(self.model)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(mix(seed, INIT) >> 1)
            return self.model()

    @torch.no_grad()
    def evaluate(self, module: nn.Module, chunk: int = 1000) -> dict[str, float]:
        """Loss and metrics on the test data; empty without test data."""
        if self.test is None:
            return {}
        module.eval()
        device = next(module.parameters()).device
        totals: dict[str, float] = {}
        for parts in zip(*(tensor.split(chunk) for tensor in self.test), strict=True):
            *inputs, targets = (part.to(device) for part in parts)
            outputs = module(*inputs)
            for name, metric in {**self.metrics, "loss": self.loss}.items():
                totals[name] = totals.get(name, 0.0) + float(metric(outputs, targets).double().mean()) * len(targets)
        return {name: total / len(self.test[-1]) for name, total in totals.items()}
