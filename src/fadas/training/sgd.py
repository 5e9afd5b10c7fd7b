"""The settings of local training, and the rows of data that a job trains on.

The SGD step itself is in `one_job.py`, and once more in each faster way to train: `fadas.training` lists the places.

A job's randomness comes from (run seed, job id) alone. Its update does not depend on when, where or beside which other
jobs it is computed.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fadas.core.ledger import Job
from fadas.rng import BATCHES, mix
from fadas.tasks.task import Subsets, Task
from fadas.validate import MOST_BATCH_SIZE, MOST_BATCHES, at_least, at_most, not_negative, positive


@dataclass(frozen=True)
class LocalSGD:
    """Local training: SGD over the client's shuffled data. A short last batch is trained, not dropped.

    Args:
        lr: The learning rate.
        epochs: The number of passes over the client's data.
        batch_size: The number of examples per batch.
        weight_decay: The L2 penalty, which is added to the gradient.
        steps: Train exactly this many batches instead of epochs. The data are shuffled again when they run out. None:
            train epochs.

    Example:
        >>> LocalSGD(lr=0.1, epochs=1, batch_size=20, weight_decay=0.0)
        >>> LocalSGD(lr=0.1, steps=10)
    """

    lr: float = 0.01
    epochs: int = 2
    batch_size: int = 50
    weight_decay: float = 1e-4
    steps: int | None = None

    def __post_init__(self) -> None:
        positive(lr=self.lr)
        not_negative(weight_decay=self.weight_decay)
        at_least(1, epochs=self.epochs, batch_size=self.batch_size, steps=self.steps)
        at_most(MOST_BATCHES, epochs=self.epochs, steps=self.steps)
        at_most(MOST_BATCH_SIZE, batch_size=self.batch_size)

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
