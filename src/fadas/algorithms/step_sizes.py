"""Step sizes: the server step -> eta_t.

A step size is called once per server step, with a `ServerStep`: index, jobs, delays, seed, the state before the step,
the updates and the number of clients. The records of a run hold the value that was used. A step size must depend on
the step alone, so that a resumed run repeats it.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

from fadas.core.model import ServerStep
from fadas.validate import MOST_STEPS, at_least, at_most, fraction, not_negative, one_of, positive


class StepSize(Protocol):
    """What a step size must be: a function that returns eta_t for a server step.

    Example:
        >>> @dataclass(frozen=True)
        ... class InverseDelay:
        ...     eta: float = 0.1
        ...
        ...     def __call__(self, step: ServerStep) -> float:
        ...         return self.eta / (1 + max(step.delays))
    """

    def __call__(self, step: ServerStep, /) -> float:
        """Return eta_t.

        Args:
            step: The step: index, jobs, delays, seed, the state before it, the updates and the number of clients.
        """
        ...


@dataclass(frozen=True)
class Constant:
    """The same eta for every step.

    Args:
        eta: The step size.

    Example:
        >>> Constant(0.1)
    """

    eta: float = 1.0

    def __post_init__(self) -> None:
        positive(eta=self.eta)

    def __call__(self, step: ServerStep, /) -> float:
        """Return eta_t."""
        return self.eta


@dataclass(frozen=True)
class DelayAdaptive:
    """FADAS-DA's step size: eta while tau_max <= tau_c, and smaller beyond.

    Args:
        eta: The step size for fresh updates.
        tau_c: The largest delay that leaves the step size as it is.
        form: The step size beyond tau_c. "scaled": eta / tau_max, as in the paper's appendix and experiments.
            "capped": min(eta, 1 / tau_max), Eq. 3 of the main text, which is smaller than eta only if
            eta > 1 / tau_max.

    Example:
        >>> DelayAdaptive(0.01, tau_c=8)
    """

    eta: float
    tau_c: int
    form: Literal["scaled", "capped"] = "scaled"

    def __post_init__(self) -> None:
        positive(eta=self.eta)
        at_least(0, tau_c=self.tau_c)
        one_of(("scaled", "capped"), form=self.form)

    def __call__(self, step: ServerStep, /) -> float:
        """Return eta_t."""
        tau_max = max(step.delays)
        if tau_max <= self.tau_c:
            return self.eta
        return min(self.eta, (self.eta if self.form == "scaled" else 1.0) / tau_max)


@dataclass(frozen=True)
class ShareOfClients:
    """The share of all clients whose updates are in the step, M / n.

    If clients train alone, the server's model is then the average of their models.

    Example:
        >>> ShareOfClients()
    """

    def __call__(self, step: ServerStep, /) -> float:
        """Return eta_t."""
        return len(step.jobs) / step.clients


@dataclass(frozen=True)
class Hinge:
    """FedAsync's "hinge" step size: eta while tau_max <= b, then eta / (a (tau_max - b) + 1).

    Args:
        eta: The step size for fresh updates.
        a: How fast the step size falls beyond b.
        b: The largest delay that leaves the step size as it is.

    Example:
        >>> Hinge(eta=0.4, a=5, b=6)
    """

    eta: float = 0.6
    a: float = 10.0
    b: float = 4.0

    def __post_init__(self) -> None:
        positive(eta=self.eta, a=self.a)
        not_negative(b=self.b)

    def __call__(self, step: ServerStep, /) -> float:
        """Return eta_t."""
        late = max(step.delays) - self.b
        return self.eta if late <= 0 else self.eta / (self.a * late + 1)


@dataclass(frozen=True)
class Polynomial:
    """FedAsync's "polynomial" step size: eta (1 + tau_max)^-a.

    Args:
        eta: The step size for fresh updates.
        a: The exponent.

    Example:
        >>> Polynomial(eta=0.4, a=1.0)
    """

    eta: float = 0.6
    a: float = 0.5

    def __post_init__(self) -> None:
        positive(eta=self.eta, a=self.a)

    def __call__(self, step: ServerStep, /) -> float:
        """Return eta_t."""
        return self.eta * (1 + max(step.delays)) ** -self.a


@dataclass(frozen=True)
class Warmup:
    """Rises linearly over the first steps to the step size `then`, which it follows from there.

    Args:
        steps: The length of the warm-up. Step t has the factor (t + 1) / steps.
        then: The step size that is scaled. It may depend on the delays, or be a decay.

    Example:
        >>> Warmup(steps=20, then=DelayAdaptive(0.01, tau_c=8))
    """

    steps: int
    then: StepSize = Constant()

    def __post_init__(self) -> None:
        at_least(1, steps=self.steps)
        at_most(MOST_STEPS, steps=self.steps)

    def __call__(self, step: ServerStep, /) -> float:
        """Return eta_t."""
        return min(1.0, (step.index + 1) / self.steps) * self.then(step)


@dataclass(frozen=True)
class Cosine:
    """Falls along half a cosine from eta to floor * eta, and stays there.

    Args:
        steps: The length of the decay.
        eta: The step size at step 0.
        floor: The last step size, as a share of the first.
        then: Another step size. The two are multiplied. It may depend on the delays.

    Example:
        >>> Warmup(steps=20, then=Cosine(steps=500, eta=0.01))
        >>> Cosine(steps=500, eta=0.01, floor=0.1, then=DelayAdaptive(1.0, tau_c=8))
    """

    steps: int
    eta: float = 1.0
    floor: float = 0.0
    then: StepSize = Constant()

    def __post_init__(self) -> None:
        at_least(1, steps=self.steps)
        at_most(MOST_STEPS, steps=self.steps)
        positive(eta=self.eta)
        fraction(floor=self.floor)

    def __call__(self, step: ServerStep, /) -> float:
        """Return eta_t."""
        done = min(1.0, step.index / self.steps)
        factor = self.floor + (1 - self.floor) * (1 + math.cos(math.pi * done)) / 2
        return self.eta * factor * self.then(step)


@dataclass(frozen=True)
class InverseSqrt:
    """Keeps eta for the first steps, then falls as eta * sqrt(steps / t), with t counted from 1.

    Args:
        steps: How many steps keep the full step size.
        eta: The step size of these steps.
        then: Another step size. The two are multiplied. It may depend on the delays.

    Example:
        >>> InverseSqrt(steps=50, eta=0.01, then=DelayAdaptive(1.0, tau_c=8))
    """

    steps: int = 1
    eta: float = 1.0
    then: StepSize = Constant()

    def __post_init__(self) -> None:
        at_least(1, steps=self.steps)
        at_most(MOST_STEPS, steps=self.steps)
        positive(eta=self.eta)

    def __call__(self, step: ServerStep, /) -> float:
        """Return eta_t."""
        return self.eta * min(1.0, math.sqrt(self.steps / (step.index + 1))) * self.then(step)


STEP_SIZES: dict[str, Callable[..., StepSize]] = {
    "constant": Constant,
    "delay-adaptive": DelayAdaptive,
    "hinge": Hinge,
    "polynomial": Polynomial,
    "warmup": Warmup,
    "cosine": Cosine,
    "inverse-sqrt": InverseSqrt,
}
