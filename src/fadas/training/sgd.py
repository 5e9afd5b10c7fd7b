"""Local training with SGD, the base of all local trainers, and the rows of data that a job trains on.

The other local optimizers are in `optimizers.py`. Faster ways to train take the plain SGD step by themselves:
`fadas.training` lists the places.

A job's randomness comes from (run seed, job id) alone. Its update does not depend on when, where or beside which other
jobs it is computed.
"""

import inspect
import math
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import lru_cache
from numbers import Integral
from typing import Any, ClassVar, NamedTuple, Self

import torch
from torch import Tensor

from fadas.algorithms.companions import Companion
from fadas.core.ledger import Job
from fadas.errors import ConfigError
from fadas.rng import BATCHES, mix
from fadas.tasks.task import Subsets, Task
from fadas.training.flat_module import FlatModule
from fadas.training.schedules import RateSchedule
from fadas.training.work import StepLaw
from fadas.validate import MOST_BATCH_SIZE, MOST_BATCHES, InvalidValue, at_least, at_most, not_negative, positive

State = MutableMapping[str, Tensor]  # a job's vectors by name, such as the memory of its local optimizer
TAKEN = "local.t"  # among the vectors that a client keeps: how many local steps it has taken


class Mover(NamedTuple):
    """Takes the local steps of a job in a module.

    Attributes:
        move: Takes step number t with the gradient in the module.
        keep: Returns what the client keeps of the local optimizer.
    """

    move: Callable[[int], None]
    keep: Callable[[], dict[str, Tensor]]


