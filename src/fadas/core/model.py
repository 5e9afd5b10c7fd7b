"""The engine's data: models as flat vectors, clients' updates, the server's state."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from fadas.core.ledger import Job

Vectors = Mapping[str, Tensor]  # by name: vectors shaped like the parameters, or single numbers


def _no_vectors() -> Vectors:
    return {}


@dataclass(frozen=True)
class Exchange:
    """What travels between server and clients beside models and deltas. Everything has a name.

    Args:
        sends: Slots that the server sends beside the model. They are zero at first.
        returns: Vectors that a client returns beside its delta.
        numbers: Positive numbers that a client returns, such as its number of local steps.
        squares: Those of `returns` that hold squares. A check that compares lengths takes their square root.

    Example:
        >>> Exchange(sends=("c",), returns=("dc",))
    """

    sends: tuple[str, ...] = ()
    returns: tuple[str, ...] = ()
    numbers: tuple[str, ...] = ()
    squares: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether nothing travels but models and deltas."""
        return not (self.sends or self.returns or self.numbers)

    def sent(self, model: "Model", slots: Vectors) -> dict[str, Tensor]:
        """Return what the server sends beside a model. A slot that does not exist yet is zero."""
        return {name: slots[name] if name in slots else torch.zeros_like(model.params) for name in self.sends}


NOTHING = Exchange()


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Model:
    """One version of the model. Its tensors are never written to: jobs, buffers and server states share them.

    Args:
        params: All trained parameters, as one vector of length P.
        buffers: The floating-point buffers of the module, such as BatchNorm's running statistics, as one vector.
        vectors: What travels beside it: what the server sends with this version, such as SCAFFOLD's "c". In the model
            that a job starts from, also what the client has kept.

    Example:
        >>> Model(torch.zeros(10), torch.zeros(0))
    """

    params: Tensor
    buffers: Tensor
    vectors: Vectors = field(default_factory=_no_vectors)


@dataclass(frozen=True, slots=True)
class Update:
    """What a client reports after a job: the change of the parameters, the buffers and the number of examples.

    Args:
        job: The job that this update belongs to.
        delta: The trained parameters minus `base`.
        buffers: The module's buffers after training.
        base: The parameters that the client started from. With `refill = "released"` the server replaces `base` by a
            newer version and changes `delta` to fit.
        examples: How many examples the client has.
        metrics: The client's measurements. "loss" is its mean training loss.
        vectors: What the client returns beside the delta, such as the change of its control variate.
        kept: What the client keeps until its next job. It stays with the client: the server does not read it.

    Example:
        >>> Update(job, delta=trained - start.params, buffers=start.buffers, base=start.params, examples=120)
    """

    job: Job
    delta: Tensor
    buffers: Tensor
    base: Tensor
    examples: int
    metrics: Mapping[str, float | Tensor] = field(default_factory=dict[str, float | Tensor])
    vectors: Vectors = field(default_factory=_no_vectors)
    kept: Vectors = field(default_factory=_no_vectors)


@dataclass(frozen=True, slots=True)
class ServerState:
    """The server's model x_t, and the memory of its algorithm.

    Args:
        version: t, the number of server steps so far.
        model: x_t.
        slots: Named tensors, such as the optimizer's moments.
    """

    version: int
    model: Model
    slots: Mapping[str, Tensor] = field(default_factory=dict[str, Tensor])


@dataclass(frozen=True, slots=True)
class ServerStep:
    """What a step size is told about a server step, before the step is taken.

    Args:
        index: t, from 0.
        jobs: The M jobs whose updates are in the buffer, in the order of their arrival.
        delays: tau of each update: how many versions behind x_t its client started.
        seed: The run's seed.
        state: The server's state before the step.
        updates: The M updates.
        clients: The number of clients in the federation.

    Example:
        >>> def step_size(step: ServerStep) -> float:
        ...     return 0.1 / (1 + max(step.delays))
    """

    index: int
    jobs: tuple[Job, ...]
    delays: tuple[int, ...]
    seed: int
    state: ServerState
    updates: Sequence[Update]
    clients: int


def zero_updates(jobs: Sequence[Job], start: Model, exchange: Exchange = NOTHING) -> list[Update]:
    """Return updates that change nothing, to try a server step with.

    Args:
        jobs: Their jobs.
        start: The model that the jobs started from.
        exchange: What the clients return beside the delta.
    """
    zero = torch.zeros_like(start.params)
    vectors = dict.fromkeys(exchange.returns, zero) | dict.fromkeys(exchange.numbers, zero.new_ones(()))
    return [Update(job, zero, start.buffers, start.params, 1, {"loss": 0.0}, vectors) for job in jobs]
