"""The engine's data: models as flat vectors, clients' updates, the server's state."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from torch import Tensor

from fadas.core.ledger import Job


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Model:
    """One version of the model. Its tensors are never written to: jobs, buffers and server states share them.

    Args:
        params: All trained parameters, as one vector of length P.
        buffers: The floating-point buffers of the module, such as BatchNorm's running statistics, as one vector.

    Example:
        >>> Model(torch.zeros(10), torch.zeros(0))
    """

    params: Tensor
    buffers: Tensor


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

    Example:
        >>> Update(job, delta=trained - start.params, buffers=start.buffers, base=start.params, examples=120)
    """

    job: Job
    delta: Tensor
    buffers: Tensor
    base: Tensor
    examples: int
    metrics: Mapping[str, float | Tensor] = field(default_factory=dict[str, float | Tensor])


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
