"""Companions: what a method adds to local training, and the vectors that travel for it.

A companion holds both sides of one exchange. The client's side changes a job's local steps. The server's side takes
what the clients return. A companion goes with any combine rule and any server optimizer.

| companion         | server -> client     | client -> server     | the client keeps  |
|-------------------|----------------------|----------------------|-------------------|
| `Proximal`        |                      |                      |                   |
| `StepCount`       |                      | number of steps      |                   |
| `ControlVariates` | c                    | change of c_i        | c_i               |
| `SharedMoments`   | mean of the moments  | its moments          |                   |
"""

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol, TypeVar

from torch import Tensor

from fadas.algorithms.combine import mean
from fadas.core.model import ServerState, Update
from fadas.errors import ConfigError
from fadas.validate import not_negative

State = MutableMapping[str, Tensor]
_Local = TypeVar("_Local", bound="Trainer")


class Trainer(Protocol):
    """What a companion needs of local training. `fadas.LocalSGD` has it.

    Attributes:
        mu: The weight of the proximal term. None: not set.
        memory: The names of the vectors that the local optimizer keeps.

    Example:
        >>> SCAFFOLD().local_training(LocalSGD(lr=0.1))  # LocalSGD is a Trainer
    """

    __dataclass_fields__: ClassVar[dict[str, Any]]
    memory: ClassVar[tuple[str, ...]]

    @property
    def mu(self) -> float | None:
        """The weight of the proximal term. None: not set."""
        ...

    @property
    def is_sgd(self) -> bool:
        """Whether a delta is a sum of gradients, each times a learning rate."""
        ...

    def total_rate(self, steps: int) -> float:
        """Return the sum of the learning rates of a job's steps.

        Args:
            steps: The number of local steps.
        """
        ...

    def gain(self, steps: int) -> float:
        """Return how far a job goes along a constant gradient of 1, in units of the learning rate.

        Args:
            steps: The number of local steps.
        """
        ...


class Companion:
    """What a method adds to local training. Subclasses override what they need. They are frozen dataclasses.

    Each vector is shaped like the parameters. A job's `state` holds vectors by name:

    | name          | vector                                                            |
    |---------------|-------------------------------------------------------------------|
    | `"server.c"`  | the slot "c" of the server, as it was when the job was assigned   |
    | `"c_i"`       | what the client has kept since its last job                       |
    | `"m"`, `"v"`  | the memory of the local optimizer                                 |

    Many jobs may be trained in one call. The vectors are then tensors [B, ...] with one row for each job, so use
    elementwise arithmetic, and no branch on values.

    Attributes:
        receives: The server's slots that it sends beside the model: its optimizer's, such as "m", or those that
            `absorb` returns. A slot that does not exist yet is zero.
        returns: The names of the vectors that a client returns beside its delta.
        numbers: The names of positive numbers that a client returns.
        squares: Those of `returns` that hold squares.
        keeps: The names of the vectors that a client keeps until its next job. They are zero at first.

    Example:
        >>> @dataclass(frozen=True)
        ... class ServerMomentum(Companion):  # each local step also follows the server's momentum
        ...     weight: float = 0.1
        ...     receives = ("m",)
        ...     def addition(self, state):
        ...         return state["server.m"] * -self.weight
        >>> Algorithm(optimizer=AMSGrad(), companion=ServerMomentum())
    """

    receives: ClassVar[tuple[str, ...]] = ()
    returns: ClassVar[tuple[str, ...]] = ()
    numbers: ClassVar[tuple[str, ...]] = ()
    squares: ClassVar[tuple[str, ...]] = ()
    keeps: ClassVar[tuple[str, ...]] = ()

    def adapt(self, local: _Local) -> _Local:
        """Return local training with this companion.

        Args:
            local: What a client does with a job.

        Raises:
            ConfigError: It does not go with this companion.
        """
        return replace(local, companion=self)

    def begin(self, state: State) -> None:
        """Change the memory of the local optimizer before a job's first step, in place.

        Args:
            state: The job's vectors by name.
        """

    def addition(self, state: State) -> Tensor | None:
        """Return what is added to the gradient of every local step, after clipping. None: nothing.

        Args:
            state: The job's vectors by name.
        """
        return None

    def finish(self, state: State, delta: Tensor, local: Trainer, steps: int) -> dict[str, Tensor]:
        """Return what the client returns and keeps after a job, by name.

        Args:
            state: The job's vectors by name, after its last local step. Each is a vector [P].
            delta: The change of the parameters.
            local: What the client did.
            steps: How many local steps it took.
        """
        return {}

    def absorb(self, state: ServerState, updates: Sequence[Update], clients: int) -> dict[str, Tensor]:
        """Return the server's slots that change in a server step. Write to no argument.

        Args:
            state: The server's state before the step. `state.model.vectors` holds what it sends.
            updates: The M updates of the step.
            clients: The number of clients in the federation.
        """
        return {}


