"""Local training with SGD, the base of all local trainers, and the rows of data that a job trains on.

The other local optimizers are in `optimizers.py`. Faster ways to train take the plain SGD step by themselves:
`fadas.training` lists the places.

A job's randomness comes from (run seed, job id) alone. Its update does not depend on when, where or beside which other
jobs it is computed.
"""

import math
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from fadas.core.ledger import Job
from fadas.rng import BATCHES, mix
from fadas.tasks.task import Subsets, Task
from fadas.training.flat_module import FlatModule
from fadas.training.schedules import RateSchedule
from fadas.validate import MOST_BATCH_SIZE, MOST_BATCHES, at_least, at_most, not_negative, positive

State = MutableMapping[str, Tensor]  # what a local optimizer keeps within a job


@dataclass(frozen=True)
class LocalSGD:
    """Local training: SGD over the client's shuffled data. A short last batch is trained, not dropped.

    A subclass takes another step with the gradient. It overrides `step`, and names in `memory` the vectors that `step`
    keeps from one local step to the next. See `fadas.training.Momentum`.

    Args:
        lr: The learning rate.
        epochs: The number of passes over the client's data.
        batch_size: The number of examples per batch.
        weight_decay: The L2 penalty, which is added to the gradient.
        steps: Train exactly this many batches instead of epochs. The data are shuffled again when they run out. None:
            train epochs.
        mu: FedProx's proximal term: pulls a client towards the model that its job started from. 0: off.
        clip: The largest norm of a batch's gradient. Longer gradients are shortened to it. None: any norm.
        schedule: How the learning rate changes with the server's version. None: it stays the same.

    Attributes:
        memory: The names of the vectors that `step` keeps. They start as zeros in each job.
        elementwise: Does `step` treat every parameter alike? Then many jobs can be trained in one call.

    Example:
        >>> LocalSGD(lr=0.1, epochs=1, batch_size=20, weight_decay=0.0)
        >>> LocalSGD(lr=0.1, steps=10, mu=0.01, clip=5.0, schedule=Cosine(steps=500))
    """

    memory: ClassVar[tuple[str, ...]] = ()
    elementwise: ClassVar[bool] = True

    lr: float = 0.01
    epochs: int = 2
    batch_size: int = 50
    weight_decay: float = 1e-4
    steps: int | None = None
    mu: float = 0.0
    clip: float | None = None
    schedule: RateSchedule | None = None

    def __post_init__(self) -> None:
        positive(lr=self.lr)
        not_negative(weight_decay=self.weight_decay, mu=self.mu)
        if self.clip is not None:
            positive(clip=self.clip)
        at_least(1, epochs=self.epochs, batch_size=self.batch_size, steps=self.steps)
        at_most(MOST_BATCHES, epochs=self.epochs, steps=self.steps)
        at_most(MOST_BATCH_SIZE, batch_size=self.batch_size)

    @property
    def is_plain(self) -> bool:
        """Whether a local step is params - lr * (gradient + weight_decay * params), and nothing else."""
        return type(self) is LocalSGD and not self.mu and self.clip is None and self.schedule is None

    def at(self, version: int) -> Self:
        """Return local training as a job does it that starts from this server version: with the rate of `schedule`."""
        if self.schedule is None:
            return self
        factor = self.schedule(version)
        if not 0 < factor < math.inf:
            raise ValueError(f"the schedule of the local rate must be positive, got {factor} at version {version}")
        return replace(self, lr=self.lr * factor, schedule=None)

    def step(self, params: Tensor, grads: Tensor, state: State, t: Any) -> None:
        """Take one step in place.

        Args:
            params: The parameters: a vector [P], or for many jobs a tensor [B, ...] of each parameter.
            grads: Their gradient. It may be overwritten.
            state: The vectors named in `memory`, shaped like the parameters.
            t: The number of the local step, from 1: a number, or a tensor in a captured graph.
        """
        params.add_(grads, alpha=-self.lr)

    def decay(self, params: Tensor, grads: Tensor) -> None:
        """Apply weight decay, in place."""
        grads.add_(params, alpha=self.weight_decay)

    def attract(self, params: Tensor, grads: Tensor, start: Tensor) -> None:
        """Add the gradient of the proximal term, mu * (params - start), in place."""
        if self.mu:
            grads.add_(params, alpha=self.mu).sub_(start, alpha=self.mu)

    def prepare(self, params: Tensor, grads: Tensor, start: Tensor) -> None:
        """Add the proximal term to the gradient of one model and clip it, in place."""
        self.attract(params, grads, start)
        if self.clip is not None:
            grads.mul_(self.shorten(grads.norm()))

    def shorten(self, norm: Tensor) -> Tensor:
        """Return what to multiply gradients of this norm with, so that they are at most `clip` long."""
        return (self.clip / norm.clamp(min=1e-30)).clamp(max=1.0) if self.clip is not None else torch.ones_like(norm)

    def begin(self, flat: FlatModule, start: Tensor) -> Callable[[int], None]:
        """Return a function that takes local step t with the gradient in `flat.grads`.

        Args:
            flat: The module that trains.
            start: The parameters that the job started from.
        """
        move = self.mover(flat)

        def take(t: int) -> None:
            self.prepare(flat.params, flat.grads, start)
            move(t)

        return take

    def mover(self, flat: FlatModule) -> Callable[[int], None]:
        """Return a function that applies weight decay and `step` number t to a module, with new memory."""
        state = {name: torch.zeros_like(flat.params) for name in self.memory}

        def move(t: int) -> None:
            self.decay(flat.params, flat.grads)
            self.step(flat.params, flat.grads, state, t)

        return move

    def short_batch(self, examples: int) -> int:
        """Return the size of the short last batch; 0 if there is none, or if it is never trained."""
        full, rest = divmod(examples, self.batch_size)
        return rest if self.steps is None or self.steps > full else 0

    def batches(self, examples: int) -> int:
        """Return how many batches a job of this many examples trains."""
        return self.steps or self.epochs * math.ceil(examples / self.batch_size)

    def epochs_of(self, examples: int, generator: torch.Generator) -> Iterator[Tensor]:
        """Yield the order of the examples in each epoch. With `steps`, the last epoch may end after any full batch."""
        left = self.batches(examples)
        while left > 0:
            order = torch.randperm(examples, generator=generator)[: left * self.batch_size]
            left -= math.ceil(len(order) / self.batch_size)
            yield order


def job_seed(seed: int, job: Job) -> int:
    """Return the seed of a job's random numbers."""
    return mix(seed, BATCHES, job.id) >> 1  # torch takes 63 bits


def epoch_rows(task: Task, local: LocalSGD, seed: int, job: Job, device: str) -> tuple[Sequence[Tensor], list[Tensor]]:
    """Return what a job trains on: columns of data, and for each epoch the rows to take, `batch_size` at a time.

    If the task augments its data, every epoch has a copy of its own.
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
