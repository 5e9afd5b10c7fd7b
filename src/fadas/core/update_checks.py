"""The checks that an update must pass before the server accepts it, in simulations and deployments."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from fadas.core.model import NOTHING, Exchange, Model, Update
from fadas.core.recent_updates import RecentUpdates
from fadas.core.records import LATEST
from fadas.validate import at_least, not_negative, one_of, positive

TOO_LONG = "norm above bound"


@dataclass(frozen=True)
class Checks:
    """The checks that an update must pass: shape, type, finite numbers, at least one example, and the bounds below.

    The two checks with a factor compare an update with the median over the last updates of recent clients. The vectors
    that travel beside a delta pass the same checks, and their norms are compared with those of the same name.

    Args:
        norm: The largest norm that a delta may have. None: no limit.
        excess: What to do with a longer delta: "refuse" the update, or "clip" the delta to the bound.
        norm_factor: The largest norm of a delta, as a multiple of the median norm of recent deltas. It acts as soon as
            three clients have reported. Numbers beside a delta may be this many times smaller or larger than their
            median. 0: no limit. None: no limit in simulations, 20 in deployments.
        examples: The largest number of examples that counts. A client that claims more weighs no more. None: no limit.
        examples_factor: The same limit, as a multiple of the median claim of recent clients. 0: no limit. None: no
            limit in simulations, 10 in deployments that weigh clients by examples.

    Example:
        >>> Checks(norm=10.0, excess="clip")
        >>> Checks(norm_factor=20.0, examples=10_000, examples_factor=10.0)
    """

    norm: float | None = None
    excess: Literal["refuse", "clip"] = "refuse"
    norm_factor: float | None = None
    examples: int | None = None
    examples_factor: float | None = None

    def __post_init__(self) -> None:
        if self.norm is not None:
            positive(norm=self.norm)
        one_of(("refuse", "clip"), excess=self.excess)
        not_negative(norm_factor=self.norm_factor or 0, examples_factor=self.examples_factor or 0)
        at_least(1, examples=self.examples)

    def __call__(self, update: Update, model: Model, exchange: Exchange = NOTHING) -> tuple[Update, str | None]:
        """Return the update to accept, and why to refuse it (None: accept it). These checks need no other updates.

        Args:
            update: The update.
            model: The current model.
            exchange: What must come beside the delta. Anything else is removed.
        """
        problem = _describe_misfit(update.delta, model.params) or _describe_misfit(update.buffers, model.buffers)
        if not problem and not (all_finite(update.delta) and all_finite(update.buffers, model.buffers)):
            problem = "not finite"
        if not problem and (update.vectors or not exchange.is_empty):
            update, problem = _check_vectors(update, model, exchange)
        if problem:
            return update, problem
        if not update.examples > 0:
            return update, "no examples"
        if update.examples >= LATEST:
            return update, "not finite"
        if update.delta.requires_grad:  # else the server's state would keep the client's graph
            update = replace(update, delta=update.delta.detach())
        return (update, None) if self.norm is None else self.limit(update, None, self.norm)

    @property
    def are_relative(self) -> bool:
        """Whether updates are compared with recent ones."""
        return bool(self.norm_factor or self.examples_factor)

    def bound(self, recent: RecentUpdates) -> float | None:
        """Return the largest norm that recent updates allow. None: no limit, or too few updates to compare with."""
        length = recent.length if self.norm_factor else None
        return None if length is None or not self.norm_factor else self.norm_factor * length

    def limit(self, update: Update, length: float | None, bound: float | None) -> tuple[Update, str | None]:
        """Return the update, clipped if its delta is too long, and why to refuse it.

        Args:
            update: The update.
            length: The norm of its delta. None: it is computed here.
            bound: The largest norm. None: no limit.
        """
        if bound is None:
            return update, None
        length = norm(update.delta) if length is None else length
        if length <= bound:
            return update, None
        if self.excess == "refuse":
            return update, TOO_LONG
        return replace(update, delta=update.delta * (bound / length)), None

    def limit_vectors(
        self, update: Update, exchange: Exchange, recent: Mapping[str, RecentUpdates]
    ) -> tuple[Update, str | None]:
        """Return the update, with vectors clipped that are too long, and why to refuse it. Numbers are never clipped.

        Args:
            update: The update.
            exchange: What comes beside the delta.
            recent: Recent lengths by name, as `vector_lengths` names them.
        """
        vectors = dict(update.vectors)
        for name, length in vector_lengths(update, exchange).items() if recent else ():
            bound = self.bound(recent[name])
            if bound is None or length <= bound:
                continue
            if self.excess == "refuse" or name not in exchange.returns:
                return update, TOO_LONG
            vectors[name] = vectors[name] * (bound / length) ** (2 if name in exchange.squares else 1)
        return replace(update, vectors=vectors) if vectors else update, None

    def cap_examples(self, updates: Sequence[Update], recent: RecentUpdates) -> Sequence[Update]:
        """Return the updates of a step. Claims of too many examples are reduced to what may count."""
        median = recent.examples if self.examples_factor else None
        caps = [self.examples, float(self.examples_factor) * median if self.examples_factor and median else None]
        if not (limits := [cap for cap in caps if cap is not None]):
            return updates
        most = max(1, int(min(limits)))
        return [update if update.examples <= most else replace(update, examples=most) for update in updates]


def _describe_misfit(given: object, expected: Tensor) -> str | None:
    """Return what is wrong with a tensor. A deployment's clients are not type-checked."""
    if not isinstance(given, Tensor) or given.layout != torch.strided or given.is_meta or given.is_nested:
        return "not a dense tensor"
    if given.shape != expected.shape:
        return "wrong shape"
    return "wrong dtype" if given.dtype != expected.dtype else None


