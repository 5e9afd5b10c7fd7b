"""A task: a model, the clients' data, a loss, and what to measure on the server's test data."""

import copy
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import Dataset

from fadas.errors import ConfigError, first_line
from fadas.rng import INIT, mix
from fadas.tasks.metrics import Measure, accuracy, choose_metrics
from fadas.tasks.subsets import Data, Rows, Subsets, as_tensor, has_mapped, split_rows
from fadas.tasks.weights import StartWeights, Weights, load_weights, read_weights

Loss = Callable[[Tensor, Tensor], Tensor]  # (outputs, targets) -> one loss per example, or their mean
# Stored inputs -> inputs for the module. Training passes a generator, for random augmentation; evaluation passes None.
Transform = Callable[[list[Tensor], torch.Generator | None], list[Tensor]]
Save = Callable[[nn.Module, Path], None]
Load = Callable[[nn.Module, Mapping[str, Tensor]], Mapping[str, Tensor]]
Block = list[tuple[int, Data]]  # clients, each with its test data: all of one shape


def cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the cross-entropy of each example.

    Args:
        outputs: The logits.
        targets: Labels, or a probability for each class.

    Example:
        >>> cross_entropy(torch.randn(8, 3), torch.zeros(8, dtype=torch.int64)).shape
        torch.Size([8])
    """
    return F.cross_entropy(outputs, targets, reduction="none")


def send(tensor: Tensor, device: str | torch.device) -> Tensor:
    """Copy a tensor to a device. A copy to a GPU goes through pinned memory, so the CPU does not wait for it."""
    pinned = tensor.pin_memory() if torch.device(device).type == "cuda" and not tensor.is_cuda else tensor
    return pinned.to(device, non_blocking=True)


@dataclass
class Task:
    """What is trained: a model, one data set per client, a loss, and what to measure.

    Args:
        model: A module, or a function that makes one. A function is called under the run's seed, so that the seed
            decides the initial parameters. A module is copied as it is.
        clients: The data of each client. They are a tuple (inputs, ..., targets) of tensors or arrays, with one input
            per argument of the module, or a torch data set of such items. NumPy arrays become tensors: floats of
            torch's default dtype, and labels of 64 bits. For parts of one data set, which may be larger than memory, a
            `fadas.Subsets`.
        loss: A function of (outputs, targets). It returns one value per example, or their mean.
        test: The test data, in the form of one client's data. None: nothing is measured.
        metrics: Functions of (all outputs, all targets) on the test data, by name, or the names of ready ones, such as
            ["accuracy", "macro_f1"] (see `fadas.metrics`). They are reported beside the loss. None: the accuracy if
            targets are whole numbers, else none.
        transform: A function of (inputs, generator) that returns the module's inputs. It runs on the device that uses
            them. With a generator it augments them at random, for training. With None it must not.
        save: A function of (module, folder) that writes a trained module, for example an adapter without its frozen
            base. None: the state dict is written.
        weights: The weights that training starts from: tensors by name, or a safetensors file, such as a run's
            model.safetensors. None: those of the module.
        load: A function of (module, tensors) that returns the tensors of `weights` by the names of the module's state
            dict, for files that `save` wrote. None: they have these names.
        client_test: Each client's own test data, in the form of `clients`. A client may have none: no examples. None:
            there are no local test splits.

    Example:
        >>> clients = [(torch.randn(n, 4), torch.randint(0, 2, (n,))) for n in (10, 25, 7)]
        >>> task = Task(nn.Linear(4, 2), clients, test=clients[0])
        >>> again = Task(nn.Linear(4, 2), clients, test=clients[0], weights=task.module().state_dict())
    """

    model: nn.Module | Callable[[], nn.Module]
    clients: Sequence[Data]
    loss: Loss = cross_entropy
    test: Data | None = None
    metrics: Mapping[str, Measure] | Sequence[str] | None = None
    transform: Transform | None = None
    save: Save | None = None
    weights: Weights | None = None
    load: Load | None = None
    client_test: Sequence[Data] | None = None

    def __post_init__(self) -> None:
        self.metrics = choose_metrics(self.metrics)
        if not isinstance(self.clients, Subsets):
            self.clients = [_tensors(data, f"client {client}") for client, data in enumerate(self.clients)]
        if self.test is not None and not isinstance(self.test, Rows):
            self.test = Rows(self.test) if has_mapped(self.test) else _tensors(self.test, "test")
        if isinstance(self.clients, Subsets):
            _length(self.clients.data, "the clients' data")
            self.sizes = [len(part) for part in self.clients.parts]
        else:
            self.sizes = [_length(data, f"client {client}") for client, data in enumerate(self.clients)]
        for client, size in enumerate(self.sizes):
            if not size:
                raise ValueError(f"client {client} has no examples")
        if isinstance(self.weights, str | Path):
            self.weights = read_weights(self.weights)  # once: the file may change while the task is used
        if self.test is not None and not _length(self.test.data if isinstance(self.test, Rows) else self.test, "test"):
            raise ValueError("the test data have no examples")
        if self.client_test is not None:
            self._check_client_test(self.client_test)

    def _check_client_test(self, splits: Sequence[Data]) -> None:
        if len(splits) != len(self.clients):
            raise ValueError(f"client_test has {len(splits)} splits for {len(self.clients)} clients")
        if isinstance(splits, Subsets):
            sizes = [len(part) for part in splits.parts]
        else:
            splits = [_tensors(data, f"client_test of client {client}") for client, data in enumerate(splits)]
            sizes = [_length(data, f"client_test of client {client}") for client, data in enumerate(splits)]
        if not any(sizes):
            raise ValueError("client_test has no examples")
        self.client_test = splits

    @property
    def mapped(self) -> bool:
        """Whether the clients' data stay on disk, because they may be larger than memory."""
        return isinstance(self.clients, Subsets) and self.clients.mapped

    def examples(self, client: int, rows: slice | list[int]) -> list[Tensor]:
        """Return some of a client's examples, without gathering the others.

        Args:
            client: The client.
            rows: Which of the client's examples.
        """
        if isinstance(self.clients, Subsets):
            return [column[self.clients.parts[client][rows]] for column in self.clients.data]
        return [column[rows] for column in self.clients[client]]

    @cached_property
    def alike(self) -> bool:
        """Whether all clients have examples of the same shape."""
        if isinstance(self.clients, Subsets):
            return True
        return len({tuple((column.shape[1:], column.dtype) for column in data) for data in self.clients}) < 2

    def targets(self, client: int) -> Tensor:
        """Return a client's targets, without gathering its inputs."""
        if isinstance(self.clients, Subsets):
            return self.clients.data[-1][self.clients.parts[client]]
        return self.clients[client][-1]

    def label_counts(self) -> list[list[int]] | None:
        """Return how many examples of each label each client has, by client and label.

        None if the targets are not labels, or if the table would have more than 200,000 cells.
        """
        shared = [self.clients.data[-1]] if isinstance(self.clients, Subsets) else []
        if any(targets.is_floating_point() or targets.dim() != 1 for targets in shared):
            return None  # before anything is gathered
        labels = [self.targets(client) for client in range(len(self.clients))]
        if any(targets.is_floating_point() or targets.dim() != 1 or int(targets.min()) < 0 for targets in labels):
            return None
        classes = 1 + max(int(targets.max()) for targets in labels)
        if classes * len(labels) > 200_000:
            return None
        return [torch.bincount(targets.long(), minlength=classes).tolist() for targets in labels]

    def module(self, seed: int = 0) -> nn.Module:
        """Return a new module: a function's result, initialised from the seed, or a copy of the given module.

        If the task has `weights`, they replace the initial ones.

        Args:
            seed: The run's seed.
        """
        module = self._new_module(seed)
        if self.weights is not None:
            tensors = read_weights(self.weights) if isinstance(self.weights, str | Path) else self.weights
            load_weights(module, self.load(module, tensors) if self.load else tensors)
        return module

    def _new_module(self, seed: int) -> nn.Module:
        if isinstance(self.model, nn.Module):
            return copy.deepcopy(self.model)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(mix(seed, INIT) >> 1)
            return self.model()

    def prepare(self, inputs: list[Tensor], generator: torch.Generator | None = None) -> list[Tensor]:
        """Return inputs for the module, by the task's transform.

        Args:
            inputs: The stored inputs.
            generator: The generator of random augmentation, for training. None: no augmentation.
        """
        return self.transform(inputs, generator) if self.transform else inputs

    @property
    def measured(self) -> Mapping[str, Measure]:
        """The metrics that are measured beside the loss."""
        if (targets := self._test_targets()) is None:
            return {}
        labels = not targets.is_floating_point()
        chosen = choose_metrics(self.metrics)
        return chosen if chosen is not None else {"accuracy": accuracy} if labels else {}

    def _test_targets(self) -> Tensor | None:
        """Return targets of the test data or, if there are none, of a client's own test split."""
        if isinstance(self.test, Rows):
            return self.test.data[-1]
        if self.test is not None:
            return self.test[-1]
        if self.client_test is None:
            return None
        return next(targets for *_, targets in self.client_test if len(targets))

    @torch.no_grad()
    def evaluate(self, module: nn.Module, chunk: int = 1000) -> dict[str, float]:
        """Return the loss and the metrics on the test data. Without test data, return nothing.

        Args:
            module: The module, on the device to use. It is put into evaluation mode.
            chunk: The number of examples per forward pass.
        """
        if self.test is None:
            return {}
        module.eval()
        device = next(module.parameters()).device
        outputs: list[Tensor] = []
        losses: list[Tensor] = []
        for parts in split_rows(self.test, chunk):
            *inputs, targets = (part.to(device) for part in parts)
            outputs.append(module(*self.prepare(inputs)))
            losses.append(self.loss(outputs[-1], targets).double().mean() * len(targets))
        targets = self.test[-1].to(device)
        measured = {name: float(metric(torch.cat(outputs), targets)) for name, metric in self.measured.items()}
        return {**measured, "loss": float(torch.stack(losses).sum()) / len(targets)}


