"""Algorithms as compositions: combine M updates, take an optimizer step, of a size that may depend on the delays."""

from collections.abc import Callable
from typing import Literal

from fadas.algorithms.algorithm import Algorithm
from fadas.algorithms.combine import Calibrated, Mean, Mixing, StalenessWeighted
from fadas.algorithms.optimizers import SGD, Adagrad, Adam, AMSGrad, Yogi
from fadas.algorithms.step_sizes import Constant, DelayAdaptive, Hinge, Polynomial

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
