"""Step sizes: the delays of a step -> eta_t."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol


class StepSize(Protocol):
    def __call__(self, delays: Sequence[int]) -> float: ...


@dataclass(frozen=True)
class Constant:
    """eta, whatever the delays."""

    eta: float = 1.0

    def __post_init__(self) -> None:
        _rate(eta=self.eta)

    def __call__(self, delays: Sequence[int]) -> float:
        return self.eta


@dataclass(frozen=True)
class DelayAdaptive:
    """eta while tau_max <= tau_c; beyond, min(eta, eta / tau_max) (`"scaled"`) or min(eta, 1 / tau_max) (`"capped"`).

    The paper defines the second form (Eq. 3) and ran its experiments with the first (appendix).
    """

    eta: float
    tau_c: int
    form: Literal["scaled", "capped"] = "scaled"

    def __post_init__(self) -> None:
        _rate(eta=self.eta)
        if self.tau_c < 0:
            raise ValueError(f"tau_c must not be negative, not {self.tau_c}")
        if self.form not in ("scaled", "capped"):
            raise ValueError(f"form must be 'scaled' or 'capped', not {self.form!r}")

    def __call__(self, delays: Sequence[int]) -> float:
        tau_max = max(delays)
        if tau_max <= self.tau_c:
            return self.eta
        return min(self.eta, (self.eta if self.form == "scaled" else 1.0) / tau_max)


@dataclass(frozen=True)
class Hinge:
    """FedAsync: eta while tau_max <= b, then eta / (a (tau_max - b) + 1)."""

    eta: float = 0.6
    a: float = 10.0
    b: float = 4.0

    def __post_init__(self) -> None:
        _rate(eta=self.eta, a=self.a)
        if not self.b >= 0:
            raise ValueError(f"b must not be negative, not {self.b}")

    def __call__(self, delays: Sequence[int]) -> float:
        late = max(delays) - self.b
        return self.eta if late <= 0 else self.eta / (self.a * late + 1)


@dataclass(frozen=True)
class Polynomial:
    """FedAsync: eta (1 + tau_max)^-a."""

    eta: float = 0.6
    a: float = 0.5

    def __post_init__(self) -> None:
        _rate(eta=self.eta, a=self.a)

    def __call__(self, delays: Sequence[int]) -> float:
        return self.eta * (1 + max(delays)) ** -self.a


def _rate(**values: float) -> None:
    for name, value in values.items():
        if not 0 < value < math.inf:
            raise ValueError(f"{name} must be a positive number, not {value}")


STEP_SIZES: dict[str, Callable[..., StepSize]] = {
    "constant": Constant,
    "delay-adaptive": DelayAdaptive,
    "hinge": Hinge,
    "polynomial": Polynomial,
}
