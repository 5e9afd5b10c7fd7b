"""Combine rules: the M updates of a step -> the pseudo-gradient."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from fadas.algorithms.privacy import Private
from fadas.algorithms.robust import Clipped, Median, Trimmed
from fadas.core.ledger import Step
from fadas.core.model import ServerState, Update

Combined = tuple[Tensor, Mapping[str, Tensor]]  # the pseudo-gradient, and the slots that changed


class Combine(Protocol):
    """A rule that combines the M updates of a step into one pseudo-gradient.

    The pseudo-gradient has the sign of a delta (trained minus start), so the optimizer adds it.

    Example:
        >>> @dataclass(frozen=True)
        ... class FreshestOnly:
        ...     def __call__(self, state, step, updates, clients):
        ...         tau_min = min(step.delays)
        ...         return mean([u.delta for u, tau in zip(updates, step.delays) if tau == tau_min]), {}
    """

    def __call__(self, state: ServerState, step: Step, updates: Sequence[Update], clients: int) -> Combined:
        """Return the pseudo-gradient, and the slots that changed. Write to no argument.

        Args:
            state: The server's state before the step.
            step: The step's index, jobs and delays.
            updates: The M updates, in the order of the jobs.
            clients: The number of clients in the federation.
        """
        ...


def weighted_sum(tensors: Sequence[Tensor], weights: Sequence[float]) -> Tensor:
    """Return the weighted sum. It is added up in the order given and needs one vector of memory, whatever M is."""
    total = torch.zeros_like(tensors[0])
    for tensor, weight in zip(tensors, weights, strict=True):
        total.add_(tensor, alpha=weight)
    return total


def mean(tensors: Sequence[Tensor]) -> Tensor:
    """Return the mean, added up in the order given."""
    return weighted_sum(tensors, [1.0] * len(tensors)).div_(len(tensors))


@dataclass(frozen=True)
class Mean:
    """The mean of the M deltas.

    Example:
        >>> Algorithm(combine=Mean())
    """

    def __call__(self, state: ServerState, step: Step, updates: Sequence[Update], clients: int) -> Combined:
        """Return the mean of the deltas."""
        return mean([update.delta for update in updates]), {}


@dataclass(frozen=True)
class ExampleWeighted:
    """The mean of the M deltas, weighted by each client's number of examples.

    Example:
        >>> Algorithm(combine=ExampleWeighted())
    """

    def __call__(self, state: ServerState, step: Step, updates: Sequence[Update], clients: int) -> Combined:
        """Return the weighted mean of the deltas."""
        total = sum(update.examples for update in updates)
        return weighted_sum([u.delta for u in updates], [u.examples / total for u in updates]), {}


@dataclass(frozen=True)
class StalenessWeighted:
    """FedBuff's scaling: the sum of the M deltas, each with the weight 1/sqrt(1 + tau), divided by M.

    Args:
        normalize: Divide by the sum of the weights instead of M.

    Example:
        >>> Algorithm(combine=StalenessWeighted(normalize=True))
    """

    normalize: bool = False

    def __call__(self, state: ServerState, step: Step, updates: Sequence[Update], clients: int) -> Combined:
        """Return the scaled sum of the deltas."""
        weights = [1 / math.sqrt(1 + tau) for tau in step.delays]
        scale = sum(weights) if self.normalize else len(weights)
        return weighted_sum([u.delta for u in updates], weights).div_(scale), {}


@dataclass(frozen=True)
class Normalized:
    """FedNova: the mean of the deltas per local step, times the mean number of steps.

    Clients that take more steps have longer deltas. This rule gives each client the same weight per step. It needs the
    companion `StepCount`.

    Args:
        examples: Weight each client by its number of examples. False: all clients of the step weigh the same.

    Example:
        >>> Algorithm(combine=Normalized(examples=True), companion=StepCount())
    """

    needs: ClassVar[tuple[str, ...]] = ("steps",)  # vectors or numbers that clients return
    examples: bool = False

    def __call__(self, state: ServerState, step: Step, updates: Sequence[Update], clients: int) -> Combined:
        """Return the normalized mean of the deltas."""
        steps = [float(update.vectors.get("steps", 1.0)) for update in updates]
        weights = [float(update.examples) if self.examples else 1.0 for update in updates]
        total = sum(weights)
        mean_steps = sum(w * k for w, k in zip(weights, steps)) / total
        scales = [w / total * mean_steps / k for w, k in zip(weights, steps)]
        return weighted_sum([u.delta for u in updates], scales), {}


@dataclass(frozen=True)
class Mixing:
    """FedAsync: the mean of the clients' trained models, minus x_t.

    A step of size alpha then gives (1 - alpha) x_t + alpha * mean.

    Example:
        >>> Algorithm(combine=Mixing(), step_size=Constant(0.6))
    """

    def __call__(self, state: ServerState, step: Step, updates: Sequence[Update], clients: int) -> Combined:
        """Return the mean of the trained models, minus x_t."""
        return mean([update.base + update.delta for update in updates]).sub_(state.model.params), {}


@dataclass(frozen=True)
class Calibrated:
    """CA2FL: the mean of all clients' last updates, corrected by the M new ones.

    h_i is the last update of client i, or zero until that client reports. h is the mean of h_i over all N clients. The
    pseudo-gradient is h + mean(delta_i - h_i), where the mean is over the M updates.

    If a client reports twice within a step, both updates are compared to the same h_i, and the later one becomes the
    new h_i. The server keeps one vector of the model's size for every client that has reported.

    Example:
        >>> Algorithm(combine=Calibrated())
    """

    # The slots hold each h_i, and the sum of all h_i instead of their mean, because N grows in a deployment.

    def __call__(self, state: ServerState, step: Step, updates: Sequence[Update], clients: int) -> Combined:
        """Return the pseudo-gradient, and the slots of the clients that reported."""
        total = state.slots.get("h.sum")
        if total is None:
            total = torch.zeros_like(state.model.params)
        slots: dict[str, Tensor] = {}
        change = torch.zeros_like(total)  # the sum of delta_i - h_i
        for update in updates:
            name = f"h.{update.job.client}"
            change.add_(update.delta)
            if name in state.slots:
                change.sub_(state.slots[name])
            slots[name] = update.delta
        combined = change.div_(len(updates)).add_(total, alpha=1 / clients)
        total = total.clone()
        for name, delta in slots.items():
            total.add_(delta)
            if name in state.slots:
                total.sub_(state.slots[name])
        slots["h.sum"] = total
        return combined, slots


COMBINES: dict[str, Callable[..., Combine]] = {
    "mean": Mean,
    "examples": ExampleWeighted,
    "staleness": StalenessWeighted,
    "normalized": Normalized,
    "mixing": Mixing,
    "calibrated": Calibrated,
    "median": Median,
    "trimmed": Trimmed,
    "clipped": Clipped,
    "private": Private,
}