@dataclass(frozen=True)
class Proximal(Companion):
    """FedProx: pulls each client towards the model that its job started from. `local.mu` takes precedence.

    Args:
        mu: The weight of the proximal term.

    Example:
        >>> Algorithm(companion=Proximal(mu=0.1))
    """

    mu: float = 0.01

    def __post_init__(self) -> None:
        not_negative(mu=self.mu)

    def adapt(self, local: _Local) -> _Local:
        """Return local training with the proximal term."""
        return local if local.mu is not None else replace(local, mu=self.mu)


@dataclass(frozen=True)
class StepCount(Companion):
    """FedNova's client side: each client tells how many local steps its delta is made of.

    With momentum or a proximal term, a step counts as much as it contributes to the delta.

    Example:
        >>> Algorithm(combine=Normalized(), companion=StepCount())
    """

    numbers: ClassVar[tuple[str, ...]] = ("steps",)

    def finish(self, state: State, delta: Tensor, local: Trainer, steps: int) -> dict[str, Tensor]:
        """Return the number of steps."""
        return {"steps": delta.new_full((), local.gain(steps))}


@dataclass(frozen=True)
class ControlVariates(Companion):
    """SCAFFOLD: c - c_i is added to each gradient, against the drift of clients with unlike data.

    c_i estimates the gradient of client i, and c is the mean over all N clients. Both start at zero. After a job of
    K steps, c_i <- c_i - c - delta / (K lr). The server adds the changes of the step's clients, divided by N.

    With delays, a job uses the c of the version that it started from.

    Example:
        >>> Algorithm(companion=ControlVariates(), refill="round")
    """

    receives: ClassVar[tuple[str, ...]] = ("c",)
    returns: ClassVar[tuple[str, ...]] = ("dc",)
    keeps: ClassVar[tuple[str, ...]] = ("c_i",)

    def adapt(self, local: _Local) -> _Local:
        """Return local training with this companion.

        Raises:
            ConfigError: The local optimizer is not SGD, whose delta tells the mean gradient.
        """
        if not local.is_sgd:
            raise ConfigError('control variates (scaffold) need local.name = "sgd": a delta must be a sum of gradients')
        return super().adapt(local)

    def addition(self, state: State) -> Tensor:
        """Return c - c_i."""
        return state["server.c"] - state["c_i"]

    def finish(self, state: State, delta: Tensor, local: Trainer, steps: int) -> dict[str, Tensor]:
        """Return the new c_i, and its change."""
        change = state["server.c"].neg().sub_(delta, alpha=1 / local.total_rate(steps))
        return {"dc": change, "c_i": state["c_i"] + change}

    def absorb(self, state: ServerState, updates: Sequence[Update], clients: int) -> dict[str, Tensor]:
        """Return the next c."""
        c = state.model.vectors["c"].clone()
        for update in updates:
            c.add_(update.vectors["dc"], alpha=1 / clients)
        return {"c": c}


@dataclass(frozen=True)
class SharedMoments(Companion):
    """Local AMSGrad whose moments are averaged by the server, as in FedLALR.

    A job begins with the server's moments, and returns its own. The server sends the mean over the step's clients.

    Example:
        >>> Algorithm(companion=SharedMoments())
    """

    receives: ClassVar[tuple[str, ...]] = ("local.m", "local.v", "local.vhat")
    returns: ClassVar[tuple[str, ...]] = receives
    squares: ClassVar[tuple[str, ...]] = ("local.v", "local.vhat")

    def adapt(self, local: _Local) -> _Local:
        """Return local training with this companion, and without bias correction: the moments do not start at zero.

        Raises:
            ConfigError: The local optimizer is not AMSGrad, or keeps its moments.
        """
        if local.memory != ("m", "v", "vhat"):
            raise ConfigError('shared moments (fedlalr) need local.name = "amsgrad"')
        if getattr(local, "keep", False):
            raise ConfigError("shared moments (fedlalr) come from the server: remove local.keep")
        return replace(local, companion=self, bias_correction=False)

    def begin(self, state: State) -> None:
        """Begin with the server's moments."""
        for name in self.receives:
            state[name.removeprefix("local.")].copy_(state[f"server.{name}"])

    def finish(self, state: State, delta: Tensor, local: Trainer, steps: int) -> dict[str, Tensor]:
        """Return the moments after the last local step."""
        return {name: state[name.removeprefix("local.")] for name in self.returns}

    def absorb(self, state: ServerState, updates: Sequence[Update], clients: int) -> dict[str, Tensor]:
        """Return the mean of the returned moments."""
        return {name: mean([update.vectors[name] for update in updates]) for name in self.receives}


COMPANIONS: Mapping[str, Callable[..., Companion]] = {
    "proximal": Proximal,
    "step-count": StepCount,
    "control-variates": ControlVariates,
    "shared-moments": SharedMoments,
}
