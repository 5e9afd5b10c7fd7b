"""The algorithms that users know by name. Each is a composition of a combine rule, an optimizer and a step size."""

from collections.abc import Callable
from typing import Literal

from fadas.algorithms.algorithm import Algorithm
from fadas.algorithms.combine import Calibrated, Mean, Mixing, Normalized, StalenessWeighted
from fadas.algorithms.companions import ControlVariates, Proximal, SharedMoments, StepCount
from fadas.algorithms.optimizers import SGD, Adagrad, Adam, AMSGrad, Yogi
from fadas.algorithms.step_sizes import Constant, DelayAdaptive, Hinge, Polynomial, ShareOfClients
from fadas.validate import one_of


def FADAS(eta: float = 1e-3, beta1: float = 0.9, beta2: float = 0.99, eps: float = 1e-8) -> Algorithm:
    """FADAS, Algorithm 1 of the paper: asynchronous updates in a buffer, and AMSGrad on the server.

    Args:
        eta: The server's step size.
        beta1: The decay rate of the first moment.
        beta2: The decay rate of the second moment.
        eps: A small number that is added to the denominator.

    Example:
        >>> FADAS(eta=0.003, beta1=0.8, beta2=0.999, eps=1e-6)
    """
    return Algorithm(Mean(), AMSGrad(beta1, beta2, eps), Constant(eta))


def FADAS_DA(
    eta: float = 1e-3,
    tau_c: int = 8,
    form: Literal["scaled", "capped"] = "scaled",
    beta1: float = 0.9,
    beta2: float = 0.99,
    eps: float = 1e-8,
) -> Algorithm:
    """FADAS with a delay-adaptive step size: smaller steps if an update is staler than tau_c.

    Args:
        eta: The step size for fresh updates.
        tau_c: The largest delay that leaves the step size as it is.
        form: How the step size falls beyond tau_c: "scaled" to eta / tau_max, or "capped" to min(eta, 1 / tau_max).
        beta1: The decay rate of the first moment.
        beta2: The decay rate of the second moment.
        eps: A small number that is added to the denominator.

    Example:
        >>> FADAS_DA(eta=0.003, tau_c=10, beta1=0.8, beta2=0.999, eps=1e-6)
    """
    return Algorithm(Mean(), AMSGrad(beta1, beta2, eps), DelayAdaptive(eta, tau_c, form))


def FedBuff(eta: float = 1.0, staleness_weights: bool = False) -> Algorithm:
    """FedBuff: asynchronous updates in a buffer, whose mean is added to the model.

    Args:
        eta: The server's step size.
        staleness_weights: Weight each update by 1/sqrt(1 + tau).

    Example:
        >>> FedBuff(eta=0.3, staleness_weights=True)
    """
    return Algorithm(StalenessWeighted() if staleness_weights else Mean(), SGD(), Constant(eta))


def FedAsync(
    alpha: float = 0.6,
    staleness: Literal["constant", "hinge", "polynomial"] = "polynomial",
    a: float | None = None,
    b: float = 4,
) -> Algorithm:
    """FedAsync: each client's model is mixed into the global model on arrival, with the weight alpha * s(tau).

    | `staleness`  | s(tau)                                              | default of `a` |
    |--------------|-----------------------------------------------------|----------------|
    | "constant"   | 1                                                   |                |
    | "hinge"      | 1 while tau <= b, then 1 / (a (tau - b) + 1)        | 10             |
    | "polynomial" | (1 + tau)^-a                                        | 0.5            |

    Args:
        alpha: The weight of a fresh model.
        staleness: The name of s.
        a: How fast s falls. None: the default in the table.
        b: The largest delay with the full weight. Used by "hinge" only.

    Example:
        >>> FedAsync(alpha=0.4, staleness="hinge", a=10, b=6)
    """
    sizes = {
        "constant": Constant(alpha),
        "hinge": Hinge(alpha, 10.0 if a is None else a, b),
        "polynomial": Polynomial(alpha, 0.5 if a is None else a),
    }
    one_of(tuple(sizes), staleness=staleness)
    return Algorithm(Mixing(), SGD(), sizes[staleness], refill="update", buffer=1)


def CA2FL(eta: float = 1.0) -> Algorithm:
    """CA2FL: FedBuff, corrected by the last update of every client, which the server keeps.

    Args:
        eta: The server's step size.

    Example:
        >>> CA2FL(eta=0.3)
    """
    return Algorithm(Calibrated(), SGD(), Constant(eta))


def FedAvg(eta: float = 1.0) -> Algorithm:
    """FedAvg: synchronous rounds, whose mean update is added to the model.

    Args:
        eta: The server's step size.

    Example:
        >>> FedAvg(eta=0.5)
    """
    return Algorithm(Mean(), SGD(), Constant(eta), refill="round")


def FedAdam(eta: float = 1e-3, beta1: float = 0.9, beta2: float = 0.99, eps: float = 1e-8) -> Algorithm:
    """FedAdam: synchronous rounds, with Adam on the server.

    Args:
        eta: The server's step size.
        beta1: The decay rate of the first moment.
        beta2: The decay rate of the second moment.
        eps: A small number that is added to the denominator.

    Example:
        >>> FedAdam(eta=0.01, beta1=0.8, beta2=0.999, eps=1e-3)
    """
    return Algorithm(Mean(), Adam(beta1, beta2, eps), Constant(eta), refill="round")