@torch.no_grad()
def evaluate_clients(
    task: Task, module: nn.Module, chunk: int = 1000, clients: Sequence[int] | None = None
) -> dict[str, list[float]]:
    """Return the loss and the metrics of a model on each client's own test data.

    Clients are evaluated together: small splits share a forward pass.

    Args:
        task: The task. Without local test splits, nothing is returned.
        module: The module, on the device to use. It is put into evaluation mode.
        chunk: The number of examples per forward pass.
        clients: The clients whose test data to use. The others get NaN. None: all.

    Returns:
        For each name one value per client. NaN where it is undefined: for a client without test examples, and for a
        metric that refuses a client's examples, as some refuse a single class.

    Example:
        >>> evaluate_clients(task, task.module())["accuracy"]
        [0.5, 1.0, nan]
    """
    if task.client_test is None:
        return {}
    module.eval()
    device = next(module.parameters()).device
    measured = {name: [math.nan] * len(task.client_test) for name in (*task.measured, "loss")}
    refusals: dict[str, ValueError] = {}
    for block in _blocks(task.client_test, chunk, range(len(task.client_test)) if clients is None else clients):
        columns = [torch.cat(column) for column in zip(*(data for _, data in block), strict=True)]
        pieces = zip(*(column.split(chunk) for column in columns[:-1]), strict=True)
        outputs = torch.cat([module(*task.prepare([part.to(device) for part in piece])) for piece in pieces])
        sizes = [len(data[-1]) for _, data in block]
        split = zip(outputs.split(sizes), columns[-1].to(device).split(sizes), strict=True)
        for (client, _), (own, targets) in zip(block, split, strict=True):
            for name, metric in task.measured.items():
                try:
                    measured[name][client] = float(metric(own, targets))
                except ConfigError:
                    raise
                except ValueError as error:
                    refusals[name] = error
            measured["loss"][client] = float(task.loss(own, targets).double().mean())
    for name, error in refusals.items():
        if clients is None and all(map(math.isnan, measured[name])):  # not a matter of single clients
            raise error
    return measured


