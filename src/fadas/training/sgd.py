"""Local training, one job at a time. (batch.py trains many at once; executors/cuda.py captures the step as a graph.)

A job's randomness comes from (run seed, job id) alone, so its update does not depend on when, where or beside which
other jobs it is computed.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fadas.core.ledger import Job
from fadas.rng import BATCHES, mix
from fadas.tasks.task import Subsets, Task
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


def epoch_rows(task: Task, local: LocalSGD, seed: int, job: Job, device: str) -> tuple[Sequence[Tensor], list[Tensor]]:
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
