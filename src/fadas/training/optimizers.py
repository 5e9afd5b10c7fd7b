"""Local optimizers: what a client does with a gradient. With `keep = true` their memory stays with the client.

Each is one class with one elementwise `step`. All executors use it: on flat vectors, on batches of jobs, and in CUDA
graphs. `LOCAL_TRAINERS` has their names. They take the arguments of `LocalSGD` too, whose docstring describes them.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from fadas.errors import ConfigError
from fadas.training.flat_module import FlatModule
from fadas.training.sgd import TAKEN, LocalSGD, Mover, State
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
        self.go(params, state["m"].mul_(self.beta).add_(grads))


@dataclass(frozen=True)
class Nesterov(Momentum):
    """SGD with Nesterov's momentum: m <- beta * m + gradient, params <- params - lr * (gradient + beta * m).

    Example:
        >>> Nesterov(0.05, beta=0.8)
    """

    def step(self, params: Tensor, grads: Tensor, state: State, t: Any) -> None:
        """Take one step in place."""
        m = state["m"].mul_(self.beta).add_(grads)
        self.go(params, grads.add_(m, alpha=self.beta))


@dataclass(frozen=True)
class Adam(LocalSGD):
    """Adam.

    Args:
        beta1: How much of the mean gradient m stays at each step.
        beta2: How much of the mean squared gradient v stays at each step.
        eps: Added to the square root of v.
        bias_correction: Correct m and v for their start at zero.

    Example:
        >>> Adam(0.001, beta1=0.8, beta2=0.99, eps=1e-6)
    """

    memory: ClassVar[tuple[str, ...]] = ("m", "v")
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    bias_correction: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        fraction(beta1=self.beta1, beta2=self.beta2)
        positive(eps=self.eps)

    def step(self, params: Tensor, grads: Tensor, state: State, t: Any) -> None:
        """Take one step in place."""
        corrected = self.bias_correction
        root = (1 - self.beta2**t) ** 0.5 if corrected else 1.0  # undoes the bias of sqrt(v) towards 0
        m = state["m"].lerp_(grads, 1 - self.beta1)
        v = state["v"].mul_(self.beta2).addcmul_(grads, grads, value=1 - self.beta2)
        change = m / self._largest(v, state).sqrt().add_(self.eps * root)
        scale = root / (1 - self.beta1**t) if corrected else 1.0
        params.sub_(change.mul_(self.lr * scale))  # lr and t may be tensors: no `alpha`

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
        decoupled: Weight decay does not enter the gradient. False: this is Adam.

    Example:
        >>> AdamW(0.001, weight_decay=0.05, beta1=0.8, beta2=0.99, eps=1e-6)
    """

    decoupled: bool = True


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

    def mover(self, flat: FlatModule, state: State) -> Mover:
        """Return what takes steps of a new optimizer. With `keep`, it continues from the client's memory."""
        params = {name: p for name, p in flat.module.named_parameters() if p.requires_grad}
        optimizer = self._make(list(params.values()))
        for key in state if self.keep else ():
            if key == TAKEN:
                continue
            views = flat.named_params(state[key]) if state[key].dim() else dict.fromkeys(params, state[key])
            for name, parameter in params.items():
                optimizer.state[parameter][key] = views[name].clone()

        def move(t: int) -> None:
            for group in optimizer.param_groups if self.warmup else ():
                group["lr"] = self.lr * self.warmup_factor(t)
            if self.decoupled:
                flat.params.mul_(1 - self.lr * self.warmup_factor(t) * self.weight_decay)
            optimizer.step()

        return Mover(move, lambda: self._pack(flat, params, optimizer))

    def _pack(
        self, flat: FlatModule, params: Mapping[str, torch.nn.Parameter], optimizer: torch.optim.Optimizer
    ) -> dict[str, Tensor]:
        """Return the optimizer's memory as vectors and numbers."""
        packed: dict[str, Tensor] = {}
        for name, parameter in params.items():
            for key, value in optimizer.state[parameter].items():
                value = torch.as_tensor(value)
                if value.shape == parameter.shape and value.dtype == parameter.dtype:
                    vector = packed.setdefault(key, torch.zeros_like(flat.params))
                    flat.named_params(vector)[name].copy_(value)
                elif not value.dim():
                    packed[key] = value.clone()
                else:
                    raise ConfigError(
                        f"local.keep: torch.optim.{self.optimizer} keeps {key!r}, which is neither shaped like the "
                        "parameters nor a number"
                    )
        return packed


@dataclass(frozen=True)
class CustomStep(LocalSGD):
    """Local training with a step function of your own. One job is trained at a time.

    Args:
        function: Called as function(params, grads, state, t) after each batch. It changes the vector `params` in place.
            `state` is a dict that lasts for the job, and holds the learning rate as "lr". With `keep`, its tensors and
            numbers stay with the client. `t` counts from 1.

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

    def mover(self, flat: FlatModule, state: State) -> Mover:
        """Return what applies weight decay and calls `function`."""
        own: dict[str, Any] = {name: v if v.dim() else v.item() for name, v in state.items() if name != TAKEN}
        before = int(state[TAKEN]) if TAKEN in state else 0
        function = self.function
        assert function

        def move(t: int) -> None:
            now = self.at_step(t)
            now.decay(flat.params, flat.grads)
            own["lr"] = now.lr
            function(flat.params, flat.grads, own, before + t)

        return Mover(move, lambda: {name: _kept(name, value, flat) for name, value in own.items() if name != "lr"})


def _kept(name: str, value: Any, flat: FlatModule) -> Tensor:
    """Return a value of a step function's state in the form in which clients keep it."""
    if not isinstance(value, Tensor):
        if not isinstance(value, int | float):
            raise ConfigError(f"local.keep: state[{name!r}] must be a tensor or a number, got {type(value).__name__}")
        return torch.tensor(value, dtype=torch.int64 if isinstance(value, int) else torch.float64)
    if value.dim() and (value.shape, value.dtype) != (flat.params.shape, flat.params.dtype):
        raise ConfigError(f"local.keep: state[{name!r}] must be shaped like params, got {list(value.shape)}")
    return value


LOCAL_TRAINERS: Mapping[str, Callable[..., LocalSGD]] = {
    "sgd": LocalSGD,
    "momentum": Momentum,
    "nesterov": Nesterov,
    "adam": Adam,
    "adamw": AdamW,
    "amsgrad": AMSGrad,
    "torch": TorchOptimizer,
}
