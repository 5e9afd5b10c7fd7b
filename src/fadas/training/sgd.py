"""Local training, one job at a time. (batch.py trains many at once; executors/cuda.py captures the step as a graph.)

A job's randomness comes from (run seed, job id) alone, so its update does not depend on when, where or beside which
other jobs it is computed.
"""

import math
import pickle
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm  # pyright: ignore[reportPrivateUsage]

from fadas.core.ledger import Job
from fadas.core.model import Model, Update
from fadas.rng import BATCHES, mix
from fadas.tasks.task import Subsets, Task
from fadas.training.flat_module import FlatModule
from fadas.validate import whole_number


@dataclass(frozen=True)
class LocalSGD:
    """What a client does with a job: SGD over its shuffled data for some epochs (or a fixed number of steps).

    A short last batch is trained, not dropped.
    """

    lr: float = 0.01
    epochs: int = 2
    batch_size: int = 50
    weight_decay: float = 1e-4
    steps: int | None = None  # instead of epochs: exactly this many batches, reshuffled whenever the data run out

    def __post_init__(self) -> None:
        if not 0 < self.lr < math.inf:
            raise ValueError(f"lr must be a positive number, not {self.lr}")
        if not 0 <= self.weight_decay < math.inf:
            raise ValueError(f"weight_decay must not be negative, not {self.weight_decay}")
        whole_number(epochs=self.epochs, batch_size=self.batch_size, steps=self.steps)
        for name in ("epochs", "batch_size", "steps"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, not {value}")

    def short_batch(self, examples: int) -> int:
        """How large the short last batch is, where there is one that is ever trained; else 0."""
        full, rest = divmod(examples, self.batch_size)
        return rest if self.steps is None or self.steps > full else 0

    def epochs_of(self, examples: int, generator: torch.Generator) -> Iterator[Tensor]:
        """The examples' order in every epoch. Only with `steps` may the last one be cut, after a whole batch."""
        left = self.steps or self.epochs * math.ceil(examples / self.batch_size)
        while left > 0:
            order = torch.randperm(examples, generator=generator)[: left * self.batch_size]
            left -= math.ceil(len(order) / self.batch_size)
            yield order


def job_seed(seed: int, job: Job) -> int:
    return mix(seed, BATCHES, job.id) >> 1  # torch takes 63 bits


def lessons(task: Task, local: LocalSGD, seed: int, job: Job, device: str) -> tuple[Sequence[Tensor], list[Tensor]]:
    """What a job trains on: columns of data, and for each epoch the rows to take, `batch_size` at a time.

    Where the task augments its data, every epoch gets a copy of its own.
    """
    generator = torch.Generator().manual_seed(job_seed(seed, job))
    epochs = local.epochs_of(task.sizes[job.client], generator)
    if isinstance(task.clients, Subsets) and not task.transform and device == "cpu":
        part = task.clients.parts[job.client]
        return task.clients.data, [
            part.index_select(0, order) for order in epochs
        ]  # nothing is gathered but the batches
    *inputs, targets = (tensor.to(device) for tensor in task.clients[job.client])
    if not task.transform:
        return [*inputs, targets], list(epochs)
    copies: list[list[Tensor]] = []
    rows: list[Tensor] = []
    for order in epochs:
        rows.append(order + len(copies) * len(targets))
        copies.append([*task.prepare(inputs, generator), targets])
    return [torch.cat(column) if len(copies) > 1 else column[0] for column in zip(*copies)], rows


def check(flat: FlatModule, task: Task, local: LocalSGD) -> None:
    """Refuse, before anything is trained, what would fail within a run or not repeat itself.

    That is a module whose BatchNorm cannot take the batch of one that a client has, a transform that draws from a
    generator of its own choice, and a module or loss that draws from any but torch's.
    """
    _check_transform(task)
    _check_module(flat, task)
    alone = next((c for c, size in enumerate(task.sizes) if 1 in (local.batch_size, local.short_batch(size))), None)
    if alone is None or not any(isinstance(module, _BatchNorm) for module in flat.module.modules()):
        return
    before = flat.read()
    *inputs, _ = (tensor[:1].to(flat.device) for tensor in task.clients[alone])
    try:
        with torch.no_grad(), _in_training(flat.module):
            flat.module(*task.prepare(inputs))
    except ValueError:
        hint = f"batch_size ({local.batch_size}) leaves client {alone} with a batch of one example"
        raise ValueError(f"{hint}, which the module's BatchNorm cannot take; choose another") from None
    finally:
        flat.load(before)


def _other_states() -> tuple[object, ...]:
    """Of the global generators that are not torch's."""
    legacy = pickle.dumps(np.random.get_state(legacy=False))  # noqa: NPY002  not to draw, but to see who does
    return random.getstate(), legacy


def _check_module(flat: FlatModule, task: Task) -> None:
    try:
        _, first = _drawn(flat, task)
        if flat.device != "cpu":
            return  # there the same sum may be rounded in two ways
        with torch.random.fork_rng(devices=[]):
            second = _rehearsed(flat, task)
    except _Unseeded:
        raise
    except Exception:  # what does not work shows when it is trained
        return
    if not torch.allclose(first, second, 1e-4, 1e-7, equal_nan=True):
        raise ValueError(
            "the task's module or loss gives something else when it is called again: what it keeps in a Python "
            "attribute or in a frozen parameter depends on which jobs were done before; make that a buffer"
        )


class _Unseeded(ValueError):
    """Random numbers that no job's seed decides."""


@contextmanager
def _in_training(module: nn.Module) -> Iterator[None]:
    """The module as it is when it trains; then as it was."""
    modes = [(part, part.training) for part in module.modules()]
    module.train()
    try:
        yield
    finally:
        for part, mode in modes:
            part.training = mode


def _check_transform(task: Task) -> None:
    if not task.transform:
        return

    def states() -> tuple[object, ...]:
        return torch.get_rng_state().tolist(), *_other_states()

    before = states()
    *inputs, _ = (tensor[:4] for tensor in task.clients[0])
    with torch.random.fork_rng(devices=[]):
        task.prepare(inputs, torch.Generator().manual_seed(0))
        after = states()
    if before != after:
        raise ValueError(
            "the task's transform draws from a global random generator, so a run would not depend on its seed alone; "
            "draw from the generator that the transform is given"
        )


def draws(flat: FlatModule, task: Task) -> set[str]:
    """On what kinds of device module and loss draw random numbers when they train, as dropout does.

    A job seeds torch's generators, and no other: an error where they draw from Python's or numpy's.
    """
    return _drawn(flat, task)[0]


def _drawn(flat: FlatModule, task: Task) -> tuple[set[str], Tensor]:
    """What `draws` says, and the loss."""
    device = torch.device(flat.device)
    generators: dict[str, Callable[[], Tensor]] = {"cpu": torch.get_rng_state}
    if device.type == "cuda":
        generators["cuda"] = partial(torch.cuda.get_rng_state, device)
    others = _other_states()
    try:
        with torch.random.fork_rng([device] if "cuda" in generators else []):
            states = {kind: read() for kind, read in generators.items()}
            loss = _rehearsed(flat, task)
            return {kind for kind, read in generators.items() if not torch.equal(states[kind], read())}, loss
    finally:
        if others != _other_states():
            raise _Unseeded(
                "the task's module or loss draws from the global generator of Python or numpy, so a run would not "
                "depend on its seed alone; draw from torch's"
            )


@torch.no_grad()
def _rehearsed(flat: FlatModule, task: Task) -> Tensor:
    """The loss on a few examples, as in training; then all is as it was, but for the state of random generators."""
    before = flat.read()
    *inputs, targets = (tensor[:4].to(flat.device) for tensor in task.clients[0])
    inputs = [torch.cat([column, column]) for column in task.prepare(inputs)]  # two at least, for BatchNorm
    try:
        with _in_training(flat.module):
            return task.loss(flat.module(*inputs), torch.cat([targets, targets]))
    finally:
        flat.load(before)


def train(
    flat: FlatModule, task: Task, local: LocalSGD, seed: int, job: Job, start: Model, autocast: bool = False
) -> Update:
    """One job: local SGD from `start` on the client's data; with `autocast` torch uses bfloat16 where it sees fit."""
    data, epochs = lessons(task, local, seed, job, flat.device)
    flat.load(start)
    flat.module.train()
    losses: list[Tensor] = []
    with torch.random.fork_rng(devices=[]), torch.enable_grad():
        # For modules that draw from torch's global generator, such as dropout. `torch.manual_seed` seeds every device
        # that there might be, which costs more than a step of a small network.
        seeded = torch.default_generator.manual_seed if flat.device == "cpu" else torch.manual_seed
        seeded(job_seed(seed, job))
        for index in (batch for rows in epochs for batch in rows.split(local.batch_size)):
            *inputs, targets = (column.index_select(0, index.to(column.device)) for column in data)
            flat.grads.zero_()
            with torch.autocast(torch.device(flat.device).type, torch.bfloat16, enabled=autocast):
                value = task.loss(flat.module(*inputs), targets).mean()
            value.backward()
            with torch.no_grad():
                flat.grads.add_(flat.params, alpha=local.weight_decay)
                flat.params.add_(flat.grads, alpha=-local.lr)
            losses.append(value.detach())
    metrics = {"loss": float(torch.stack(losses).mean())}
    trained = flat.read()
    return Update(
        job, trained.params.sub_(start.params), trained.buffers, start.params, task.sizes[job.client], metrics
    )
