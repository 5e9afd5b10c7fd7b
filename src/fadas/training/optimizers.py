"""Local optimizers: what a client does with a gradient. Their memory is reset at the start of each job.

Each is one class with one elementwise `step`. All executors use it: on flat vectors, on batches of jobs, and in CUDA
graphs. `LOCAL_TRAINERS` has their names. They take the arguments of `LocalSGD` too, whose docstring describes them.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from fadas.training.flat_module import FlatModule
from fadas.training.sgd import LocalSGD, State
from fadas.validate import fraction, positive


@dataclass(frozen=True)
class Momentum(LocalSGD):
    """SGD with momentum: m <- beta * m + gradient, params <- params - lr * m.

    Args:
        beta: How much of m stays at each step.

    Example:
        >>> Momentum(0.05, beta=0.8)
    """

    memory: ClassVar[tuple[str, ...]] = ("m",)
    beta: float = 0.9

    def __post_init__(self) -> None:
        super().__post_init__()
        fraction(beta=self.beta)

    def step(self, params: Tensor, grads: Tensor, state: State, t: Any) -> None:
        """Take one step in place."""
        params.add_(state["m"].mul_(self.beta).add_(grads), alpha=-self.lr)


@dataclass(frozen=True)
class Nesterov(Momentum):
    """SGD with Nesterov's momentum: m <- beta * m + gradient, params <- params - lr * (gradient + beta * m).

    Example:
        >>> Nesterov(0.05, beta=0.8)
    """

    def step(self, params: Tensor, grads: Tensor, state: State, t: Any) -> None:
        """Take one step in place."""
        m = state["m"].mul_(self.beta).add_(grads)
        params.add_(grads.add_(m, alpha=self.beta), alpha=-self.lr)


@dataclass(frozen=True)
class Adam(LocalSGD):
    """Adam with bias correction.

    Args:
        beta1: How much of the mean gradient m stays at each step.
        beta2: How much of the mean squared gradient v stays at each step.
        eps: Added to the square root of v.

    Example:
        >>> Adam(0.001, beta1=0.8, beta2=0.99, eps=1e-6)
    """

    memory: ClassVar[tuple[str, ...]] = ("m", "v")
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8

    def __post_init__(self) -> None:
        super().__post_init__()
        fraction(beta1=self.beta1, beta2=self.beta2)
        positive(eps=self.eps)

    def step(self, params: Tensor, grads: Tensor, state: State, t: Any) -> None:
        """Take one step in place."""
        root = (1 - self.beta2**t) ** 0.5  # undoes the bias of sqrt(v) towards 0
        m = state["m"].lerp_(grads, 1 - self.beta1)
        v = state["v"].mul_(self.beta2).addcmul_(grads, grads, value=1 - self.beta2)
        change = m / self._largest(v, state).sqrt().add_(self.eps * root)
        params.sub_(change.mul_(self.lr * root / (1 - self.beta1**t)))  # t may be a tensor: no `alpha`

    def _largest(self, v: Tensor, state: State) -> Tensor:
        return v


@dataclass(frozen=True)
class AMSGrad(Adam):
    """Adam that divides by the root of the largest v so far.

    Example:
        >>> AMSGrad(0.001, beta1=0.8, beta2=0.99, eps=1e-6)
    """

    memory: ClassVar[tuple[str, ...]] = ("m", "v", "vhat")

    def _largest(self, v: Tensor, state: State) -> Tensor:
        return torch.maximum(state["vhat"], v, out=state["vhat"])


@dataclass(frozen=True)
class AdamW(Adam):
    """Adam with decoupled weight decay: params <- (1 - lr * weight_decay) * params before each step.

    Args:
        weight_decay: How fast parameters shrink. It does not enter the gradient.

    Example:
        >>> AdamW(0.001, weight_decay=0.05, beta1=0.8, beta2=0.99, eps=1e-6)
    """

    def decay(self, params: Tensor, grads: Tensor) -> None:
        """Apply weight decay, in place."""
        params.mul_(1 - self.lr * self.weight_decay)


@dataclass(frozen=True)
class TorchOptimizer(LocalSGD):
    """Any optimizer of `torch.optim`, by class name. One job is trained at a time.

    Args:
        weight_decay: The optimizer's own `weight_decay`.
        optimizer: The name of a class in `torch.optim`.
        options: Its other keyword arguments.

    Example:
        >>> TorchOptimizer(0.01, optimizer="RMSprop", options={"alpha": 0.9})
    """

    elementwise: ClassVar[bool] = False
    optimizer: str = "SGD"
    options: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        probe = torch.nn.Parameter(torch.ones(2, 2))
        probe.grad = torch.ones(2, 2)
        try:
            self._make([probe]).step()
        except (TypeError, ValueError, RuntimeError) as error:
            raise ValueError(f"torch.optim.{self.optimizer} cannot train clients: {error}") from None

    def _make(self, parameters: list[torch.nn.Parameter]) -> torch.optim.Optimizer:
        cls = getattr(torch.optim, self.optimizer, None)
        if not (isinstance(cls, type) and issubclass(cls, torch.optim.Optimizer)):
            raise ValueError("there is no such optimizer")
        return cls(parameters, lr=self.lr, weight_decay=self.weight_decay, **(self.options or {}))  # type: ignore[call-arg]

    def mover(self, flat: FlatModule) -> Callable[[int], None]:
        """Return a function that takes a step of a new optimizer."""
        optimizer = self._make([p for p in flat.module.parameters() if p.requires_grad])
        return lambda t: optimizer.step()


@dataclass(frozen=True)
class CustomStep(LocalSGD):
    """Local training with a step function of your own. One job is trained at a time.

    Args:
        function: Called as function(params, grads, state, t) after each batch. It changes the vector `params` in place.
            `state` is a dict that lasts for the job, and holds the learning rate as "lr". `t` counts from 1.

    Example:
        >>> def step(params, grads, state, t):
        ...     params -= state["lr"] * grads.sign()
        >>> CustomStep(0.001, function=step)
    """

    elementwise: ClassVar[bool] = False
    function: Callable[[Tensor, Tensor, dict[str, Any], int], Any] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not callable(self.function):
            raise ValueError("function must be a function step(params, grads, state, t)")

    def mover(self, flat: FlatModule) -> Callable[[int], None]:
        """Return a function that applies weight decay and calls `function`, with a new state."""
        state: dict[str, Any] = {"lr": self.lr}
        function = self.function
        assert function

        def move(t: int) -> None:
            self.decay(flat.params, flat.grads)
            function(flat.params, flat.grads, state, t)

        return move


LOCAL_TRAINERS: Mapping[str, Callable[..., LocalSGD]] = {
    "sgd": LocalSGD,
    "momentum": Momentum,
    "nesterov": Nesterov,
    "adam": Adam,
    "adamw": AdamW,
    "amsgrad": AMSGrad,
    "torch": TorchOptimizer,
}
