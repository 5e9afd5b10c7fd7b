"""Local training, many jobs at once, for models so small that a single job is mostly overhead.

The jobs may start from different versions. There are two ways to train them:

| way       | modules                 | cost                             |
|-----------|-------------------------|----------------------------------|
| `Stacked` | chains of simple layers | little more than the arithmetic  |
| `vmap`    | nearly all others       | more kernel calls per local step |
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from math import isfinite, prod
from typing import NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import functional_call, grad_and_value, vmap

from fadas.core.ledger import Job
from fadas.core.model import Model, Update
from fadas.errors import ConfigError, Unsuitable
from fadas.tasks.task import Subsets, Task
from fadas.training.batched.stacked import Stacked
from fadas.training.batched.stacked_losses import stack_padded
from fadas.training.flat_module import FlatModule
from fadas.training.job_state import final_vectors, initial_states, steps_taken
from fadas.training.one_job import train_job
from fadas.training.optimizers import LOCAL_TRAINERS
from fadas.training.preflight import has_hooks, is_close, random_devices
from fadas.training.sgd import TAKEN, LocalSGD, epoch_rows

Work = tuple[Job, Model]  # a job and the model it starts from
_GATHERED = 1 << 24  # bytes of examples that are gathered in one call


class Trained(NamedTuple):
    """A trained batch of jobs, with one row for each job.

    Attributes:
        deltas: The parameters minus those at the start [B, P].
        buffers: The buffers [B, ...].
        losses: The sum of each job's losses over its steps [B].
        state: The jobs' vectors by name, [B, P] or [B].
    """

    deltas: Tensor
    buffers: Tensor
    losses: Tensor
    state: dict[str, Tensor]


class BatchTrainer:
    """Trains a batch of jobs in one call.

    Batches of unequal size are padded, and the padding has no weight in the loss. Padding is impossible in three cases:

    - An example's output depends on the other examples, as with BatchNorm.
    - The module has buffers.
    - The loss returns a mean instead of one value per example.

    In these cases only jobs with equally many examples share a call (`groups`).

    The first use finds out by trial which way works. `check_batching` is meant to be that use, before the run.

    Args:
        flat: The module to train in. Its contents are overwritten.
        task: Model, data and loss.
        local: What a client does with a job.
        seed: The run's seed.

    Example:
        >>> flat = FlatModule(task.module())
        >>> trainer = BatchTrainer(flat, task, LocalSGD(), seed=0)
        >>> start = flat.read()
        >>> updates = trainer.train([(Job(0, client=2, version=0), start), (Job(1, client=0, version=0), start)])
    """

    def __init__(self, flat: FlatModule, task: Task, local: LocalSGD, seed: int) -> None:
        self.flat, self.task, self.local, self.seed = flat, task, local, seed
        self._brief = _brief(local)  # for trials
        self._most_examples = max(task.sizes)
        self._generator = torch.Generator()  # seeded for each job
        self._gradients = vmap(grad_and_value(self._value, has_aux=True), randomness="error")

    @cached_property
    def stacked(self) -> Stacked | None:
        """The stacked module, if the task can be trained in it. The first access tries it out."""
        able = self.local.elementwise and self._pads and self.task.alike and not has_hooks(self.flat.module)
        return self._make_stacked() if able else None

    @cached_property
    def _pads(self) -> bool:
        with suppress(Exception), torch.random.fork_rng(devices=[]):  # the user's code may fail on these data
            return self._can_pad()
        return False

    def check_batching(self) -> None:
        """Check before a run that jobs can be trained in batches, with the same result as one by one.

        Raises:
            Unsuitable: They cannot. The message says why.
        """
        if not self.task.alike:
            raise Unsuitable("clients whose examples differ in shape cannot share a batch")
        if not self.local.elementwise:
            raise Unsuitable(f"{type(self.local).__name__} trains one job at a time")
        if has_hooks(self.flat.module, backward=True):
            raise Unsuitable("hooks on gradients are not called for a batch of jobs")
        if random_devices(self.flat, self.task):
            raise Unsuitable("dropout draws other random numbers when jobs share a batch")
        if self.stacked:
            return  # `_make_stacked` has compared its results
        local, start = self._brief, self.flat.read()
        work = [(Job(0, 0, 0), start), (Job(1, 0, 0), replace(start, params=start.params * 0.9))]
        single = [train_job(self.flat, self.task, local, self.seed, *item) for item in work]
        try:
            batched = self._updates(local, work)
        except Exception as error:  # functorch has many ways to refuse a module
            text = (str(error) or type(error).__name__).split(". ")[0].splitlines()[0]
            raise Unsuitable(f"this network cannot be trained in batches ({text})") from error
        for actual, expected, (_, begin) in zip(batched, single, work):
            buffers = actual.buffers - begin.buffers, expected.buffers - begin.buffers
            if expected.delta.isfinite().all() and not (is_close(actual.delta, expected.delta) and is_close(*buffers)):
                raise Unsuitable("this network learns differently when jobs share a batch")

    def groups(self, work: Sequence[Work]) -> list[list[Work]]:
        """Split jobs into groups that can train in one call."""
        alike: dict[tuple[int, int], list[Work]] = {}
        for item in work:
            size = 0 if self._pads else self.task.sizes[item[0].client]
            rate = item[0].version if self.local.schedule else 0  # jobs of one version have the same rate
            alike.setdefault((size, rate), []).append(item)
        return list(alike.values())

    def train(self, work: Sequence[Work]) -> list[Update]:
        """Train jobs in one call. Return their updates, in no particular order."""
        return self._updates(self.local, work)

    def _updates(self, local: LocalSGD, work: Sequence[Work]) -> list[Update]:
        batch = self._collate(local, work)
        deltas, buffers, losses, state = self._run(self.stacked, batch)
        # Copies: a row of a shared tensor would keep the other rows in memory for as long as it is needed.
        copies = (cast(list[Tensor], torch.unbind_copy(vectors)) for vectors in (deltas, buffers))
        rows = zip(batch.work, *copies, losses.tolist(), batch.steps)
        updates: list[Update] = []
        sizes, has_buffers = self.task.sizes, bool(self.flat.buffers.numel())
        for row, ((job, start), delta, b, loss, steps) in enumerate(rows):
            own = b if has_buffers else start.buffers
            update = Update(job, delta, own, start.params, sizes[job.client], {"loss": loss / steps})
            if local.has_vectors:
                final = {name: vectors[row].clone() for name, vectors in state.items()}
                vectors, kept = final_vectors(batch.local, final, delta, steps)
                update = replace(update, vectors=vectors, kept=kept)
            updates.append(update)
        return updates

    def _run(self, stacked: Stacked | None, batch: "_Batch") -> Trained:
        return self._run_stacked(stacked, batch) if stacked else self._run_mapped(batch)

    @torch.no_grad()
    def _can_pad(self) -> bool:
        """Return whether the loss is per example, and an example's output and loss do not depend on other examples."""
        flat = self.flat
        if flat.buffers.numel():  # running statistics would count the padding
            return False
        positions = [[0, size // 2, size - 1] for size in self.task.sizes[:3]]  # the first rows are often alike
        columns = zip(*(self.task.examples(client, rows) for client, rows in enumerate(positions)))
        *inputs, targets = (torch.cat(column).to(flat.device) for column in columns)
        inputs = self.task.prepare(inputs)
        flat.module.train()
        outputs: list[Tensor] = []
        losses: list[Tensor] = []
        for rows in ([0] * len(targets), list(range(len(targets)))):  # the first example among copies, and among others
            outputs.append(flat.module(*(column[rows] for column in inputs)))
            losses.append(self.task.loss(outputs[-1], targets[rows]))
        scale, largest = float(outputs[0][0].abs().max()), float(losses[1].abs().nan_to_num(0, 0).max())
        if not losses[0].dim() or not isfinite(scale):  # with data that are not finite, the run itself will diverge
            return False
        pairs = (outputs, 1e-6 * scale), (losses, 1e-4 * largest)
        return all(torch.allclose(copies[0], mixed[0], 1e-4, bound) for (copies, mixed), bound in pairs)

    def _make_stacked(self) -> Stacked | None:
        """Return the stacked module if it trains two jobs as one-by-one training does."""
        local, start = self._brief, self.flat.read()
        scaled = Model(start.params * 0.9, start.buffers)
        work = [(Job(0, 0, 0), start), (Job(1, len(self.task.sizes) - 1, 0), scaled)]
        targets = self.task.examples(0, slice(1))[-1]
        labels = targets.dim() == 1 and targets.dtype == torch.int64
        self.flat.module.train()
        trained: list[tuple[Work, Tensor]] = []
        try:
            stacked = Stacked(self.flat, self.task.loss, labels, self.local)
            for chosen in (work, work[:1]):  # also a single job: there a `squeeze` may remove another dimension
                batch = self._collate(local, chosen)
                trained += zip(batch.work, self._run_stacked(stacked, batch).deltas)
        except Exception:  # tracing runs the user's code, which may fail in any way; vmap remains
            return None
        if stacked.rows is not None and self.task.mapped:
            return None  # all data would have to be read to check that they name rows of the embedding
        self._require_rows(stacked)
        for (job, start), delta in trained:
            if not is_close(delta, train_job(self.flat, self.task, local, self.seed, job, start).delta):
                return None
        return stacked

    def _require_rows(self, stacked: Stacked) -> None:
        """Refuse inputs that name no row of an embedding: in a stacked one they would name a row of another job."""
        rows = stacked.rows
        if rows is None or self.task.transform:
            return
        clients = self.task.clients
        parts = [clients.data] if isinstance(clients, Subsets) else clients
        for part in parts:
            low, high = part[0].aminmax()
            if low < 0 or high >= rows:
                wrong = int(low if low < 0 else high)
                raise ConfigError(f"the data hold the index {wrong}, but the embedding has the rows 0 to {rows - 1}")

    def _collate(self, local: LocalSGD, work: Sequence[Work]) -> "_Batch":
        """Return the data of a batch of jobs, padded to a common width."""
        # The width must not depend on which jobs are in the batch: other jobs should not change a job's rounding.
        width = min(local.batch_size, self._most_examples)
        data: list[Sequence[Tensor]] = []
        rows: list[Tensor] = []
        lengths: list[list[int]] = []
        for job, _ in work:
            columns, epochs = epoch_rows(self.task, local, self.seed, job, self.flat.device, self._generator)
            data.append(columns)
            padded, own = _pad(epochs, width)
            rows.append(padded)
            lengths.append(own)
        if all(columns is data[0] for columns in data):
            pool = data[0]
        else:
            offsets = accumulate((len(columns[-1]) for columns in data), initial=0)
            rows = [own + offset for own, offset in zip(rows, offsets)]
            pool = [torch.cat(columns) for columns in zip(*data, strict=True)]
        steps = [len(own) for own in lengths]
        # The longest job comes first. The jobs that still have a batch at local step k are then the first ones.
        order = sorted(range(len(work)), key=lambda i: -steps[i])
        index = stack_padded([rows[i] for i in order], padding=int(rows[order[0]][0]))
        return _Batch(
            local.for_job(work[0][0], self.task.sizes[work[0][0].client], self.seed),
            [work[i] for i in order],
            pool,
            index.view(len(work), -1, width).transpose(0, 1).contiguous().to(self.flat.device),
            [lengths[i] for i in order],
            [steps[i] for i in order],
        )

    def _run_stacked(self, stacked: Stacked, batch: "_Batch") -> Trained:
        """Train a batch of jobs in the stacked chain."""
        starts = [start for _, start in batch.work]
        stacked.load_models(starts, batch.local, initial_states(batch.local, starts))
        steps, jobs, width = batch.index.shape
        # Gathering the batches of several steps at once saves calls. The limit on their number saves memory.
        example = sum(column.element_size() * prod(column.shape[1:]) for column in batch.pool)
        at_once = 1 + _GATHERED // (jobs * width * (example + stacked.classes * batch.weights.element_size()))
        total = batch.weights.new_zeros(jobs, dtype=torch.promote_types(batch.weights.dtype, torch.float32))
        for first in range(0, steps, at_once):
            index, weights = batch.index, batch.weights
            if at_once < steps:
                index, weights = index[first : first + at_once], weights[first : first + at_once]
            inputs, targets = (
                column.index_select(0, index.view(-1)).unflatten(0, index.shape) for column in batch.pool
            )
            losses = stacked.train(inputs, targets, weights, batch.active[first : first + at_once])
            total[: len(losses)] += losses
        deltas, state = stacked.unload()
        return Trained(deltas, self.flat.buffers.new_zeros(jobs, 0), total, state)

    def _run_mapped(self, batch: "_Batch") -> Trained:
        """Train a batch of jobs with `vmap`."""
        flat, local, jobs = self.flat, batch.local, len(batch.work)
        flat.module.train()
        models = [start for _, start in batch.work]
        params = torch.stack([start.params for start in models])
        views = flat.named_params(params)
        starts = flat.named_params(params.clone()) if local.mu else views
        vectors = initial_states(local, models)
        memory = {key: flat.named_params(vector) for key, vector in vectors.items() if key != TAKEN}
        extra = local.companion.addition(vectors) if local.companion and local.has_addition else None
        additions = {} if extra is None else flat.named_params(extra)
        buffers = {
            name: rows.contiguous()  # under vmap, BatchNorm updates only contiguous statistics in place
            for name, rows in flat.named_buffers(torch.stack([start.buffers for _, start in batch.work])).items()
        }
        counters = {name: initial.expand(jobs, *initial.shape).clone() for name, initial in flat.counters.items()}
        total = params.new_zeros(jobs, dtype=torch.promote_types(params.dtype, torch.float32))
        for k, active in enumerate(batch.active):
            width = None if self._pads else batch.rows[0][k]  # without padding, all jobs have the same length
            index, weights = batch.index[k, :active, :width], batch.weights[k, :active, :width]
            *inputs, targets = (column[index] for column in batch.pool)
            current = {name: view[:active] for name, view in views.items()}
            state = {name: tensor[:active] for name, tensor in (buffers | counters).items()}
            grads, (values, after) = self._gradients(current, state, inputs, targets, weights)
            if local.is_plain:
                for name, view in current.items():
                    # not in place: parameters may share a gradient
                    view.sub_(grads[name].add(view, alpha=local.weight_decay), alpha=local.lr)
            else:
                own = {name: grads[name].clone() for name in current}
                for name, view in current.items():
                    local.attract(view, own[name], starts[name][:active])
                if local.clip is not None:
                    squares = torch.stack([grad.flatten(1).square().sum(1) for grad in own.values()])
                    scale = local.shorten(squares.sum(0).sqrt())
                    for grad in own.values():
                        grad.mul_(scale.view(-1, *[1] * (grad.dim() - 1)))
                now = local.at_step(k + 1)
                for name, view in current.items():
                    if name in additions:
                        own[name].add_(additions[name][:active])
                    now.decay(view, own[name])
                    t = steps_taken(vectors, k + 1, view.dim(), active)
                    now.step(view, own[name], {key: m[name][:active] for key, m in memory.items()}, t)
            for name, rows in state.items():
                rows.copy_(after[name])
            total[:active] += values
        after = torch.cat([flat.buffers.new_zeros(jobs, 0), *(rows.flatten(1) for rows in buffers.values())], 1)
        return Trained(params.sub_(torch.stack([start.params for start in models])), after, total, vectors)

    def _value(
        self,
        params: dict[str, Tensor],
        buffers: dict[str, Tensor],
        inputs: list[Tensor],
        targets: Tensor,
        weights: Tensor,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the loss and the new buffers. The module may have replaced a buffer by a new tensor."""
        tensors = params | buffers  # `functional_call` writes such new tensors into the dict
        losses = self.task.loss(functional_call(self.flat.module, tensors, tuple(inputs)), targets)
        value = (_per_example(losses) * weights).sum() if self._pads else losses.mean()
        return value, {name: tensors[name] for name in buffers}


@dataclass(frozen=True)
class _Batch:
    """The data of a batch of jobs. The job with the most local steps comes first."""

    local: LocalSGD  # with the learning rate of these jobs
    work: list[Work]
    pool: Sequence[Tensor]  # columns of data
    index: Tensor  # [K, B, width] rows of the pool, by local step, job and position in the batch
    rows: list[list[int]]  # by job and local step: how many of these positions are not padding
    steps: list[int]  # local steps of each job

    @cached_property
    def active(self) -> list[int]:
        """For each local step, the number of jobs that take part."""
        if self.steps[0] == self.steps[-1]:
            return [len(self.steps)] * self.steps[0]
        return [sum(steps > k for steps in self.steps) for k in range(self.steps[0])]

    @cached_property
    def weights(self) -> Tensor:
        """The weight of each position in its batch's mean loss. Padding has the weight 0."""
        steps, jobs, width = self.index.shape
        like = self.work[0][1].params
        if self.rows.count([width] * steps) == jobs:  # no padding
            return like.new_full((), 1.0).div(width).expand(steps, jobs, width)
        full = [own + [width] * (steps - len(own)) for own in self.rows]
        lengths = torch.tensor(full, device=self.index.device).t()[..., None]
        used = torch.arange(width, device=self.index.device) < lengths
        return used.to(like.dtype) / lengths


def _pad(epochs: list[Tensor], width: int) -> tuple[Tensor, list[int]]:
    """Return the rows of all epochs, each padded to full batches, and how many rows each batch has."""
    lengths: list[int] = []
    padded: list[Tensor] = []
    for rows in epochs:
        full, rest = divmod(len(rows), width)
        lengths += [width] * full
        if rest:
            lengths.append(rest)
            rows = F.pad(rows, (0, width - rest), value=int(rows[0]))  # repeats a row of the job
        padded.append(rows)
    return padded[0] if len(padded) == 1 else torch.cat(padded), lengths


def _brief(local: LocalSGD) -> LocalSGD:
    """Return local training for a trial of a few steps.

    The local optimizers of fadas are replaced by plain SGD: what is tried is the gradient. Adam would turn the rounding
    of a gradient that should be zero into steps of full length.
    """
    steps = min(2, local.steps if isinstance(local.steps, int) else 2)
    if type(local) in LOCAL_TRAINERS.values():
        return LocalSGD(local.lr, local.epochs, local.batch_size, local.weight_decay, steps)
    return replace(local, steps=steps)


def _per_example(losses: Tensor) -> Tensor:
    return losses.flatten(1).mean(1) if losses.dim() > 1 else losses
