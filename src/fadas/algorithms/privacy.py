"""Differential privacy for clients' updates: each update is clipped, and Gaussian noise is added to their mean.

A run's epsilon is that of the client that took part most. It claims no amplification by sampling, because in
asynchronous training the choice of the next client is not a secret draw. A client with k updates in one buffer moves
the sum by up to k clips, which costs as much as k * k steps.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec

import torch
from torch import Tensor

from fadas.core.ledger import Step
from fadas.core.model import ServerState, Update
from fadas.rng import NOISE, mix
from fadas.validate import positive


@dataclass(frozen=True)
class Private:
    """The mean of deltas clipped to length `clip`, plus Gaussian noise of standard deviation noise * clip / M.

    The guarantee (epsilon, delta) covers all data of a client. The noise is a function of the run's seed and the step.
    The package dp-accounting must be installed.

    Args:
        clip: The largest length of a delta. Longer deltas are scaled down.
        noise: The noise multiplier. More noise gives a smaller epsilon.
        delta: The delta of the guarantee. It is chosen, and epsilon follows from it.

    Example:
        >>> Algorithm(combine=Private(clip=1.0, noise=0.5, delta=1e-5))
    """

    clip: float = 1.0
    noise: float = 1.0
    delta: float = 1e-5

    def __post_init__(self) -> None:
        positive(clip=self.clip, noise=self.noise)
        if not 0 < self.delta < 1:
            raise ValueError(f"delta must be above 0 and below 1, got {self.delta}")
        if not find_spec("dp_accounting"):
            raise ValueError("differential privacy needs dp-accounting: pip install -e '.[privacy]' in a checkout")

    def __call__(
        self, state: ServerState, step: Step, updates: Sequence[Update], clients: int
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the noisy mean of the clipped deltas."""
        if updates[0].buffers.numel():
            raise ValueError(
                "differential privacy needs a model without buffers, because buffers such as BatchNorm's statistics "
                "would be sent without noise; use GroupNorm"
            )
        total = torch.zeros_like(state.model.params)
        for update in updates:
            length = float(update.delta.square().sum().sqrt())
            total.add_(update.delta, alpha=min(1.0, self.clip / max(length, 1e-30)))
        generator = torch.Generator().manual_seed(mix(step.seed, NOISE, step.index) >> 1)
        noise = torch.randn(total.shape, generator=generator, dtype=total.dtype).to(total)
        return total.add_(noise, alpha=self.noise * self.clip).div_(len(updates)), {}

    def accountant(self) -> "Spending":
        """Return a new accountant of the privacy that steps with this rule cost."""
        return Spending(self)


class Spending:
    """Counts what the steps so far have cost the client that took part most.

    Args:
        private: The combine rule of these steps.

    Example:
        >>> spending = Spending(Private())
        >>> spending.add([3, 5])
        >>> spending.spent
    """

    def __init__(self, private: Private) -> None:
        self._private = private
        self.counts: Counter[int] = Counter()  # by client: the sum over the steps of (updates in the step)^2

    def add(self, clients: Iterable[int]) -> None:
        """Count one step. `clients` names the client of each update in it."""
        for client, updates in Counter(clients).items():
            self.counts[client] += updates * updates

    def admit(self, client: int, waiting: Iterable[int], size: int) -> None:
        """Charge a newcomer as much as the client that spent most, because it may be that client under a new name.

        The updates to come may cost the same client even more. Suppose that p of them are of one client. In a step
        with q updates of the newcomer, they raise the cost from q^2 to (p + q)^2, which is at most 2 p * size more.

        Args:
            client: The newcomer.
            waiting: The client of each update to come.
            size: The number of updates in a step.
        """
        p = max(Counter(waiting).values(), default=0)
        self.counts[client] = max(self.counts.values(), default=0) + 2 * p * size

    @property
    def spent(self) -> dict[str, float]:
        """Epsilon and delta so far."""
        noise, delta = self._private.noise, self._private.delta
        return {"epsilon": epsilon(noise, delta, max(self.counts.values())), "delta": delta}


@cache
def epsilon(noise: float, delta: float, steps: int) -> float:
    """Return epsilon after `steps` releases with this noise multiplier, by Google's accountant (Renyi divergences)."""
    from dp_accounting import GaussianDpEvent  # pyright: ignore[reportMissingTypeStubs]
    from dp_accounting.rdp import RdpAccountant  # pyright: ignore[reportMissingTypeStubs]

    return float(RdpAccountant().compose(GaussianDpEvent(noise), steps).get_epsilon(delta))
