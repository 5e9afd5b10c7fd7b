"""Differential privacy for clients' updates: each update is clipped, and Gaussian noise is added to their mean.

A run's epsilon is that of the client that took part most. It claims no amplification by sampling, because in
asynchronous training the choice of the next client is not a secret draw. A client with k updates in one buffer moves
the sum by up to k clips, which costs as much as k * k steps.

Epsilon compares two runs that differ in one client: in one of them, all its updates are zero. This is the zero-out
relation. Other data of the same client may change an update by up to 2 * clip, twice as much: for that relation,
epsilon is what half the noise multiplier gives.
"""

import math
import os
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

_BLOCK = 1 << 20  # random numbers that are drawn at once


@dataclass(frozen=True)
class Private:
    """The mean of deltas clipped to length `clip`, plus Gaussian noise of standard deviation noise * clip / M.

    The guarantee (epsilon, delta) covers all data of a client. In a simulation the noise is a function of the run's
    seed and the step, so that the run can be repeated. A deployment draws it from the operating system's secure random
    source. The package dp-accounting must be installed.

    Args:
        clip: The largest length of a delta. Longer deltas are scaled down.
        noise: The noise multiplier. More noise gives a smaller epsilon.
        delta: The delta of the guarantee. It is chosen, and epsilon follows from it.

    Example:
        >>> Algorithm(combine=Private(clip=0.5, noise=2.0, delta=1e-6))
    """

    clip: float = 1.0
    noise: float = 1.0
    delta: float = 1e-5

    def __post_init__(self) -> None:
        positive(clip=self.clip, noise=self.noise)
        if not 0 < self.delta < 1:
            raise ValueError(f"delta must be above 0 and below 1, got {self.delta}")
        if not find_spec("dp_accounting"):
            raise ValueError("differential privacy needs dp-accounting: pip install '.[privacy]' in a checkout")

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
        noise = self.draw(step, total)
        return total.add_(noise, alpha=self.noise * self.clip).div_(len(updates)), {}

    def draw(self, step: Step, like: Tensor) -> Tensor:
        """Return the step's standard normal numbers, a function of the run's seed and the step's index."""
        generator = torch.Generator().manual_seed(mix(step.seed, NOISE, step.index) >> 1)
        return torch.randn(like.shape, generator=generator, dtype=like.dtype).to(like)

    def deployed(self) -> "SecurePrivate":
        """Return the rule as deployments use it."""
        return SecurePrivate(self.clip, self.noise, self.delta)

    def accountant(self) -> "Spending":
        """Return a new accountant of the privacy that steps with this rule cost."""
        return Spending(self)


@dataclass(frozen=True)
class SecurePrivate(Private):
    """`Private` for deployments: nobody can compute the noise, and no step has the noise of another.

    Example:
        >>> Private(clip=1.0, noise=0.5).deployed()
    """

    def draw(self, step: Step, like: Tensor) -> Tensor:
        """Return standard normal numbers from the operating system's secure random source."""
        return secure_normal(like.numel()).to(like).view_as(like)


def secure_normal(size: int) -> Tensor:
    """Return standard normal numbers from the operating system's secure random source.

    A seeded generator would not do. torch's has a state of 32 bits after seeding, and a node could try them all.

    Args:
        size: How many numbers.
    """
    pieces = [_secure_normal(min(_BLOCK, size - begin)) for begin in range(0, size, _BLOCK)]
    return torch.cat(pieces) if pieces else torch.zeros(0)


def _secure_normal(size: int) -> Tensor:
    words = torch.frombuffer(bytearray(os.urandom(8 * size)), dtype=torch.int64)
    uniform = ((words & (2**52 - 1)).double() + 0.5) / 2**52  # above 0 and below 1, without rounding
    return torch.erfinv(2 * uniform - 1).mul_(math.sqrt(2)).float()


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

    def add_unknown(self, waiting: Iterable[int]) -> None:
        """Count a step that may have been released: of the clients that wait, and one more that nobody knows.

        It is charged to every client as if that client had sent the unknown update too.

        Args:
            waiting: The client of each update that was in the buffer.
        """
        updates = Counter(waiting)
        for client in {*self.counts, *updates}:
            self.counts[client] += (updates[client] + 1) ** 2

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