def _check_vectors(update: Update, model: Model, exchange: Exchange) -> tuple[Update, str | None]:
    """Return the update with the vectors of the exchange alone, and what is wrong with them."""
    names = (*exchange.returns, *exchange.numbers)
    if any(name not in update.vectors for name in names):
        return update, "vector missing"
    vectors = {name: update.vectors[name] for name in names}
    for name, vector in vectors.items():
        like = model.params if name in exchange.returns else model.params.new_empty(())
        if problem := _describe_misfit(vector, like):
            return update, problem
        if not all_finite(vector):
            return update, "not finite"
        if name in exchange.numbers and not vector > 0:
            return update, "not positive"
        if name in exchange.squares and bool((vector < 0).any()):  # clients would take its root
            return update, "negative square"
    return replace(update, vectors={name: vector.detach() for name, vector in vectors.items()}), None


def norm(delta: Tensor) -> float:
    """Return the Euclidean norm of a finite vector, also where its square overflows."""
    length = float(delta.square().sum().sqrt())
    return length if math.isfinite(length) else math.sqrt(float(delta.double().square().sum()))


def vector_lengths(update: Update, exchange: Exchange) -> dict[str, float]:
    """Return the lengths of what came beside the delta. A number counts twice, so that small ones stand out too."""
    lengths = {name: norm(update.vectors[name]) for name in exchange.returns}
    lengths |= {name: lengths[name] ** 0.5 for name in exchange.squares}
    for name in exchange.numbers:
        number = float(update.vectors[name])
        lengths |= {name: number, f"1 / {name}": 1 / number}
    return lengths


def all_finite(tensor: Tensor, like: Tensor | None = None) -> bool:
    """Return whether all elements are finite. Elements equal to those of `like` (a mask's infinities) are ignored.

    One pass is enough, because a sum with a non-finite term is not finite. A sum of finite numbers that overflows
    also counts as not finite.
    """
    if not tensor.numel() or math.isfinite(float(tensor.sum())):
        return True
    return like is not None and math.isfinite(float(tensor.where(tensor != like, 0.0).sum()))