def FedAMS(eta: float = 1e-3, beta1: float = 0.9, beta2: float = 0.99, eps: float = 1e-8) -> Algorithm:
    """FedAMS: synchronous rounds, with AMSGrad on the server.

    Args:
        eta: The server's step size.
        beta1: The decay rate of the first moment.
        beta2: The decay rate of the second moment.
        eps: A small number that is added to the denominator.

    Example:
        >>> FedAMS(eta=0.01, beta1=0.8, beta2=0.999, eps=1e-3)
    """
    return Algorithm(Mean(), AMSGrad(beta1, beta2, eps), Constant(eta), refill="round")


def FedYogi(eta: float = 1e-3, beta1: float = 0.9, beta2: float = 0.99, eps: float = 1e-8) -> Algorithm:
    """FedYogi: synchronous rounds, with Yogi on the server.

    Args:
        eta: The server's step size.
        beta1: The decay rate of the first moment.
        beta2: The decay rate of the second moment.
        eps: A small number that is added to the denominator.

    Example:
        >>> FedYogi(eta=0.01, beta1=0.8, beta2=0.999, eps=1e-3)
    """
    return Algorithm(Mean(), Yogi(beta1, beta2, eps), Constant(eta), refill="round")


def FedAdagrad(eta: float = 1e-3, beta1: float = 0.0, eps: float = 1e-8) -> Algorithm:
    """FedAdagrad: synchronous rounds, with Adagrad on the server.

    Args:
        eta: The server's step size.
        beta1: The decay rate of the first moment. 0: no momentum.
        eps: A small number that is added to the denominator.

    Example:
        >>> FedAdagrad(eta=0.1, beta1=0.9, eps=1e-3)
    """
    return Algorithm(Mean(), Adagrad(beta1, eps), Constant(eta), refill="round")


def FedProx(eta: float = 1.0, mu: float = 0.01) -> Algorithm:
    """FedProx: FedAvg whose clients are pulled towards the model that they started from.

    Args:
        eta: The server's step size.
        mu: The weight of the proximal term. `local.mu` takes precedence.

    Example:
        >>> FedProx(eta=0.5, mu=0.1)
    """
    return Algorithm(Mean(), SGD(), Constant(eta), refill="round", companion=Proximal(mu))


def FedNova(eta: float = 1.0, examples: bool = False) -> Algorithm:
    """FedNova: FedAvg of deltas per local step, so that clients that take more steps do not weigh more.

    Args:
        eta: The server's step size.
        examples: Weight each client by its number of examples.

    Example:
        >>> FedNova(eta=0.5, examples=True)
    """
    return Algorithm(Normalized(examples), SGD(), Constant(eta), refill="round", companion=StepCount())


def SCAFFOLD(eta: float = 1.0) -> Algorithm:
    """SCAFFOLD: FedAvg whose clients correct their gradients by control variates. The local optimizer must be SGD.

    Args:
        eta: The server's step size.

    Example:
        >>> SCAFFOLD(eta=0.5)
    """
    return Algorithm(Mean(), SGD(), Constant(eta), refill="round", companion=ControlVariates())


def AsyncSCAFFOLD(eta: float = 1.0) -> Algorithm:
    """SCAFFOLD with a buffer instead of rounds. A job uses the control variate of the version that it started from.

    Args:
        eta: The server's step size.

    Example:
        >>> AsyncSCAFFOLD(eta=0.5)
    """
    return Algorithm(Mean(), SGD(), Constant(eta), companion=ControlVariates())


def FedLALR(eta: float = 1.0) -> Algorithm:
    """Local AMSGrad whose moments the server averages, the idea of FedLALR. Set `local.name = "amsgrad"`.

    Args:
        eta: The server's step size.

    Example:
        >>> FedLALR(eta=0.5)
    """
    return Algorithm(Mean(), SGD(), Constant(eta), refill="round", companion=SharedMoments())


def Centralised() -> Algorithm:
    """Baseline: plain SGD on the pooled data of all clients, as `[local]` says. What federated learning can hope for.

    One update has as many examples as a client's update, drawn from all data, and continues from the update before it.
    Delays play no role.

    Example:
        >>> Centralised()
    """
    return Algorithm(Mean(), SGD(), Constant(1.0), refill="round", buffer=1, baseline="centralised")


def LocalOnly() -> Algorithm:
    """Baseline: every client trains alone, from the same initial model. What federated learning must beat.

    Clients train when the schedule and the delays say so, as with FedBuff. Metrics are means over the clients' models.

    Example:
        >>> LocalOnly()
    """
    return Algorithm(Mean(), SGD(), ShareOfClients(), baseline="local-only")


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
    "fedprox": FedProx,
    "fednova": FedNova,
    "scaffold": SCAFFOLD,
    "scaffold-async": AsyncSCAFFOLD,
    "fedlalr": FedLALR,
    "centralised": Centralised,
    "local-only": LocalOnly,
    "custom": Algorithm,
}
