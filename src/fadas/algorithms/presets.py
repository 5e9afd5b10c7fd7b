"""Algorithms as compositions: combine M updates, take an optimizer step, of a size that may depend on the delays."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Literal

import torch

from fadas.algorithms.combine import Calibrated, Combine, Mean, Mixing, StalenessWeighted, mean
from fadas.algorithms.optimizers import SGD, Adagrad, Adam, AMSGrad, Optimizer, Yogi
from fadas.algorithms.step_sizes import Constant, DelayAdaptive, Hinge, Polynomial, StepSize
from fadas.core.ledger import Refill, Schedule, Step
from fadas.core.model import Model, ServerState, Update


@dataclass(frozen=True)
class Algorithm:
    """Any composition: combine rule, optimizer and step size, with the schedule that goes with them.

    `buffer` is the method's own M where it has one (FedAsync: 1); with `refill = "round"` M is the concurrency.
    `statistics` is the weight of a step's BatchNorm statistics beside those so far: at 1 the mean over the step's
    clients, below it a running average, for clients whose own say little about the rest. Training does not see them.
    """

    combine: Combine = Mean()
    optimizer: Optimizer = SGD()
    step_size: StepSize = Constant()
    refill: Refill = "arrival"
    buffer: int | None = None
    statistics: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.statistics <= 1:
            raise ValueError(f"statistics must be above 0 and at most 1, not {self.statistics}")

    def schedule(self, concurrency: int, buffer: int) -> Schedule:
        """The method's schedule in an experiment with this M_c and M."""
        return Schedule(concurrency, self.buffer or (concurrency if self.refill == "round" else buffer), self.refill)

    def apply(self, state: ServerState, step: Step, updates: Sequence[Update], clients: int) -> ServerState:
        """Lines 9 to 16 of Algorithm 1. Pure: writes to none of its arguments."""
        x = state.model.params
        delta, remembered = self.combine(state, step, updates, clients)  # line 9
        eta = self.step_size(step.delays)  # lines 11 to 15
        x, moments = self.optimizer.apply(x, delta, state.slots, eta)  # lines 10 and 16
        if clash := remembered.keys() & moments.keys():
            raise ValueError(
                f"the combine rule and the optimizer both remember something as {min(clash)!r}; rename one"
            )
        buffers = state.model.buffers
        if buffers.numel():
            # BatchNorm's statistics are no parameters: they are averaged and never pass through the optimizer
            given = [u.buffers for u in updates]
            # rounding takes the mean of equal numbers elsewhere: frozen weights would creep away, step after step
            now = mean(given).clamp_(reduce(torch.minimum, given), reduce(torch.maximum, given))
            if self.statistics < 1:  # between two infinities, such as a mask's, there is nothing
                now = torch.lerp(buffers, now, self.statistics).where(now != buffers, buffers)
            buffers = now
        return ServerState(state.version + 1, Model(x, buffers), {**state.slots, **remembered, **moments})


# The names users know.


def FADAS(eta: float = 1e-3, beta1: float = 0.9, beta2: float = 0.99, eps: float = 1e-8) -> Algorithm:
    """Buffered asynchronous AMSGrad (Algorithm 1)."""
    return Algorithm(Mean(), AMSGrad(beta1, beta2, eps), Constant(eta))


def FADAS_DA(
    eta: float = 1e-3,
    tau_c: int = 8,
    form: Literal["scaled", "capped"] = "scaled",
    beta1: float = 0.9,
    beta2: float = 0.99,
    eps: float = 1e-8,
) -> Algorithm:
    """FADAS with the delay-adaptive step size: smaller steps when an update is staler than tau_c."""
    return Algorithm(Mean(), AMSGrad(beta1, beta2, eps), DelayAdaptive(eta, tau_c, form))


def FedBuff(eta: float = 1.0, staleness_weights: bool = False) -> Algorithm:
    """Buffered asynchronous averaging, optionally with weights 1/sqrt(1 + tau)."""
    return Algorithm(StalenessWeighted() if staleness_weights else Mean(), SGD(), Constant(eta))


def FedAsync(
    alpha: float = 0.6,
    staleness: Literal["constant", "hinge", "polynomial"] = "polynomial",
    a: float | None = None,
    b: float = 4,
) -> Algorithm:
    """Mixes each client's model into the global one as it arrives, with weight alpha * s(tau)."""
    sizes = {
        "constant": Constant(alpha),
        "hinge": Hinge(alpha, 10.0 if a is None else a, b),
        "polynomial": Polynomial(alpha, 0.5 if a is None else a),
    }
    if staleness not in sizes:
        raise ValueError(f"staleness must be one of {', '.join(sizes)}, not {staleness!r}")
    return Algorithm(Mixing(), SGD(), sizes[staleness], refill="update", buffer=1)


def CA2FL(eta: float = 1.0) -> Algorithm:
    """FedBuff calibrated by every client's cached last update."""
    return Algorithm(Calibrated(), SGD(), Constant(eta))


def FedAvg(eta: float = 1.0) -> Algorithm:
    """Synchronous averaging."""
    return Algorithm(Mean(), SGD(), Constant(eta), refill="round")


def FedAdam(eta: float = 1e-3, beta1: float = 0.9, beta2: float = 0.99, eps: float = 1e-8) -> Algorithm:
    """Synchronous, with Adam on the server."""
    return Algorithm(Mean(), Adam(beta1, beta2, eps), Constant(eta), refill="round")


def FedAMS(eta: float = 1e-3, beta1: float = 0.9, beta2: float = 0.99, eps: float = 1e-8) -> Algorithm:
    """Synchronous, with AMSGrad on the server."""
    return Algorithm(Mean(), AMSGrad(beta1, beta2, eps), Constant(eta), refill="round")


def FedYogi(eta: float = 1e-3, beta1: float = 0.9, beta2: float = 0.99, eps: float = 1e-8) -> Algorithm:
    """Synchronous, with Yogi on the server."""
    return Algorithm(Mean(), Yogi(beta1, beta2, eps), Constant(eta), refill="round")


def FedAdagrad(eta: float = 1e-3, beta1: float = 0.0, eps: float = 1e-8) -> Algorithm:
    """Synchronous, with Adagrad on the server."""
    return Algorithm(Mean(), Adagrad(beta1, eps), Constant(eta), refill="round")


ALGORITHMS: dict[str, Callable[..., Algorithm]] = {
    "fadas": FADAS,
    "fadas-da": FADAS_DA,
    "fedbuff": FedBuff,
    "fedasync": FedAsync,
    "ca2fl": CA2FL,
    "fedavg": FedAvg,
    "fedadam": FedAdam,
    "fedams": FedAMS,
    "fedyogi": FedYogi,
    "fedadagrad": FedAdagrad,
    "custom": Algorithm,
}
