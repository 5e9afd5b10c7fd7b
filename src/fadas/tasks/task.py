"""A task: a model, the clients' data, a loss, and what to measure on the server's test data."""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import Dataset

from fadas.rng import INIT, mix

Data = Sequence[Tensor]  # inputs..., targets; all of one length
Loss = Callable[[Tensor, Tensor], Tensor]  # (outputs, targets) -> one loss per example, or their mean
Metric = Callable[[Tensor, Tensor], Tensor]  # (all outputs, all targets) -> a number
# Inputs as they are stored -> inputs as the module takes them. With a generator: for training, augmented at random.
Transform = Callable[[list[Tensor], torch.Generator | None], list[Tensor]]
Save = Callable[[nn.Module, Path], None]


def cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(outputs, targets, reduction="none")


def accuracy(outputs: Tensor, targets: Tensor) -> Tensor:
    """The share of examples whose label has the largest of their outputs, one for each class."""
    classes = outputs.shape[1] if outputs.dim() > 1 else 1
    if classes < 2 or outputs[:, 0].shape != targets.shape:  # which would compare something, but not that
        shapes = f"outputs {list(outputs.shape)} and targets {list(targets.shape)}"
        needs = "accuracy needs an output per class and a label per example"
        raise ValueError(f"{needs}, not {shapes}; give the task metrics of its own")
    return (outputs.argmax(1) == targets).double().mean()


def send(tensor: Tensor, device: str | torch.device) -> Tensor:
    """To a device without waiting for it, where the device can fetch the data by itself."""
    pinned = tensor.pin_memory() if torch.device(device).type == "cuda" and not tensor.is_cuda else tensor
    return pinned.to(device, non_blocking=True)


class Subsets(Sequence[Data]):
    """One data set dealt out to clients. A client's data are gathered when asked for: nothing is kept twice."""

    def __init__(self, data: Data, parts: Sequence[Tensor]) -> None:
        self.data, self.parts = data, parts

    def __len__(self) -> int:
        return len(self.parts)

    def __getitem__(self, client):  # type: ignore[no-untyped-def, override]
        return [tensor[self.parts[client]] for tensor in self.data]


