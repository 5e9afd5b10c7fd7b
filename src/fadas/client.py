"""Local training: one job at a time, or many jobs at once. (executors/cuda.py captures the same step as a graph.)

A job's randomness comes from (run seed, job id) alone, so its update does not depend on when, where or beside which
other jobs it is computed.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import functional_call, grad_and_value, vmap
from torch.nn.modules.batchnorm import _BatchNorm  # pyright: ignore[reportPrivateUsage]
from torch.nn.modules.dropout import _DropoutNd  # pyright: ignore[reportPrivateUsage]

from fadas.ledger import Job
from fadas.model import FlatModule, Model, Update
from fadas.rng import BATCHES, mix
from fadas.task import Task

Work = tuple[Job, Model]  # a job and the model it starts from


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
        for name in ("epochs", "batch_size", "steps"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, not {value}")

    def batches(self, examples: int, generator: torch.Generator) -> Iterator[tuple[Tensor, ...]]:
        """The examples' indices of every local step, epoch by epoch."""
        left = self.steps or self.epochs * math.ceil(examples / self.batch_size)
        while left > 0:
            batches = torch.randperm(examples, generator=generator).split(self.batch_size)[:left]
            left -= len(batches)
            yield batches


def _job_seed(seed: int, job: Job) -> int:
    return mix(seed, BATCHES, job.id) >> 1  # torch takes 63 bits


def lessons(task: Task, local: LocalSGD, seed: int, job: Job, device: str) -> tuple[list[Tensor], list[Tensor]]:
    """What a job trains on: the client's data, and for each local step the rows of its batch.

    Where the task augments its data, every epoch gets a copy of its own.
    """
    *inputs, targets = (tensor.to(device) for tensor in task.clients[job.client])
    generator = torch.Generator().manual_seed(_job_seed(seed, job))
    columns: list[list[Tensor]] = []
    steps: list[Tensor] = []
    for batches in local.batches(len(targets), generator):
        offset = len(columns) * len(targets) if task.transform else 0
        steps += [index + offset for index in batches]
        if task.transform or not columns:
            columns.append([*task.prepare(inputs, generator), targets])
    return [torch.cat(copies) if len(copies) > 1 else copies[0] for copies in map(list, zip(*columns))], steps


def check(flat: FlatModule, task: Task, local: LocalSGD) -> None:
    """Refuse, before anything is trained, a module whose BatchNorm cannot take the batch of one that a client has."""
    alone = next(
        (c for c, size in enumerate(task.sizes) if 1 in (size, size % local.batch_size, local.batch_size)), None
    )
    if alone is None or not any(isinstance(module, _BatchNorm) for module in flat.module.modules()):
        return
    before = flat.read()
    *inputs, _ = (tensor[:1].to(flat.device) for tensor in task.clients[alone])
    flat.module.train()
    try:
        with torch.no_grad():
            flat.module(*task.prepare(inputs))
    except ValueError:
        hint = f"batch_size ({local.batch_size}) leaves client {alone} with a batch of one example"
        raise ValueError(f"{hint}, which the module's BatchNorm cannot take; choose another") from None
    finally:
        flat.load(before)


def train(flat: FlatModule, task: Task, local: LocalSGD, seed: int, job: Job, start: Model) -> Update:
    """One job: local SGD from `start` on the client's data."""
    data, steps = lessons(task, local, seed, job, flat.device)
    flat.load(start)
    flat.module.train()
    losses: list[Tensor] = []
    with torch.random.fork_rng(devices=[]), torch.enable_grad():
        torch.manual_seed(_job_seed(seed, job))  # for modules that draw from torch's global generator, such as dropout
        for index in steps:
            *inputs, targets = (column[index.to(column.device)] for column in data)
            flat.grads.zero_()
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


