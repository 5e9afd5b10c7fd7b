"""Combine rules: the M updates of a step -> the pseudo-gradient."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from fadas.algorithms.privacy import Private
from fadas.algorithms.robust import Clipped, Median, Trimmed
from fadas.core.ledger import Step
from fadas.core.model import ServerState, Update

Combined = tuple[Tensor, Mapping[str, Tensor]]  # the pseudo-gradient, and the slots that changed


class Combine(Protocol):
    def __call__(self, state: ServerState, step: Step, updates: Sequence[Update], clients: int) -> Combined: ...


def weighted_sum(tensors: Sequence[Tensor], weights: Sequence[float]) -> Tensor:
    """Weighted sum in order of arrival, one vector of memory whatever M is."""
    total = torch.zeros_like(tensors[0])
    for tensor, weight in zip(tensors, weights, strict=True):
        total.add_(tensor, alpha=weight)
    return total


def mean(tensors: Sequence[Tensor]) -> Tensor:
    return weighted_sum(tensors, [1.0] * len(tensors)).div_(len(tensors))


@dataclass(frozen=True)
class Mean:
    """The uniform mean of the M deltas."""

    def __call__(self, state: ServerState, step: Step, updates: Sequence[Update], clients: int) -> Combined:
        return mean([update.delta for update in updates]), {}


@dataclass(frozen=True)
class ExampleWeighted:
    """The mean weighted by each client's number of examples."""

    def __call__(self, state: ServerState, step: Step, updates: Sequence[Update], clients: int) -> Combined:
        total = sum(update.examples for update in updates)
        return weighted_sum([u.delta for u in updates], [u.examples / total for u in updates]), {}


@dataclass(frozen=True)
class StalenessWeighted:
    """FedBuff's scaling: each delta times 1/sqrt(1 + tau), divided by M; `normalize` divides by the weights' sum."""

    normalize: bool = False

    def __call__(self, state: ServerState, step: Step, updates: Sequence[Update], clients: int) -> Combined:
        weights = [1 / math.sqrt(1 + tau) for tau in step.delays]
        scale = sum(weights) if self.normalize else len(weights)
        return weighted_sum([u.delta for u in updates], weights).div_(scale), {}


@dataclass(frozen=True)
class Mixing:
    """FedAsync: the way from x_t to the mean of the clients' trained models, so a step of alpha mixes them in."""

    def __call__(self, state: ServerState, step: Step, updates: Sequence[Update], clients: int) -> Combined:
        return mean([update.base + update.delta for update in updates]).sub_(state.model.params), {}


@dataclass(frozen=True)
class Calibrated:
    """CA2FL: the mean of all clients' last known updates, plus the mean news of the M clients that reported.

    h_i is the last update of client i (zero until it reports) and h their mean over all N clients; the pseudo-gradient
    is h + mean(delta_i - h_i). A client that reports twice within a step is compared to the same h_i both times; its
    later update is the one remembered. What is kept of h is the sum: in a deployment N grows.
    """

    def __call__(self, state: ServerState, step: Step, updates: Sequence[Update], clients: int) -> Combined:
        total = state.slots.get("h.sum")
        if total is None:
            total = torch.zeros_like(state.model.params)
        slots: dict[str, Tensor] = {}
        news = torch.zeros_like(total)
        for update in updates:
            name = f"h.{update.job.client}"
            news.add_(update.delta)
            if name in state.slots:
                news.sub_(state.slots[name])
            slots[name] = update.delta
        combined = news.div_(len(updates)).add_(total, alpha=1 / clients)
        total = total.clone()
        for name, cached in slots.items():
            total.add_(cached)
            if name in state.slots:
                total.sub_(state.slots[name])
        slots["h.sum"] = total
        return combined, slots


COMBINES: dict[str, Callable[..., Combine]] = {
    "mean": Mean,
    "examples": ExampleWeighted,
    "staleness": StalenessWeighted,
    "mixing": Mixing,
    "calibrated": Calibrated,
    "median": Median,
    "trimmed": Trimmed,
    "clipped": Clipped,
    "private": Private,
}