@dataclass
class Task:
    """Bring your own: a module (or a function that makes one), one data set per client, a loss.

    `clients[i]` is a tuple of tensors (inputs, targets), with several inputs for modules with several arguments, or a
    torch data set of such items. NumPy arrays become tensors: floats of torch's default dtype, labels of 64 bits.
    `loss` takes (outputs, targets) and returns one value per example or their mean. `test` is shaped like a client's
    data, and `metrics` are functions of all its outputs and targets, reported beside the loss; by default the accuracy,
    where targets are labels. `transform` prepares inputs on the device where they are used, and augments them when it
    is given a generator. `save` writes a trained module where a state dict would be too much, e.g. an adapter without
    its frozen base.
    """

    model: nn.Module | Callable[[], nn.Module]
    clients: Sequence[Data]
    loss: Loss = cross_entropy
    test: Data | None = None
    metrics: Mapping[str, Metric] | None = None
    transform: Transform | None = None
    save: Save | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.clients, Subsets):
            self.clients = [_tensors(data, f"client {client}") for client, data in enumerate(self.clients)]
        if self.test is not None:
            self.test = _tensors(self.test, "test")
        if isinstance(self.clients, Subsets):
            self.sizes = [len(part) for part in self.clients.parts]
        else:
            self.sizes = [_length(data, f"client {client}") for client, data in enumerate(self.clients)]
        for client, size in enumerate(self.sizes):
            if not size:
                raise ValueError(f"client {client} has no examples")
        if self.test is not None and not _length(self.test, "test"):
            raise ValueError("the test data have no examples")

    @cached_property
    def alike(self) -> bool:
        """Do all clients have examples of the same shape?"""
        if isinstance(self.clients, Subsets):
            return True
        return len({tuple((column.shape[1:], column.dtype) for column in data) for data in self.clients}) < 2

    def targets(self, client: int) -> Tensor:
        """A client's targets, without gathering its inputs."""
        if isinstance(self.clients, Subsets):
            return self.clients.data[-1][self.clients.parts[client]]
        return self.clients[client][-1]

    def label_counts(self) -> list[list[int]] | None:
        """For each client, how many examples of each label it has; None where targets are no labels, or too many."""
        labels = [self.targets(client) for client in range(len(self.clients))]
        if any(targets.is_floating_point() or targets.dim() != 1 or int(targets.min()) < 0 for targets in labels):
            return None
        classes = 1 + max(int(targets.max()) for targets in labels)
        if classes * len(labels) > 200_000:
            return None
        return [torch.bincount(targets, minlength=classes).tolist() for targets in labels]

    def module(self, seed: int = 0) -> nn.Module:
        """A fresh module. One made by a function is initialised from the seed; a given one is copied as it is."""
        if isinstance(self.model, nn.Module):
            return copy.deepcopy(self.model)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(mix(seed, INIT) >> 1)
            return self.model()

    def prepare(self, inputs: list[Tensor], generator: torch.Generator | None = None) -> list[Tensor]:
        return self.transform(inputs, generator) if self.transform else inputs

    @property
    def measured(self) -> Mapping[str, Metric]:
        """What is measured beside the loss."""
        if self.test is None:
            return {}
        labels = not self.test[-1].is_floating_point()
        return self.metrics if self.metrics is not None else {"accuracy": accuracy} if labels else {}

    @torch.no_grad()
    def evaluate(self, module: nn.Module, chunk: int = 1000) -> dict[str, float]:
        """Loss and metrics on the test data; empty without test data."""
        if self.test is None:
            return {}
        module.eval()
        device = next(module.parameters()).device
        outputs: list[Tensor] = []
        losses: list[Tensor] = []
        for parts in zip(*(tensor.split(chunk) for tensor in self.test), strict=True):
            *inputs, targets = (part.to(device) for part in parts)
            outputs.append(module(*self.prepare(inputs)))
            losses.append(self.loss(outputs[-1], targets).double().mean() * len(targets))
        targets = self.test[-1].to(device)
        measured = {name: float(metric(torch.cat(outputs), targets)) for name, metric in self.measured.items()}
        return {**measured, "loss": float(torch.stack(losses).sum()) / len(targets)}


def _tensors(data: Any, who: str) -> Data:
    """The columns of a client's data as tensors: of a tuple, or of a torch data set's items."""
    if isinstance(data, Tensor | np.ndarray):
        raise ValueError(f"{who}: expected (inputs, ..., targets), not one array")
    if isinstance(data, Dataset) and not len(data):  # type: ignore[arg-type]
        raise ValueError(f"{who} has no examples")
    try:
        if isinstance(data, Dataset):
            *inputs, targets = zip(*(data[i] for i in range(len(data))), strict=True)  # type: ignore[arg-type]
            inputs = [torch.stack([_tensor(value) for value in column]) for column in inputs]
            return [*inputs, torch.stack([_tensor(value, label=True) for value in targets])]
        *inputs, targets = data
        return [*map(_tensor, inputs), _tensor(targets, label=True)]
    except (TypeError, ValueError, RuntimeError) as error:  # torch's and numpy's ways to refuse
        reason = str(error).split(". ")[0].splitlines()[0]
        raise ValueError(f"{who}: expected (inputs, ..., targets), tensors or arrays of numbers: {reason}") from None


def _tensor(values: Any, label: bool = False) -> Tensor:
    """A tensor as it is. NumPy's floats are double unless one says otherwise, torch's networks are not."""
    if isinstance(values, Tensor):
        return values
    if np.ma.is_masked(values):  # torch would take whatever lies beneath the mask
        raise ValueError("a masked array lacks values: fill them in, or leave these examples out")
    tensor = torch.as_tensor(np.require(values, requirements=["C", "W"]))  # a copy where torch could not share it
    if tensor.is_floating_point():
        return tensor.to(torch.get_default_dtype())
    return tensor.long() if label and tensor.dtype != torch.bool else tensor  # torch's losses take no shorter ones


def _length(data: Data, who: str) -> int:
    shapes = {tuple(tensor.shape[:1]) for tensor in data}
    if len(data) < 2 or len(shapes) != 1 or () in shapes:
        raise ValueError(f"{who}: expected (inputs, ..., targets), all of one length")
    return shapes.pop()[0]
