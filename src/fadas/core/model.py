"""Models as flat vectors: torch module <-> (params, buffers) <-> state_dict."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import Tensor

from fadas.core.ledger import Job


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Model:
    """One version of the model. Never written to: jobs, buffers and server states share it by reference."""

    params: Tensor  # [P] everything that is trained
    buffers: Tensor  # [S] floating-point module buffers, e.g. BatchNorm's running statistics


@dataclass(frozen=True, slots=True)
class Update:
    """What a client reports: `delta` is its trained parameters minus `base`, those it started from.

    Where `refill` is "released", the server may put another version in `base`'s place, and change `delta` to fit.
    """

    job: Job
    delta: Tensor
    buffers: Tensor
    base: Tensor
    examples: int
    metrics: Mapping[str, float | Tensor] = field(default_factory=dict[str, float | Tensor])


@dataclass(frozen=True, slots=True)
class ServerState:
    """x_t and all that the algorithm remembers, as named tensors."""

    version: int
    model: Model
    slots: Mapping[str, Tensor] = field(default_factory=dict[str, Tensor])
