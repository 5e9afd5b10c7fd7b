"""How far a run is: the counters that become records."""

from dataclasses import dataclass, field

from torch import Tensor


@dataclass
class Progress:
    """How far a simulation is: with the plan, the models and the optimizer's memory, all that goes on depends on."""

    position: int = 0  # in the plan's endings
    updates: int = 0
    wall: float = 0.0
    losses: list[float | Tensor] = field(default_factory=list[float | Tensor])  # of the updates in the buffer
    dropped: int = 0
    expired: int = 0
    refusals: list[int] = field(default_factory=list[int])  # positions at which the plan was wrong
    since: int = 0  # refusals since the last update that was taken
