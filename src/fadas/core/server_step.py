"""A server step as a pure function: take the step, check that it is finite, and find the updates that spoil it.

`UpdateRule` and `Accountant` are what this needs of an algorithm.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, Self

from torch import Tensor

from fadas.core.ledger import Step
from fadas.core.model import Exchange, ServerState, ServerStep, Update
from fadas.core.update_checks import all_finite, norm

MOMENTS = ("m", "v", "vhat", "h.sum")  # slots that must stay finite


class Accountant(Protocol):
    """Counts the privacy loss (epsilon, delta) of the steps so far.

    Example:
        >>> accountant = Algorithm(combine=Private()).accountant()
        >>> accountant.add([3, 5])
        >>> accountant.spent["epsilon"]
    """

    counts: Counter[int]

    @property
    def spent(self) -> dict[str, float]:
        """Epsilon and delta so far."""
        ...

    def add(self, clients: Iterable[int]) -> None:
        """Count one step.

        Args:
            clients: The client of each update in it.
        """
        ...

    def admit(self, client: int, waiting: Iterable[int], size: int) -> None:
        """Charge a newcomer, which may be an earlier client under a new name.

        Args:
            client: The newcomer.
            waiting: The client of each update that is not counted yet.
            size: The number of updates in a step.
        """
        ...

    def add_unknown(self, waiting: Iterable[int]) -> None:
        """Count a step that may have been released.

        Args:
            waiting: The client of each known update in it. One more update is of an unknown client.
        """
        ...


class UpdateRule(Protocol):
    """What the server needs of an algorithm: these methods and `exchange`. `fadas.Algorithm` has them.

    Attributes:
        exchange: What travels beside models and deltas.

    Example:
        >>> server = Server(fadas.FADAS(), ledger, model)  # any object with these methods will do
    """

    def step_size(self, step: ServerStep, /) -> float:
        """Return eta_t, the size of a step.

        Args:
            step: The step, before it is taken.
        """
        ...

    def apply(self, state: ServerState, step: Step, updates: Sequence[Update], clients: int, eta: float) -> ServerState:
        """Return the state after a step. Write to no argument.

        Args:
            state: The state before the step.
            step: The step's index and jobs.
            updates: The M updates, in the order of the jobs.
            clients: The number of clients in the federation.
            eta: The step size.
        """
        ...

    @property
    def exchange(self) -> Exchange:
        """What travels beside models and deltas."""
        ...

    def accountant(self) -> Accountant | None:
        """Return a new accountant, if the algorithm is differentially private."""
        ...

    def rules(self) -> dict[str, Any]:
        """Return the rules of arithmetic that a checkpoint must keep, so that a resumed run computes as before."""
        ...

    def with_rules(self, rules: Mapping[str, Any]) -> Self:
        """Return the algorithm with the rules of a checkpoint.

        Args:
            rules: What `rules` returned when the checkpoint was written.
        """
        ...


class Taken(NamedTuple):
    """A server step that was computed.

    Attributes:
        state: The state after it.
        eta: The step size that was used.
    """

    state: ServerState
    eta: float


def take_step(rule: UpdateRule, before: ServerState, step: Step, updates: Sequence[Update], clients: int) -> Taken:
    """Lines 9 to 16: x_t -> x_{t+1}."""
    seen = ServerStep(step.index, step.jobs, tuple(step.delays), step.seed, before, updates, clients)
    eta = float(rule.step_size(seen))  # lines 11 to 15
    return Taken(rule.apply(before, step, updates, clients, eta), eta)  # lines 9, 10 and 16


def describe_not_finite(before: ServerState, after: ServerState) -> str | None:
    """Return the name of the part that is no longer finite, or None.

    The moments are checked too: an optimizer whose moments hold the square of a huge update would never move again.
    """
    if not (all_finite(after.model.params) and all_finite(after.model.buffers, before.model.buffers)):
        return "a model"
    if not all(all_finite(vector) for vector in after.model.vectors.values()):
        return "a vector for the clients"
    changed = {name: slot for name, slot in after.slots.items() if slot is not before.slots.get(name)}
    finite = all(_stays_finite(name, slot, before.slots.get(name)) for name, slot in changed.items())
    return None if finite else "an optimizer's memory"


def _stays_finite(name: str, slot: Tensor, before: Tensor | None) -> bool:
    """Return False if a slot holds new infinities. Those that a user's part begins with are allowed."""
    if name.startswith("h.") and name != "h.sum":  # CA2FL's cache holds accepted deltas
        return True
    if not slot.is_floating_point() or all_finite(slot):
        return True
    must_be_finite = name in MOMENTS or name.startswith("torch.")
    return not must_be_finite and (before is None or not all_finite(before))


def find_culprits(
    rule: UpdateRule, before: ServerState, step: Step, updates: Sequence[Update], clients: int
) -> list[Update]:
    """Return the updates that spoil a step: a step of M copies of such an update is not finite either.

    If no update does that alone, it is the longest one.
    """

    def is_culprit(update: Update) -> bool:
        copies = Step(step.index, (update.job,) * len(updates), step.seed)
        after = take_step(rule, before, copies, [update] * len(updates), clients).state
        return describe_not_finite(before, after) is not None

    return [update for update in updates if is_culprit(update)] or [max(updates, key=_length)]


def _length(update: Update) -> float:
    return math.hypot(*(norm(vector.double()) for vector in (update.delta, *update.vectors.values())))
