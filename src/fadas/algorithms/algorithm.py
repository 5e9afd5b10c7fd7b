"""Algorithms as compositions: combine M updates, take an optimizer step, of a size that may depend on the delays."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import torch

from fadas.algorithms.combine import Combine, Mean, mean
from fadas.algorithms.optimizers import SGD, Optimizer
from fadas.algorithms.step_sizes import Constant, StepSize
from fadas.core.ledger import Refill, Schedule, Step
from fadas.core.model import Model, ServerState, Update


@dataclass(frozen=True)
class Algorithm:
    """Any composition: combine rule, optimizer and step size, with the schedule that goes with them.

    `buffer` is the method's own M where it has one (FedAsync: 1); with `refill = "round"` M is the concurrency.
    `statistics` is the weight of a step's BatchNorm statistics beside those so far: at 1 the mean over the step's
    clients, below it a running average, for clients whose own say little about the rest. Training does not see them.
    """

    combine: Combine = Mean()
    optimizer: Optimizer = SGD()
    step_size: StepSize = Constant()
    refill: Refill = "arrival"
    buffer: int | None = None
    statistics: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.statistics <= 1:
            raise ValueError(f"statistics must be above 0 and at most 1, not {self.statistics}")

    def schedule(self, concurrency: int, buffer: int) -> Schedule:
        """The method's schedule in an experiment with this M_c and M."""
        return Schedule(concurrency, self.buffer or (concurrency if self.refill == "round" else buffer), self.refill)

    def apply(self, state: ServerState, step: Step, updates: Sequence[Update], clients: int) -> ServerState:
        """Lines 9 to 16 of Algorithm 1. Pure: writes to none of its arguments."""
        x = state.model.params
        delta, remembered = self.combine(state, step, updates, clients)  # line 9
        eta = self.step_size(step.delays)  # lines 11 to 15
        x, moments = self.optimizer.apply(x, delta, state.slots, eta)  # lines 10 and 16
        if clash := remembered.keys() & moments.keys():
            raise ValueError(
                f"the combine rule and the optimizer both remember something as {min(clash)!r}; rename one"
            )
        buffers = state.model.buffers
        if buffers.numel():
            # BatchNorm's statistics are no parameters: they are averaged and never pass through the optimizer
            given = [u.buffers for u in updates]
            # rounding takes the mean of equal numbers elsewhere: frozen weights would creep away, step after step
            now = mean(given).clamp_(reduce(torch.minimum, given), reduce(torch.maximum, given))
            if self.statistics < 1:  # between two infinities, such as a mask's, there is nothing
                now = torch.lerp(buffers, now, self.statistics).where(now != buffers, buffers)
            buffers = now
        return ServerState(state.version + 1, Model(x, buffers), {**state.slots, **remembered, **moments})
