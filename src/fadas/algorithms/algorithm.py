"""An algorithm as a composition: combine M updates, choose a step size, take an optimizer step."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, Literal, Self, TypeVar

import torch
from torch import Tensor

from fadas.algorithms.combine import Combine, Mean, Mixing, mean
from fadas.algorithms.companions import Companion, Trainer
from fadas.algorithms.optimizers import SGD, Optimizer
from fadas.algorithms.privacy import Private
from fadas.algorithms.step_sizes import Constant, StepSize
from fadas.core.ledger import Refill, Schedule, Step
from fadas.core.model import NOTHING, Exchange, Model, ServerState, ServerStep, Update
from fadas.core.server_step import Accountant
from fadas.errors import ConfigError
from fadas.validate import InvalidValue, one_of

_Local = TypeVar("_Local", bound=Trainer)


@dataclass(frozen=True)
class Algorithm:
    """What the server does with M updates: a combine rule, an optimizer and a step size, with a schedule.

    Args:
        combine: Combines the M updates into one pseudo-gradient.
        optimizer: Computes the next model from the model, the pseudo-gradient and the step size.
        step_size: Computes the step size eta_t of each server step.
        refill: When a freed slot goes to the next idle client. See `fadas.Schedule`.
        buffer: The method's own M, if it has one (FedAsync: 1). None: the experiment's M or, with `refill = "round"`,
            M_c.
        statistics: The weight of a step's BatchNorm statistics in a running average, above 0 and at most 1. 1 replaces
            the statistics by the mean over the step's clients. None: the step size for the combine rule "mixing",
            else 1. Only evaluation uses the global statistics.
        companion: What the method adds to local training, such as SCAFFOLD's control variates. None: nothing.
        baseline: Not federated learning, but a baseline for it. "centralised": all data in one place, one job at a
            time. "local-only": every client trains alone. None: federated learning.

    Example:
        >>> Algorithm(combine=StalenessWeighted(), optimizer=AMSGrad(), step_size=DelayAdaptive(0.01, tau_c=8))
        >>> Algorithm(refill="update", buffer=1, statistics=0.2)
        >>> Algorithm(optimizer=AMSGrad(), step_size=Constant(0.01), companion=ControlVariates())
        >>> Algorithm(baseline="centralised")
    """

    combine: Combine = Mean()
    optimizer: Optimizer = SGD()
    step_size: StepSize = Constant()
    refill: Refill = "arrival"
    buffer: int | None = None
    statistics: float | None = None
    companion: Companion | None = None
    baseline: Literal["centralised", "local-only"] | None = None

    def __post_init__(self) -> None:
        if self.statistics is not None and not 0 < self.statistics <= 1:
            raise InvalidValue("statistics", f"must be above 0 and at most 1, got {self.statistics}")
        if self.companion is not None and not isinstance(self.companion, Companion):  # pyright: ignore
            raise InvalidValue("companion", f"must be a Companion, got a {type(self.companion).__name__}")
        returned = {*self.exchange.returns, *self.exchange.numbers}
        if missing := set(getattr(self.combine, "needs", ())) - returned:
            name = type(self.combine).__name__
            raise InvalidValue("combine", f"{name} needs a companion whose clients return {min(missing)!r}")
        if self.baseline is not None:
            one_of(("centralised", "local-only"), baseline=self.baseline)
        if self.baseline is not None and self.companion is not None:
            raise InvalidValue("companion", f'has no meaning for the baseline "{self.baseline}", which has no server')
        if isinstance(self.combine, Private) and returned:
            name = type(self.companion).__name__
            problem = f'{name} returns vectors, which the combine rule "private" does not protect'
            raise InvalidValue("companion", problem)

    @property
    def exchange(self) -> Exchange:
        """What travels beside models and deltas."""
        one = self.companion
        return Exchange(one.receives, one.returns, one.numbers, one.squares) if one else NOTHING

    def local_training(self, local: _Local) -> _Local:
        """Return local training as this method does it: with its companion, if it has one.

        Args:
            local: What a client does with a job.

        Raises:
            ConfigError: The method does not go with this local training.

        Example:
            >>> SCAFFOLD().local_training(LocalSGD(lr=0.1))
        """
        return self.companion.adapt(local) if self.companion else local

    @property
    def is_timeless(self) -> bool:
        """Whether virtual time means nothing: centralised training waits for no clients."""
        return self.baseline == "centralised"

    @property
    def effective_statistics(self) -> float | None:
        """The weight of a step's BatchNorm statistics in a running average. None: the step size."""
        return 1.0 if self.statistics is None and not isinstance(self.combine, Mixing) else self.statistics

    def schedule(self, concurrency: int, buffer: int) -> Schedule:
        """Return the method's schedule in an experiment with this M_c and M.

        Args:
            concurrency: M_c, the number of clients that train at the same time.
            buffer: M, the number of updates per server step. Ignored by methods with an M of their own.

        Example:
            >>> FADAS().schedule(concurrency=25, buffer=5)
        """
        if self.baseline == "centralised":
            return Schedule(1, 1, "round")
        return Schedule(concurrency, self.buffer or (concurrency if self.refill == "round" else buffer), self.refill)

    def apply(
        self, state: ServerState, step: Step, updates: Sequence[Update], clients: int, eta: float | None = None
    ) -> ServerState:
        """Take a server step: lines 9 to 16 of Algorithm 1. No argument is changed.

        Args:
            state: The state before the step.
            step: The step's index and jobs.
            updates: The M updates, in the order of the jobs.
            clients: The number of clients in the federation.
            eta: The step size. None: ask `step_size`.

        Returns:
            The state after the step.
        """
        if eta is None:
            seen = ServerStep(step.index, step.jobs, tuple(step.delays), step.seed, state, updates, clients)
            eta = float(self.step_size(seen))  # lines 11 to 15
        delta, combined = self.combine(state, step, updates, clients)  # line 9
        x, moments = self.optimizer.apply(state.model.params, delta, state.slots, eta)  # lines 10 and 16
        absorbed = self.companion.absorb(state, updates, clients) if self.companion else {}
        if clash := (combined.keys() & moments.keys()) | (absorbed.keys() & {*combined, *moments}):
            raise ConfigError(f"two parts of the algorithm both use the slot {min(clash)!r}; rename one")
        slots = {**state.slots, **combined, **moments, **absorbed}
        if unmade := set(self.exchange.sends) - slots.keys():
            raise ConfigError(f"{type(self.companion).__name__} sends the slot {min(unmade)!r}, which no part makes")
        buffers = self._average_statistics(state.model.buffers, [update.buffers for update in updates], eta)
        x = Model(x, buffers, self.exchange.sent(state.model, slots))
        return ServerState(state.version + 1, x, slots)

    def _average_statistics(self, before: Tensor, given: Sequence[Tensor], eta: float) -> Tensor:
        """BatchNorm's statistics are no parameters: they are averaged, and never pass through the optimizer."""
        if not before.numel():
            return before
        # Rounding may move the mean of equal numbers. The clamp keeps frozen statistics where they are.
        now = mean(given).clamp_(reduce(torch.minimum, given), reduce(torch.maximum, given))
        rule = self.effective_statistics
        weight = min(eta, 1.0) if rule is None else rule
        if weight == 1:
            return now
        return torch.lerp(before, now, weight).where(now != before, before)  # infinities of a mask stay

    def accountant(self) -> Accountant | None:
        """Return a new accountant if the combine rule is differentially private."""
        return self.combine.accountant() if isinstance(self.combine, Private) else None

    def deployed(self) -> Self:
        """Return the algorithm as deployments use it: with noise from a secure source, if it is private.

        Raises:
            ConfigError: It is a baseline, which needs all data, or all models, in one place.
        """
        if self.baseline is not None:
            raise ConfigError(f'the baseline "{self.baseline}" runs in simulations only')
        return replace(self, combine=self.combine.deployed()) if isinstance(self.combine, Private) else self

    def rules(self) -> dict[str, Any]:
        """Return what a checkpoint must keep of the arithmetic."""
        return {"statistics": self.statistics}

    def with_rules(self, rules: Mapping[str, Any]) -> Self:
        """Return the algorithm as a checkpoint's run began it. Settings that the user made take precedence."""
        return self if self.statistics is not None else replace(self, statistics=rules["statistics"])
