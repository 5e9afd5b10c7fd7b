"""Local training, many jobs at once, whatever version each starts from: for models so small that one job is overhead.

Two ways: a `Stacked` chain where the module is one, which costs little more than the arithmetic; else `vmap`, which
takes nearly everything.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from math import isfinite

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import functional_call, grad_and_value, vmap

from fadas.core.ledger import Job
from fadas.core.model import Model, Update
from fadas.tasks.task import Task
from fadas.training.flat_module import FlatModule
from fadas.training.one_job import train_job
from fadas.training.preflight import has_hooks, is_close, random_devices
from fadas.training.sgd import LocalSGD, epoch_rows
from fadas.training.stacked import Stacked
from fadas.training.stacked_losses import stack_padded

Work = tuple[Job, Model]  # a job and the model it starts from
_GATHERED = 1 << 24  # bytes
_INSTEAD = "name another executor: inline or processes"
Trained = tuple[Tensor, Tensor, Tensor]  # for each job: parameters, buffers, the sum of its losses over the steps


class BatchTrainer:
    """Trains a batch of jobs in one call.

    Batches of unequal size are padded, and the padding has no weight in the loss. That is not possible when examples
    see each other (BatchNorm), when the module has buffers, or when the loss is a mean already: then only jobs with
    equally many examples share a call (`groups`).
    """

    def __init__(self, flat: FlatModule, task: Task, local: LocalSGD, seed: int) -> None:
        self.flat, self.task, self.local, self.seed = flat, task, local, seed
        self._brief = replace(local, steps=min(2, local.steps or 2))  # to try things with
        self._gradients = vmap(grad_and_value(self._value, has_aux=True), randomness="error")
        self._pads = False
        with suppress(Exception), torch.random.fork_rng(devices=[]):  # the user's code, on data of whatever shape
            self._pads = self._may_pad()
        self.stacked = self._stack() if self._pads and task.alike and not has_hooks(flat.module) else None

    def check_batching(self) -> None:
        """Refuse now, not within a run, a module that cannot be trained in a batch, or learns something else there."""
        if not self.task.alike:
            raise ValueError(f"clients whose examples differ in shape share no batch; {_INSTEAD}")
        if has_hooks(self.flat.module, backward=True):
            raise ValueError(f"hooks on gradients are not called for a batch of jobs; {_INSTEAD}")
        if random_devices(self.flat, self.task):
            raise ValueError(f"dropout draws differ when jobs share a batch; {_INSTEAD}")
        if self.stacked:
            return  # that has been compared when it was made
        local, start = self._brief, self.flat.read()
        work = [(Job(0, 0, 0), start), (Job(1, 0, 0), Model(start.params * 0.9, start.buffers))]
        alone = [train_job(self.flat, self.task, local, self.seed, *item) for item in work]
        try:
            together = self._updates(local, work)
        except Exception as error:  # functorch has many ways to refuse a module
            text = (str(error) or type(error).__name__).split(". ")[0].splitlines()[0]
            raise ValueError(f"this network cannot be trained in batches ({text}); {_INSTEAD}") from error
        for one, other, (_, begun) in zip(together, alone, work):
            buffers = one.buffers - begun.buffers, other.buffers - begun.buffers
            if other.delta.isfinite().all() and not (is_close(one.delta, other.delta) and is_close(*buffers)):
                raise ValueError(f"this network learns something else in a batch than alone; {_INSTEAD}")

    def groups(self, work: Sequence[Work]) -> list[list[Work]]:
        """The jobs that may train in one call."""
        if self._pads:
            return [list(work)]
        by_size: dict[int, list[Work]] = {}
        for item in work:
            by_size.setdefault(self.task.sizes[item[0].client], []).append(item)
        return list(by_size.values())

    def train(self, work: Sequence[Work]) -> list[Update]:
        """The jobs' updates, in no particular order."""
        return self._updates(self.local, work)

    def _updates(self, local: LocalSGD, work: Sequence[Work]) -> list[Update]:
        batch = self._collate(local, work)
        params, buffers, losses = self._run_stacked(self.stacked, batch) if self.stacked else self._run_mapped(batch)
        rows = zip(batch.work, params.unbind(), buffers.unbind(), losses.tolist(), batch.steps)
        return [
            Update(
                job, own - start.params, rest.clone(), start.params, self.task.sizes[job.client], {"loss": loss / steps}
            )
            for (job, start), own, rest, loss, steps in rows
        ]

    @torch.no_grad()
    def _may_pad(self) -> bool:
        """Does the loss come per example, and are an example's output and loss the same in whatever company?"""
        flat = self.flat
        if flat.buffers.numel():  # running statistics would count the padding
            return False
        few = [self.task.clients[client] for client in range(min(3, len(self.task.clients)))]
        spread = [[0, size // 2, size - 1] for size in self.task.sizes[:3]]  # the first rows alone are often alike
        columns = zip(*([part[rows] for part in data] for data, rows in zip(few, spread)))
        *inputs, targets = (torch.cat(column).to(flat.device) for column in columns)
        inputs = self.task.prepare(inputs)
        flat.module.train()
        outputs: list[Tensor] = []
        losses: list[Tensor] = []
        for company in ([0] * len(targets), list(range(len(targets)))):
            outputs.append(flat.module(*(column[company] for column in inputs)))
            losses.append(self.task.loss(outputs[-1], targets[company]))
        scale, most = float(outputs[0][0].abs().max()), float(losses[1].abs().nan_to_num(0, 0).max())
        if not losses[0].dim() or not isfinite(scale):  # data that are not: such a run diverges, but not here
            return False
        pairs = (outputs, 1e-6 * scale), (losses, 1e-4 * most)
        return all(torch.allclose(one[0], other[0], 1e-4, bound) for (one, other), bound in pairs)

    def _stack(self) -> Stacked | None:
        """The stacked module, if two jobs from unlike models learn in it what they learn one by one."""
        local, start = self._brief, self.flat.read()
        other = Model(start.params * 0.9, start.buffers)
        work = [(Job(0, 0, 0), start), (Job(1, len(self.task.sizes) - 1, 0), other)]
        targets = self.task.targets(0)
        labels = targets.dim() == 1 and targets.dtype == torch.int64
        self.flat.module.train()
        trained: list[tuple[Work, Tensor]] = []
        try:
            stacked = Stacked(self.flat, self.task.loss, labels, local.lr, local.weight_decay)
            for some in (work, work[:1]):  # one job by itself: a `squeeze` does more to a single example
                batch = self._collate(local, some)
                trained += zip(batch.work, self._run_stacked(stacked, batch)[0])
        except Exception:  # tracing runs the user's code, which may do anything; vmap is there
            return None
        for (job, start), row in trained:
            delta = train_job(self.flat, self.task, local, self.seed, job, start).delta
            if not is_close(row - start.params, delta):
                return None
        return stacked

    def _collate(self, local: LocalSGD, work: Sequence[Work]) -> "_Batch":
        # A width that does not depend on who is in the batch: company should not change a job's rounding.
        width = min(local.batch_size, max(self.task.sizes))
        data: list[Sequence[Tensor]] = []
        indices: list[Tensor] = []
        lengths: list[list[int]] = []
        for job, _ in work:
            columns, epochs = epoch_rows(self.task, local, self.seed, job, self.flat.device)
            data.append(columns)
            lengths.append([])
            for k, rows in enumerate(epochs):
                full, rest = divmod(len(rows), width)
                lengths[-1] += [width] * full
                if rest:
                    lengths[-1].append(rest)
                    epochs[k] = F.pad(rows, (0, width - rest), value=int(rows[0]))  # with a row of its own
            indices.append((epochs[0] if len(epochs) == 1 else torch.cat(epochs)).view(-1, width))
        if all(columns is data[0] for columns in data):
            pool = data[0]
        else:
            offsets = accumulate((len(columns[-1]) for columns in data), initial=0)
            indices = [index + offset for index, offset in zip(indices, offsets)]
            pool = [torch.cat(columns) for columns in zip(*data, strict=True)]
        # Longest first: at local step k the jobs that still have a batch are then the first few.
        order = sorted(range(len(work)), key=lambda i: -len(lengths[i]))
        longest = len(lengths[order[0]])
        return _Batch(
            [work[i] for i in order],
            pool,
            stack_padded([indices[i] for i in order], 1, padding=int(indices[order[0]][0, 0])).to(self.flat.device),
            torch.tensor([lengths[i] + [width] * (longest - len(lengths[i])) for i in order]).t().to(self.flat.device),
            [len(lengths[i]) for i in order],
        )

    def _run_stacked(self, stacked: Stacked, batch: "_Batch") -> Trained:
        stacked.load([start for _, start in batch.work])
        steps, jobs, width = batch.index.shape
        total = batch.weights.new_zeros(jobs, dtype=torch.promote_types(batch.weights.dtype, torch.float32))
        # Gathering the batches of several steps at once saves calls; too many at once would take memory.
        example = sum(column[0].nbytes for column in batch.pool) + stacked.classes * batch.weights.element_size()
        at_once = 1 + _GATHERED // (jobs * width * example)
        for first in range(0, steps, at_once):
            index, weights = batch.index[first : first + at_once], batch.weights[first : first + at_once]
            inputs, targets = (
                column.index_select(0, index.flatten()).unflatten(0, index.shape) for column in batch.pool
            )
            losses = stacked.train(inputs, targets, weights, batch.active[first : first + at_once])
            total[: len(losses)] += losses
        return stacked.unload(), self.flat.buffers.new_zeros(jobs, 0), total

    def _run_mapped(self, batch: "_Batch") -> Trained:
        flat, local, jobs = self.flat, self.local, len(batch.work)
        flat.module.train()
        params = torch.stack([start.params for _, start in batch.work])
        views = flat.named_params(params)
        buffers = {
            name: rows.contiguous()  # BatchNorm under vmap updates contiguous statistics in place, and only those
            for name, rows in flat.named_buffers(torch.stack([start.buffers for _, start in batch.work])).items()
        }
        counters = {name: initial.expand(jobs, *initial.shape).clone() for name, initial in flat.counters.items()}
        total = params.new_zeros(jobs, dtype=torch.promote_types(params.dtype, torch.float32))
        for k, active in enumerate(batch.active):
            width = None if self._pads else int(batch.lengths[k, 0])  # without padding all are equally long
            index, weights = batch.index[k, :active, :width], batch.weights[k, :active, :width]
            *inputs, targets = (column[index] for column in batch.pool)
            here = {name: view[:active] for name, view in views.items()}
            state = {name: tensor[:active] for name, tensor in (buffers | counters).items()}
            grads, (values, after) = self._gradients(here, state, inputs, targets, weights)
            for name, view in here.items():
                # not in place: parameters may share a gradient
                view.sub_(grads[name].add(view, alpha=local.weight_decay), alpha=local.lr)
            for name, rows in state.items():
                rows.copy_(after[name])
            total[:active] += values
        return (
            params,
            torch.cat([flat.buffers.new_zeros(jobs, 0), *(rows.flatten(1) for rows in buffers.values())], 1),
            total,
        )

    def _value(
        self,
        params: dict[str, Tensor],
        buffers: dict[str, Tensor],
        inputs: list[Tensor],
        targets: Tensor,
        weights: Tensor,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss, and the buffers after it: a module may have put new tensors in their places."""
        tensors = params | buffers  # the call writes such new tensors into the dict that it is given
        losses = self.task.loss(functional_call(self.flat.module, tensors, tuple(inputs)), targets)
        value = (_per_example(losses) * weights).sum() if self._pads else losses.mean()
        return value, {name: tensors[name] for name in buffers}


@dataclass(frozen=True)
class _Batch:
    """What a batch of jobs trains on, the job with the most local steps first."""

    work: list[Work]
    pool: Sequence[Tensor]  # columns of data
    index: Tensor  # [K, B, width] rows of the pool: local step, job, place in the batch
    lengths: Tensor  # [K, B] how many of these places are not padding
    steps: list[int]  # of each job

    @cached_property
    def active(self) -> list[int]:
        """For each local step: how many jobs take part."""
        return [sum(steps > k for steps in self.steps) for k in range(self.steps[0])]

    @cached_property
    def weights(self) -> Tensor:
        """The share of each place in its batch's mean loss; of padding, none."""
        places = torch.arange(self.index.shape[2], device=self.index.device)
        taken = places < self.lengths[..., None]
        return taken.to(self.work[0][1].params.dtype) / self.lengths[..., None]


def _per_example(losses: Tensor) -> Tensor:
    return losses.flatten(1).mean(1) if losses.dim() > 1 else losses
