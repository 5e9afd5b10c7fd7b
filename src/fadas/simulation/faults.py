"""Faults in simulation: clients that fail, or report garbage, for a while or always; the same in every repetition."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

Kind = Literal["fail", "nan", "inf", "flip", "noise"]


@dataclass(frozen=True)
class Fault:
    """What is wrong with some clients' jobs that begin between `start` and `end` in virtual time.

    `fail`: no update comes. `nan`, `inf`: it holds such numbers. `flip`: it points the other way, `scale` times as far.
    `noise`: Gaussian noise with a standard deviation of `scale` is added to it.
    """

    kind: Kind
    clients: tuple[int, ...] | None = None  # none: all of them
    start: float = 0.0
    end: float = math.inf
    scale: float = 1.0

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise ValueError(f"kind must be one of {', '.join(get_args(Kind))}, not {self.kind!r}")
        if not 0 <= self.start < self.end:
            raise ValueError(f"start must not be negative and end must come after it, not {self.start} and {self.end}")
        if not 0 < self.scale < math.inf:
            raise ValueError(f"scale must be a positive number, not {self.scale}")

    def hits(self, client: int, time: float) -> bool:
        return self.start <= time < self.end and (self.clients is None or client in self.clients)


def check_clients(faults: Sequence[Fault], clients: int) -> None:
    for fault in faults:
        for client in fault.clients or ():
            if not 0 <= client < clients:
                raise ValueError(f"a fault names client {client}, but there are {clients}: 0 to {clients - 1}")


def last_outage_end(faults: Sequence[Fault]) -> float:
    """When the last of the failures that pass has passed."""
    return max((fault.end for fault in faults if fault.kind == "fail" and fault.end < math.inf), default=0.0)


def is_failing(faults: Sequence[Fault], client: int, time: float) -> bool:
    return any(fault.kind == "fail" and fault.hits(client, time) for fault in faults)
