"""Server optimizers: x_{t+1} from x_t, the pseudo-gradient delta and the step size.

An optimizer is a frozen set of hyper-parameters with a pure `apply`. Its state is kept in `slots`, as named tensors.
delta is trained minus start, so it already points downhill and steps add it.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from fadas.validate import fraction, not_negative, positive

Slots = Mapping[str, Tensor]


class Optimizer(Protocol):
    """What a server optimizer must have: a method that returns the next parameters.

    Its memory is kept in `slots`, as named tensors.

    Example:
        >>> @dataclass(frozen=True)
        ... class SignSGD:
        ...     def apply(self, x, delta, slots, eta):
        ...         return x.add(delta.sign(), alpha=eta), {}
    """

    def apply(self, x: Tensor, delta: Tensor, slots: Slots, eta: float) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the new parameters, and the slots that changed. Write to no argument.

        Args:
            x: The parameters x_t.
            delta: The pseudo-gradient.
            slots: All named tensors that the server keeps. Empty at step 0.
            eta: The step size.
        """
        ...


@dataclass(frozen=True)
class SGD:
    """Adds eta * delta to the model, with optional heavy-ball momentum.

    Args:
        momentum: The decay rate of the momentum m = momentum * m + delta. 0: no momentum.

    Example:
        >>> Algorithm(optimizer=SGD(momentum=0.9))
    """

    momentum: float = 0.0

    def __post_init__(self) -> None:
        fraction(momentum=self.momentum)

    def apply(self, x: Tensor, delta: Tensor, slots: Slots, eta: float) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the new parameters, and the momentum if there is one."""
        if not self.momentum:
            return x.add(delta, alpha=eta), {}
        m = _slot(slots, "m", x).mul(self.momentum).add_(delta)
        return x.add(m, alpha=eta), {"m": m}


@dataclass(frozen=True)
class _Adaptive:
    """A step along m / (sqrt(v) + eps). Subclasses define how v follows delta squared."""

    beta1: float = 0.9
    beta2: float = 0.99
    eps: float = 1e-8
    bias_correction: bool = False

    def __post_init__(self) -> None:
        fraction(beta1=self.beta1, beta2=self.beta2)
        positive(eps=self.eps)

    def apply(self, x: Tensor, delta: Tensor, slots: Slots, eta: float) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the new parameters and moments."""
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
        """Return the new v."""
        return v.mul(self.beta2).addcmul_(delta, delta, value=1 - self.beta2)

    def bound(self, v: Tensor, slots: Slots) -> dict[str, Tensor]:
        """Return the slot "vhat" if it takes the place of v in the denominator, else no slot."""
        return {}


@dataclass(frozen=True)
class Adam(_Adaptive):
    """Adam: moving averages of delta and of its square. No bias correction by default, as in FedAdam.

    Args:
        beta1: The decay rate of m, the mean of delta.
        beta2: The decay rate of v, the mean of delta squared.
        eps: A small number that is added to the denominator.
        bias_correction: Correct m and v for their start at zero.

    Example:
        >>> Algorithm(optimizer=Adam(beta1=0.8, beta2=0.999, eps=1e-3), step_size=Constant(0.01))
    """


@dataclass(frozen=True)
class AMSGrad(_Adaptive):
    """AMSGrad: Adam whose denominator never shrinks, vhat = max(vhat, v). No bias correction by default, as in FADAS.

    Args:
        beta1: The decay rate of m, the mean of delta.
        beta2: The decay rate of v, the mean of delta squared.
        eps: A small number that is added to the denominator.
        bias_correction: Correct m and vhat for their start at zero.
        floor: The smallest vhat. The authors of FedAMS use eps here.

    Example:
        >>> Algorithm(optimizer=AMSGrad(beta1=0.8, beta2=0.999, eps=1e-6), step_size=Constant(0.001))
        >>> AMSGrad(floor=1e-8)
    """

    floor: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        not_negative(floor=self.floor)

    def bound(self, v: Tensor, slots: Slots) -> dict[str, Tensor]:
        """Return the new vhat."""
        return {"vhat": torch.maximum(_slot(slots, "vhat", v, self.floor), v)}