def _blocks(splits: Sequence[Data], chunk: int, clients: Sequence[int]) -> Iterator[Block]:
    """Yield blocks of clients with examples of one shape: at least `chunk` examples, if there are enough."""
    block: Block = []
    size = 0
    for client in clients:
        data = splits[client]
        if not len(data[-1]):
            continue
        if block and (size >= chunk or _shapes(block[0][1]) != _shapes(data)):
            yield block
            block, size = [], 0
        block.append((client, data))
        size += len(data[-1])
    if block:
        yield block


def _shapes(data: Data) -> list[tuple[torch.Size, torch.dtype]]:
    return [(column.shape[1:], column.dtype) for column in data]


def _tensors(data: Any, owner: str) -> Data:
    """Return the columns of a tuple, or of a torch data set's items, as tensors."""
    if isinstance(data, Tensor | np.ndarray):
        raise ValueError(f"{owner}: expected (inputs, ..., targets), got one array")
    if isinstance(data, Dataset) and not len(data):  # type: ignore[arg-type]
        raise ValueError(f"{owner} has no examples")
    try:
        if isinstance(data, Dataset):
            *inputs, targets = zip(*(data[i] for i in range(len(data))), strict=True)  # type: ignore[arg-type]
            inputs = [torch.stack([as_tensor(value) for value in column]) for column in inputs]
            return [*inputs, torch.stack([as_tensor(value, label=True) for value in targets])]
        *inputs, targets = data
        return [*map(as_tensor, inputs), as_tensor(targets, label=True)]
    except (TypeError, ValueError, RuntimeError) as error:  # what torch and NumPy raise for unsuitable values
        reason = first_line(error).split(". ")[0]
        raise ValueError(f"{owner}: expected (inputs, ..., targets), tensors or arrays of numbers: {reason}") from None


