"""Differential privacy for clients' updates: each is clipped, and Gaussian noise goes onto their mean.

The privacy that a run has spent is that of the client that took part most: no amplification by sampling is claimed,
because who trains next is not a secret draw in asynchronous training. A client that is k times in one buffer moves the
sum by up to k clips, which costs as much as k * k steps.
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


@dataclass(frozen=True)
class Private:
    """The mean of deltas clipped to length `clip`, plus Gaussian noise of standard deviation noise * clip / M.

    The guarantee (epsilon, `delta`) is for all of a client's data. The noise follows from the run's seed and the step.
    """

    clip: float = 1.0
    noise: float = 1.0
    delta: float = 1e-5

    def __post_init__(self) -> None:
        if not self.clip > 0 or not self.noise > 0:
            raise ValueError(f"clip and noise must be positive, not {self.clip} and {self.noise}")
        if not 0 < self.delta < 1:
            raise ValueError(f"delta must lie between 0 and 1, not {self.delta}")
        if not find_spec("dp_accounting"):
            raise ValueError("differential privacy needs the extra: pip install -e '.[privacy]' in a checkout")

    def __call__(
        self, state: ServerState, step: Step, updates: Sequence[Update], clients: int
    ) -> tuple[Tensor, dict[str, Tensor]]:
        if updates[0].buffers.numel():
            raise ValueError("buffers such as BatchNorm's statistics would travel without noise; use GroupNorm")
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
    """What the steps so far have cost the client that took part most."""

    def __init__(self, private: Private) -> None:
        self._private = private
        self.counts: Counter[int] = Counter()  # by client: its updates, those in one buffer squared

    def add(self, clients: Iterable[int]) -> None:
        """One step, by the clients whose updates were in it."""
        for client, times in Counter(clients).items():
            self.counts[client] += times * times

    def admit(self, client: int, waiting: Iterable[int], size: int) -> None:
        """A newcomer may be any client so far under a new name: it is charged as much as whoever spent most.

        To this may come what `waiting`, the clients of updates to come, will cost: p of one client make a step with q
        of the newcomer's, of `size` in all, dearer by (p + q)^2 - q^2, which is at most 2 p * size.
        """
        p = max(Counter(waiting).values(), default=0)
        self.counts[client] = max(self.counts.values(), default=0) + 2 * p * size

    @property
    def spent(self) -> dict[str, float]:
        noise, delta = self._private.noise, self._private.delta
        return {"epsilon": epsilon(noise, delta, max(self.counts.values())), "delta": delta}


@cache
def epsilon(noise: float, delta: float, steps: int) -> float:
    """Epsilon of that many releases with this noise multiplier, by Google's accountant (Renyi divergences)."""
    from dp_accounting import GaussianDpEvent  # pyright: ignore[reportMissingTypeStubs]
    from dp_accounting.rdp import RdpAccountant  # pyright: ignore[reportMissingTypeStubs]

    return float(RdpAccountant().compose(GaussianDpEvent(noise), steps).get_epsilon(delta))