@dataclass(frozen=True)
class Yogi(_Adaptive):
    """Yogi: Adam whose v changes by at most (1 - beta2) delta^2 per step, whatever v is.

    Args:
        beta1: The decay rate of m, the mean of delta.
        beta2: The decay rate of v, the mean of delta squared.
        eps: A small number that is added to the denominator.
        bias_correction: Correct m and v for their start at zero.

    Example:
        >>> Algorithm(optimizer=Yogi(beta1=0.8, beta2=0.999, eps=1e-3), step_size=Constant(0.01))
    """

    def second_moment(self, v: Tensor, delta: Tensor) -> Tensor:
        """Return the new v."""
        square = delta.square()
        return v.addcmul(square, (square - v).sign_(), value=1 - self.beta2)


@dataclass(frozen=True)
class Adagrad:
    """Adagrad: divides by the root of the sum of all squared deltas so far, with optional momentum.

    Args:
        beta1: The decay rate of m, the mean of delta. 0: no momentum.
        eps: A small number that is added to the denominator.

    Example:
        >>> Algorithm(optimizer=Adagrad(beta1=0.9, eps=1e-3), step_size=Constant(0.1))
    """

    beta1: float = 0.0
    eps: float = 1e-8

    def __post_init__(self) -> None:
        fraction(beta1=self.beta1)
        positive(eps=self.eps)

    def apply(self, x: Tensor, delta: Tensor, slots: Slots, eta: float) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the new parameters and moments."""
        m = _slot(slots, "m", x).mul(self.beta1).add_(delta, alpha=1 - self.beta1)
        v = _slot(slots, "v", x).addcmul(delta, delta)
        return x.addcdiv(m, v.sqrt().add_(self.eps), value=eta), {"m": m, "v": v}


@dataclass(frozen=True)
class Torch:
    """Any optimizer of `torch.optim`, by class name. Its gradient is -delta.

    Args:
        optimizer: The name of a class in `torch.optim`.
        options: Its keyword arguments, except `lr`, which is eta.

    Example:
        >>> Algorithm(optimizer=Torch("RMSprop", {"alpha": 0.9}), step_size=Constant(0.01))
    """

    optimizer: str = "Adam"
    options: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        probe = torch.nn.Parameter(torch.ones(1))
        probe.grad = torch.ones(1)
        try:
            self._make_optimizer(probe, 1.0).step()
        except (TypeError, ValueError, RuntimeError) as error:
            raise ValueError(f"torch.optim.{self.optimizer} cannot serve as the server optimizer: {error}") from None

    def _make_optimizer(self, parameter: torch.nn.Parameter, eta: float) -> torch.optim.Optimizer:
        cls = getattr(torch.optim, self.optimizer, None)
        if not (isinstance(cls, type) and issubclass(cls, torch.optim.Optimizer)):
            raise ValueError("there is no such optimizer")
        return cls([parameter], lr=eta, **(self.options or {}))  # type: ignore[call-arg]

    def apply(self, x: Tensor, delta: Tensor, slots: Slots, eta: float) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the new parameters, and the state of the torch optimizer."""
        parameter = torch.nn.Parameter(x.clone())
        parameter.grad = delta.neg()
        optimizer = self._make_optimizer(parameter, eta)
        state = {
            name.removeprefix("torch."): tensor.clone() for name, tensor in slots.items() if name.startswith("torch.")
        }
        if state:
            optimizer.state[parameter] = state
        optimizer.step()
        state_after: dict[str, Any] = optimizer.state[parameter]
        new = {f"torch.{name}": torch.as_tensor(value) for name, value in state_after.items() if value is not None}
        return parameter.detach(), new


def _slot(slots: Slots, name: str, like: Tensor, initial: float = 0.0) -> Tensor:
    """Return a slot or, at step 0, its initial value."""
    return slots[name] if name in slots else torch.full_like(like, initial)


OPTIMIZERS: dict[str, Callable[..., Optimizer]] = {
    "sgd": SGD,
    "adam": Adam,
    "amsgrad": AMSGrad,
    "yogi": Yogi,
    "adagrad": Adagrad,
    "torch": Torch,
}
