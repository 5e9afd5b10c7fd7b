"""Server optimizers: x_{t+1} from x_t, the pseudo-gradient delta and the step size.

Each is a frozen set of hyper-parameters with a pure `apply`; all that it remembers lives in `slots`, as tensors.
delta points downhill already (trained minus start), so steps add it.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from fadas.validate import fraction

Slots = Mapping[str, Tensor]


class Optimizer(Protocol):
    def apply(self, x: Tensor, delta: Tensor, slots: Slots, eta: float) -> tuple[Tensor, dict[str, Tensor]]:
        """The new parameters and the slots that changed. Writes to none of its arguments."""
        ...


@dataclass(frozen=True)
class SGD:
    """x + eta * delta, with optional heavy-ball momentum."""

    momentum: float = 0.0

    def __post_init__(self) -> None:
        fraction(momentum=self.momentum)

    def apply(self, x: Tensor, delta: Tensor, slots: Slots, eta: float) -> tuple[Tensor, dict[str, Tensor]]:
        if not self.momentum:
            return x.add(delta, alpha=eta), {}
        m = _slot(slots, "m", x).mul(self.momentum).add_(delta)
        return x.add(m, alpha=eta), {"m": m}


@dataclass(frozen=True)
class _Adaptive:
    """m / (sqrt(v) + eps), where the subclasses say how v follows delta squared."""

    beta1: float = 0.9
    beta2: float = 0.99
    eps: float = 1e-8
    bias_correction: bool = False

    def __post_init__(self) -> None:
        fraction(beta1=self.beta1, beta2=self.beta2)
        if not self.eps > 0:
            raise ValueError(f"eps must be positive, not {self.eps}")

    def apply(self, x: Tensor, delta: Tensor, slots: Slots, eta: float) -> tuple[Tensor, dict[str, Tensor]]:
        m = _slot(slots, "m", x).mul(self.beta1).add_(delta, alpha=1 - self.beta1)
        v = self.second_moment(_slot(slots, "v", x), delta)
        new = {"m": m, "v": v, **self.bound(v, slots)}
        root = new.get("vhat", v).sqrt()
        if self.bias_correction:
            new["t"] = slots.get("t", torch.zeros((), dtype=torch.int64)) + 1
            t = int(new["t"])
            root = root.div_(math.sqrt(1 - self.beta2**t))
            eta = eta / (1 - self.beta1**t)
        return x.addcdiv(m, root.add_(self.eps), value=eta), new

    def second_moment(self, v: Tensor, delta: Tensor) -> Tensor:
        return v.mul(self.beta2).addcmul_(delta, delta, value=1 - self.beta2)

    def bound(self, v: Tensor, slots: Slots) -> dict[str, Tensor]:
        return {}


@dataclass(frozen=True)
class Adam(_Adaptive):
    """Exponential moving averages of delta and of its square; without bias correction by default, as in FedAdam."""


@dataclass(frozen=True)
class AMSGrad(_Adaptive):
    """Adam whose denominator never shrinks: vhat = max(vhat, v); without bias correction by default, as in FADAS.

    `floor` bounds vhat from below, as the authors of FedAMS have it: there, with eps in its place.
    """

    floor: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.floor < math.inf:
            raise ValueError(f"floor must be at least 0 and finite, not {self.floor}")

    def bound(self, v: Tensor, slots: Slots) -> dict[str, Tensor]:
        return {"vhat": torch.maximum(_slot(slots, "vhat", v, self.floor), v)}


@dataclass(frozen=True)
class Yogi(_Adaptive):
    """Adam whose v moves by at most (1 - beta2) delta^2, whatever v is."""

    def second_moment(self, v: Tensor, delta: Tensor) -> Tensor:
        square = delta.square()
        return v.addcmul(square, (square - v).sign_(), value=1 - self.beta2)


@dataclass(frozen=True)
class Adagrad:
    """Divides by the root of the sum of all squares so far; with momentum `beta1` where wanted."""

    beta1: float = 0.0
    eps: float = 1e-8

    def __post_init__(self) -> None:
        fraction(beta1=self.beta1)
        if not self.eps > 0:
            raise ValueError(f"eps must be positive, not {self.eps}")

    def apply(self, x: Tensor, delta: Tensor, slots: Slots, eta: float) -> tuple[Tensor, dict[str, Tensor]]:
        m = _slot(slots, "m", x).mul(self.beta1).add_(delta, alpha=1 - self.beta1)
        v = _slot(slots, "v", x).addcmul(delta, delta)
        return x.addcdiv(m, v.sqrt().add_(self.eps), value=eta), {"m": m, "v": v}


@dataclass(frozen=True)
class Torch:
    """Any `torch.optim` optimizer on the gradient -delta, by class name: Torch("RMSprop", {"alpha": 0.9})."""

    optimizer: str = "Adam"
    options: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        probe = torch.nn.Parameter(torch.ones(1))
        probe.grad = torch.ones(1)
        try:
            self._make(probe, 1.0).step()
        except (TypeError, ValueError, RuntimeError) as error:
            raise ValueError(f"torch.optim.{self.optimizer} cannot serve as the server optimizer: {error}") from None

    def _make(self, parameter: torch.nn.Parameter, eta: float) -> torch.optim.Optimizer:
        cls = getattr(torch.optim, self.optimizer, None)
        if not (isinstance(cls, type) and issubclass(cls, torch.optim.Optimizer)):
            raise ValueError("there is no such optimizer")
        return cls([parameter], lr=eta, **(self.options or {}))  # type: ignore[call-arg]

    def apply(self, x: Tensor, delta: Tensor, slots: Slots, eta: float) -> tuple[Tensor, dict[str, Tensor]]:
        parameter = torch.nn.Parameter(x.clone())
        parameter.grad = delta.neg()
        optimizer = self._make(parameter, eta)
        state = {name[6:]: tensor.clone() for name, tensor in slots.items() if name.startswith("torch.")}
        if state:
            optimizer.state[parameter] = state
        optimizer.step()
        remembered: dict[str, Any] = optimizer.state[parameter]
        new = {f"torch.{k}": torch.as_tensor(v) for k, v in remembered.items() if v is not None}
        return parameter.detach(), new


def _slot(slots: Slots, name: str, like: Tensor, initial: float = 0.0) -> Tensor:
    return slots[name] if name in slots else torch.full_like(like, initial)


OPTIMIZERS: dict[str, Callable[..., Optimizer]] = {
    "sgd": SGD,
    "adam": Adam,
    "amsgrad": AMSGrad,
    "yogi": Yogi,
    "adagrad": Adagrad,
    "torch": Torch,
}
