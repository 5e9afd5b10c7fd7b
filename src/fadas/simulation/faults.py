"""Faults in simulation: clients that fail or report wrong updates, temporarily or always.

Faults are deterministic. A repeated run has the same ones.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from fadas.validate import one_of, positive

Kind = Literal["fail", "nan", "inf", "flip", "noise"]


@dataclass(frozen=True)
class Fault:
    """Clients that fail or report wrong updates. The fault affects jobs that start in [start, end) of virtual time.

    | `kind`         | The client's update                                                  |
    |----------------|----------------------------------------------------------------------|
    | "fail"         | never arrives                                                        |
    | "nan", "inf"   | holds only NaN or infinity                                           |
    | "flip"         | has the opposite direction, and `scale` times the length             |
    | "noise"        | has Gaussian noise added to it, with the standard deviation `scale`  |

    Args:
        kind: What goes wrong, as the table shows.
        clients: The numbers of the affected clients. None: all clients.
        start: When the fault begins, in virtual time.
        end: When the fault ends, in virtual time. The default means never.
        scale: The strength of "flip" and "noise".

    Example:
        >>> Fault("noise", clients=(3, 7), start=10.0, end=50.0, scale=0.1)
    """

    kind: Kind
    clients: tuple[int, ...] | None = None
    start: float = 0.0
    end: float = math.inf
    scale: float = 1.0

    def __post_init__(self) -> None:
        one_of(get_args(Kind), kind=self.kind)
        if not 0 <= self.start < self.end:
            raise ValueError(f"start and end must be a range 0 <= start < end, got {[self.start, self.end]}")
        positive(scale=self.scale)

    def hits(self, client: int, time: float) -> bool:
        """Return whether the fault affects a job that this client starts at this time."""
        return self.start <= time < self.end and (self.clients is None or client in self.clients)


def check_clients(faults: Sequence[Fault], clients: int) -> None:
    """Raise ValueError if a fault names a client that does not exist."""
    for fault in faults:
        for client in fault.clients or ():
            if not 0 <= client < clients:
                raise ValueError(f"the clients of a fault must be from 0 to {clients - 1}, got {client}")


def last_outage_end(faults: Sequence[Fault]) -> float:
    """Return when the last temporary failure ends, or 0 if there is none."""
    return max((fault.end for fault in faults if fault.kind == "fail" and fault.end < math.inf), default=0.0)


def is_failing(faults: Sequence[Fault], client: int, time: float) -> bool:
    """Return whether a job that this client starts at this time fails."""
    return any(fault.kind == "fail" and fault.hits(client, time) for fault in faults)