def _length(data: Data, owner: str) -> int:
    """Return the number of examples. Raise a ValueError if the columns differ in length."""
    shapes = {tuple(tensor.shape[:1]) for tensor in data}
    if len(data) < 2 or len(shapes) != 1 or () in shapes:
        raise ValueError(f"{owner}: expected (inputs, ..., targets), all of the same length")
    return shapes.pop()[0]


def set_weights(task: Task, weights: StartWeights, seed: int, where: str) -> None:
    """Let a task start from a file of weights.

    Args:
        task: The task.
        weights: The file.
        seed: The seed of the network that the weights are tried in.
        where: The setting, for messages.

    Raises:
        ConfigError: The file cannot be read, has changed, or does not fit the network.
    """
    try:
        task.weights = read_weights(weights.path, weights.digest)
        task.module(seed)
    except ConfigError as error:
        raise ConfigError(f"{where} = {weights.path!r}: {error}") from None


def on_device(task: Task, device: str) -> Task:
    """Return a task with its data on a device. Data that clients share are copied once. Those on disk stay there.

    Args:
        task: The task.
        device: Where the data go: "cuda", "cuda:1", ...

    Example:
        >>> task = on_device(task, "cuda")
    """
    if task.mapped:
        return task
    test = None if task.test is None else [tensor.to(device) for tensor in task.test]
    splits = None if task.client_test is None else _move(task.client_test, device)
    return replace(task, clients=_move(task.clients, device), test=test, client_test=splits)


def _move(clients: Sequence[Data], device: str) -> Sequence[Data]:
    if isinstance(clients, Subsets):
        return Subsets([tensor.to(device) for tensor in clients.data], [part.to(device) for part in clients.parts])
    return [[tensor.to(device) for tensor in data] for data in clients]
