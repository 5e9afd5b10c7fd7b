"""One server step before a run: what an algorithm's parts, which may be the user's own, get wrong shows now."""

from collections.abc import Sequence
from numbers import Real

import torch

from fadas.algorithms.algorithm import Algorithm
from fadas.core.ledger import Step
from fadas.core.model import Model, ServerState, Update


def trial_step(algorithm: Algorithm, start: Model, updates: Sequence[Update], clients: int) -> ServerState:
    """The first step from `start`. An error where a part returns what does not fit, or visibly is no pure function."""
    step = Step(0, tuple(update.job for update in updates))
    before = start.params.clone()
    after = algorithm.apply(ServerState(0, start), step, updates, clients)
    if not torch.equal(before, start.params):
        raise ValueError("the combine rule or the optimizer writes to x_t, which others share; return a new tensor")
    given = after.model.params
    if (given.shape, given.dtype) != (before.shape, before.dtype):
        shapes = f"{given.dtype} of shape {list(given.shape)}, not {before.dtype} of shape {list(before.shape)}"
        raise ValueError(f"the combine rule and the optimizer give {shapes}")
    first, second = (algorithm.step_size(step.delays) for _ in range(2))
    if not isinstance(first, Real):
        raise ValueError(f"a step size is a number, not {type(first).__name__}")
    if first != second:
        raise ValueError(f"the step size must follow from the delays alone: it is {first}, and then {second}")
    return after