class BatchTrainer:
    """Many jobs at once: `vmap` over stacked parameters, buffers and data, whatever version each job starts from.

    Batches of unequal size are padded and the padding is masked out of the loss. That is not possible when examples
    see each other (BatchNorm), when the module has buffers, or when the loss is a mean already: then only jobs with
    equally many examples share a call (`groups`).
    """

    def __init__(self, flat: FlatModule, task: Task, local: LocalSGD, seed: int) -> None:
        if any(isinstance(m, _DropoutNd) and m.p > 0 for m in flat.module.modules()):
            raise ValueError("dropout draws differ when jobs share a batch; use the inline executor for this module")
        self.flat, self.task, self.local, self.seed = flat, task, local, seed
        self._gradients = vmap(grad_and_value(self._value), randomness="error")
        self._pads = self._may_pad()
        self.train([(Job(0, 0, 0), flat.read())])  # a module that vmap cannot take shows here, not within a run

    def _value(
        self, params: dict[str, Tensor], buffers: dict[str, Tensor], inputs: list[Tensor], targets: Tensor, mask: Tensor
    ) -> Tensor:
        outputs = functional_call(self.flat.module, (params, buffers), tuple(inputs))
        losses = self.task.loss(outputs, targets)
        if not self._pads:
            return losses.mean()
        per_example = losses.flatten(1).mean(1) if losses.dim() > 1 else losses
        return (per_example * mask).sum() / mask.sum()

    def groups(self, work: Sequence[Work]) -> list[list[Work]]:
        """The jobs that may train in one call."""
        if self._pads:
            return [list(work)]
        by_size: dict[int, list[Work]] = {}
        for item in work:
            by_size.setdefault(self.task.sizes[item[0].client], []).append(item)
        return list(by_size.values())

    @torch.no_grad()
    def _may_pad(self) -> bool:
        """Does the loss come per example, and is an example's output the same in whatever company?"""
        flat = self.flat
        if flat.buffers.numel():  # running statistics would count the padding
            return False
        few = [self.task.clients[client] for client in range(min(3, len(self.task.clients)))]
        *inputs, targets = (torch.cat([part[:3] for part in column]).to(flat.device) for column in zip(*few))
        if len(targets) < 3:
            return False
        inputs = self.task.prepare(inputs)
        flat.module.train()
        one, other = (flat.module(*(column[rows] for column in inputs)) for rows in ([0, 1], [0, 2]))
        return self.task.loss(one, targets[[0, 1]]).dim() > 0 and torch.allclose(one[0], other[0], rtol=1e-4)

    def train(self, work: Sequence[Work]) -> list[Update]:
        """The jobs' updates, in no particular order."""
        flat, local = self.flat, self.local
        flat.module.train()
        taught = {job.id: lessons(self.task, local, self.seed, job, flat.device) for job, _ in work}
        # Longest first: at local step k the jobs that still have a batch are then the first few rows.
        work = sorted(work, key=lambda item: -len(taught[item[0].id][1]))
        data, batches = zip(*(taught[job.id] for job, _ in work), strict=True)
        offsets = list(accumulate((len(columns[-1]) for columns in data), initial=0))
        pool = [torch.cat(columns) for columns in zip(*data, strict=True)]
        params = torch.stack([start.params for _, start in work])
        views = flat.named_params(params)
        buffers = {
            name: rows.contiguous()  # BatchNorm under vmap updates contiguous statistics in place, and only those
            for name, rows in flat.named_buffers(torch.stack([start.buffers for _, start in work])).items()
        }
        counters = {name: initial.expand(len(work), *initial.shape).clone() for name, initial in flat.counters.items()}
        losses = torch.zeros(len(work), device=params.device)
        for k in range(len(batches[0])):
            rows = [job_batches[k] + offset for job_batches, offset in zip(batches, offsets) if len(job_batches) > k]
            active = len(rows)
            lengths = torch.tensor([len(row) for row in rows])
            longest = int(lengths.max())
            padded = [F.pad(row, (0, longest - len(row)), value=int(row[0])) for row in rows]  # with a row of its own
            index = torch.stack(padded).to(params.device)
            mask = (torch.arange(longest) < lengths[:, None]).to(params)
            *inputs, targets = (column[index] for column in pool)
            here = {name: view[:active] for name, view in views.items()}
            state = {name: tensor[:active] for name, tensor in (buffers | counters).items()}
            grads, values = self._gradients(here, state, inputs, targets, mask)
            for name, view in here.items():
                view.sub_(grads[name].add_(view, alpha=local.weight_decay), alpha=local.lr)
            losses[:active] += values
        trained = torch.cat([params.new_zeros(len(work), 0), *(tensor.flatten(1) for tensor in buffers.values())], 1)
        return [
            Update(
                job,
                params[row] - start.params,
                trained[row].clone(),
                start.params,
                self.task.sizes[job.client],
                {"loss": loss / len(batches[row])},
            )
            for row, ((job, start), loss) in enumerate(zip(work, losses.tolist()))
        ]