@dataclass(frozen=True)
class LocalSGD:
    """Local training: SGD over the client's shuffled data. A short last batch is trained, not dropped.

    A subclass takes another step with the gradient. It overrides `step`, and names in `memory` the vectors that `step`
    keeps from one local step to the next. See `fadas.training.Momentum`. The order within a local step: proximal term,
    clipping, what the method adds, weight decay, `step`.

    Args:
        lr: The learning rate.
        epochs: The number of passes over the client's data.
        batch_size: The number of examples per batch.
        weight_decay: The L2 penalty, which is added to the gradient.
        steps: Train exactly this many batches instead of epochs: a number, or a law such as `Uniform(5, 50)`. The data
            are shuffled again when they run out. None: train epochs.
        mu: FedProx's proximal term: pulls a client towards the model that its job started from. 0: off. None: off,
            unless the method has one.
        clip: The largest norm of a batch's gradient. Longer gradients are shortened to it. None: any norm.
        schedule: How the learning rate changes with the server's version. None: it stays the same.
        warmup: The local steps over which the rate of each job rises to its full value. 0: none.
        decoupled: Weight decay shrinks the parameters by lr * weight_decay instead of entering the gradient.
        keep: The memory of the local optimizer stays with the client from job to job. False: it starts at zero.
        companion: Set by the algorithm: what it adds to local training.

    Attributes:
        memory: The names of the vectors that `step` keeps. They start as zeros.
        elementwise: Does `step` treat every parameter alike? Then many jobs can be trained in one call.

    Example:
        >>> LocalSGD(lr=0.1, epochs=1, batch_size=20, weight_decay=0.0)
        >>> LocalSGD(lr=0.1, steps=10, mu=0.01, clip=5.0, schedule=Cosine(steps=500), warmup=3)
        >>> LocalSGD(lr=0.1, steps=Uniform(5, 50, per="client"), decoupled=True)
    """

    memory: ClassVar[tuple[str, ...]] = ()
    elementwise: ClassVar[bool] = True

    lr: float = 0.01
    epochs: int = 2
    batch_size: int = 50
    weight_decay: float = 1e-4
    steps: int | StepLaw | None = None
    mu: float | None = None
    clip: float | None = None
    schedule: RateSchedule | None = None
    warmup: int = 0
    decoupled: bool = False
    keep: bool = False
    companion: Companion | None = None

    def __init_subclass__(cls) -> None:
        """Refuse a subclass that hides a method of local training by a setting of the same name."""
        super().__init_subclass__()
        names = {*inspect.get_annotations(cls), *vars(cls)}
        for name in sorted(names):
            inherited = getattr(LocalSGD, name, None)
            hides = callable(inherited) or isinstance(inherited, property)
            own = vars(cls).get(name)
            if hides and not name.startswith("__") and not (callable(own) or isinstance(own, property)):
                raise TypeError(f"{cls.__name__}.{name} is a method of LocalSGD; choose another name for the setting")

    def __post_init__(self) -> None:
        positive(lr=self.lr)
        not_negative(weight_decay=self.weight_decay, mu=self.mu or 0)
        if self.clip is not None:
            positive(clip=self.clip)
        at_least(1, epochs=self.epochs, batch_size=self.batch_size)
        at_least(0, warmup=self.warmup)
        at_most(MOST_BATCHES, epochs=self.epochs, warmup=self.warmup)
        at_most(MOST_BATCH_SIZE, batch_size=self.batch_size)
        if not callable(self.steps):
            at_least(1, steps=self.steps)
            at_most(MOST_BATCHES, steps=self.steps)
        if self.keep and self.elementwise and not self.memory:
            raise InvalidValue("keep", "has no effect: this local optimizer has no memory")

    @property
    def is_sgd(self) -> bool:
        """Whether a delta is a sum of gradients, each times a learning rate."""
        return type(self).step is LocalSGD.step and self.elementwise

    @property
    def has_plain_steps(self) -> bool:
        """Whether a step is that of SGD with L2 weight decay, apart from what the method adds to the gradient."""
        others = self.mu or self.clip is not None or self.warmup or self.decoupled
        return type(self) is LocalSGD and not others

    @property
    def is_plain(self) -> bool:
        """Whether a local step is params - lr * (gradient + weight_decay * params), and nothing else."""
        return self.has_plain_steps and self.schedule is None and not self.has_addition

    @property
    def has_addition(self) -> bool:
        """Whether the method may add something to each gradient."""
        return self.companion is not None and type(self.companion).addition is not Companion.addition

    @property
    def has_vectors(self) -> bool:
        """Whether a job returns or keeps vectors."""
        return self.keep or self.companion is not None

    def for_job(self, job: Job, examples: int, seed: int) -> Self:
        """Return local training as a job does it: with the rate of `schedule`, and a fixed number of steps.

        Args:
            job: The job.
            examples: How many examples the client has.
            seed: The run's seed.
        """
        if self.schedule is None and not callable(self.steps):
            return self
        factor = 1.0 if self.schedule is None else self.schedule(job.version)
        if not 0 < factor < math.inf:
            raise ValueError(f"the schedule of the local rate must be positive, got {factor} at version {job.version}")
        steps = self.steps
        if callable(steps):
            steps = steps(job, examples, seed)
            if isinstance(steps, bool) or not isinstance(steps, Integral) or not 1 <= steps <= MOST_BATCHES.most:
                text = f"must be a whole number from 1 to {MOST_BATCHES.most:,}"
                raise ConfigError(f"local.steps: the steps of a job {text}, got {steps!r} for client {job.client}")
        return replace(self, lr=self.lr * factor, schedule=None, steps=steps)

    def at_step(self, t: int) -> Self:
        """Return local training with the rate of a job's local step number t, which may be part of the warm-up."""
        return self if t >= self.warmup else self.with_rate(self.lr * self.warmup_factor(t))

    def warmup_factor(self, t: int) -> float:
        """Return the rate of local step number t, as a factor of `lr`."""
        return min(1.0, t / self.warmup) if self.warmup else 1.0

    def with_rate(self, lr: Any) -> Self:
        """Return local training with another learning rate: a number, or in a captured graph a tensor."""
        other = copy(self)
        object.__setattr__(other, "lr", lr)  # unchecked: a graph has no values to check
        return other

    def total_rate(self, steps: int) -> float:
        """Return the sum of the learning rates of a job's steps.

        Args:
            steps: The number of local steps.
        """
        return self.lr * math.fsum(self.warmup_factor(t) for t in range(1, steps + 1))

    def gain(self, steps: int) -> float:
        """Return how far a job goes along a constant gradient of 1, in units of the learning rate.

        Plain SGD goes as far as it takes steps. With momentum a job goes further, with a proximal term less far.

        Args:
            steps: The number of local steps.
        """
        if self.has_plain_steps or not self.elementwise:
            return float(steps)
        own = replace(self, weight_decay=0.0, clip=None, schedule=None, steps=None, keep=False, companion=None)
        try:
            return _gain(own, steps)
        except TypeError:  # a field of the user's own trainer, such as a dict, has no hash
            return _gain.__wrapped__(own, steps)

    def step(self, params: Tensor, grads: Tensor, state: State, t: Any) -> None:
        """Take one step in place.

        Args:
            params: The parameters: a vector [P]. For many jobs, one vector of all of them, or a tensor [B, ...] of
                each parameter.
            grads: Their gradient. It may be overwritten.
            state: The vectors named in `memory`, shaped like the parameters. Also what the method's companion receives
                and keeps.
            t: The number of the local step, from 1: a number, or a tensor where jobs differ and in a captured graph.
        """
        self.go(params, grads)

    def go(self, params: Tensor, change: Tensor) -> None:
        """Subtract lr * change from the parameters, in place."""
        if isinstance(self.lr, Tensor):  # in a captured graph, which would freeze a number
            params.addcmul_(change, self.lr, value=-1)
        else:
            params.add_(change, alpha=-self.lr)

    def decay(self, params: Tensor, grads: Tensor) -> None:
        """Apply weight decay, in place."""
        if self.decoupled:
            params.mul_(1 - self.lr * self.weight_decay)
        else:
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

    def mover(self, flat: FlatModule, state: State) -> Mover:
        """Return what applies weight decay and `step` to a module.

        Args:
            flat: The module that trains.
            state: The job's vectors. The local optimizer changes its memory there.
        """
        before = int(state[TAKEN]) if TAKEN in state else 0

        def move(t: int) -> None:
            now = self.at_step(t)
            now.decay(flat.params, flat.grads)
            now.step(flat.params, flat.grads, state, before + t)

        return Mover(move, lambda: {name: state[name] for name in self.memory})

    def short_batch(self, examples: int) -> int:
        """Return the size of the short last batch; 0 if there is none, or if it is never trained."""
        full, rest = divmod(examples, self.batch_size)
        return rest if self.steps is None or callable(self.steps) or self.steps > full else 0

    def batches(self, examples: int) -> int:
        """Return how many batches a job of this many examples trains. With a law for the steps, see `for_job`."""
        if callable(self.steps):
            raise ValueError("the number of local steps depends on the job")
        return self.steps or self.epochs * math.ceil(examples / self.batch_size)

    def epochs_of(self, examples: int, generator: torch.Generator) -> Iterator[Tensor]:
        """Yield the order of the examples in each epoch. With `steps`, the last epoch may end after any full batch."""
        left = self.batches(examples)
        each = -(-examples // self.batch_size)
        while left > 0:
            order = torch.randperm(examples, generator=generator)
            yield order if left >= each else order[: left * self.batch_size]
            left -= each


@lru_cache(maxsize=1000)
def _gain(local: LocalSGD, steps: int) -> float:
    """Return how far one parameter goes in units of the learning rate, by taking the steps."""
    x, start = torch.zeros(1, dtype=torch.float64), torch.zeros(1, dtype=torch.float64)
    state: dict[str, Tensor] = {name: torch.zeros_like(x) for name in local.memory}
    for t in range(1, steps + 1):
        grad = torch.ones_like(x)
        local.attract(x, grad, start)
        local.at_step(t).step(x, grad, state, t)
    return -float(x) / local.lr


def job_seed(seed: int, job: Job) -> int:
    """Return the seed of a job's random numbers."""
    return mix(seed, BATCHES, job.id) >> 1  # torch takes 63 bits


def epoch_rows(
    task: Task, local: LocalSGD, seed: int, job: Job, device: str, generator: torch.Generator | None = None
) -> tuple[Sequence[Tensor], list[Tensor]]:
    """Return what a job trains on: columns of data, and for each epoch the rows to take, `batch_size` at a time.

    If the task augments its data, every epoch has a copy of its own.

    Args:
        task: Model, data and loss.
        local: What a client does with a job.
        seed: The run's seed.
        job: The job.
        device: Where the job is trained.
        generator: A generator to seed and use. None: a new one, which takes longer.
    """
    generator = (generator or torch.Generator()).manual_seed(job_seed(seed, job))
    size, clients = task.sizes[job.client], task.clients
    epochs = local.for_job(job, size, seed).epochs_of(size, generator)
    if not task.transform and device == "cpu" and isinstance(clients, Subsets):
        part = clients.parts[job.client]
        return clients.data, [part.index_select(0, order) for order in epochs]  # nothing is gathered but the batches
    *inputs, targets = (tensor.to(device) for tensor in task.clients[job.client])
    if not task.transform:
        return [*inputs, targets], list(epochs)
    copies: list[list[Tensor]] = []
    rows: list[Tensor] = []
    for order in epochs:
        rows.append(order + len(copies) * len(targets))
        copies.append([*task.prepare(inputs, generator), targets])
    return [torch.cat(column) if len(copies) > 1 else column[0] for column in zip(*copies)], rows
