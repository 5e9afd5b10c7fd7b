"""One server step before a run. It finds errors in the algorithm's parts, which may be the user's own code."""

import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from numbers import Real
from typing import Any, cast

import torch

from fadas.core.ledger import Job, Step
from fadas.core.model import Model, ServerState, ServerStep, Update, zero_updates
from fadas.core.server import Server
from fadas.core.server_step import UpdateRule
from fadas.errors import ConfigError

_NEW_STEP_SIZE = (
    "a step size takes the server step, not the delays: write `def __call__(self, step): ...` and read `step.delays`"
)


def trial_step(algorithm: UpdateRule, start: Model, updates: Sequence[Update], clients: int) -> ServerState:
    """Take the first step from `start` and return the state after it.

    Raises:
        ConfigError: A part returns something that does not fit, or is visibly not a pure function.
    """
    step = Step(0, tuple(update.job for update in updates))
    start = replace(start, vectors=algorithm.exchange.sent(start, {}))
    state, before = ServerState(0, start), start.params.clone()
    given = [vector for update in updates for vector in (update.delta, *update.vectors.values())]
    deltas = {id(vector): vector for vector in given}.values()  # a trial's updates may share one
    reported = [delta.clone() for delta in deltas]
    eta = _trial_step_size(algorithm, ServerStep(0, step.jobs, tuple(step.delays), 0, state, updates, clients))
    try:
        after = algorithm.apply(state, step, updates, clients, eta)
    except Exception:
        _check_combine(getattr(algorithm, "combine", None), state, step, updates, clients)
        raise
    if not torch.equal(before, start.params):
        raise ConfigError("the combine rule or the optimizer writes to x_t, which others share; return a new tensor")
    if not all(torch.allclose(*pair, rtol=0, atol=0, equal_nan=True) for pair in zip(deltas, reported, strict=True)):
        raise ConfigError("the combine rule or the optimizer writes to the delta of an update; return a new tensor")
    for name, slot in after.slots.items():
        if not isinstance(cast(Any, slot), torch.Tensor):
            raise ConfigError(
                f"slot {name!r} must be a tensor, got {type(slot).__name__}; a counter is torch.tensor(1.0)"
            )
    x = after.model.params
    if (x.shape, x.dtype) != (before.shape, before.dtype):
        shapes = f"{x.dtype} of shape {list(x.shape)}, not {before.dtype} of shape {list(before.shape)}"
        raise ConfigError(f"the combine rule and the optimizer return {shapes}")
    return after


def _check_combine(combine: Any, state: ServerState, step: Step, updates: Sequence[Update], clients: int) -> None:
    """Raise an error that says so if a combine rule takes or returns something else than it should."""
    if combine is None:  # not every update rule has one
        return
    try:
        inspect.signature(combine).bind(state, step, updates, clients)
    except TypeError as error:
        raise ConfigError(f"a combine rule is called as combine(state, step, updates, clients): {error}") from None
    except ValueError:  # built-in callables have no signature
        return
    given: Any = combine(state, step, updates, clients)
    fits = isinstance(given, tuple) and _types(given)[:1] == ["Tensor"] and isinstance(cast(Any, given)[-1], Mapping)
    if not fits or len(cast(Any, given)) != 2:
        kinds = f"({', '.join(_types(given))})" if isinstance(given, tuple) else type(given).__name__
        raise ConfigError(f"a combine rule must return (delta, slots), a tensor and a dict of tensors; got {kinds}")


def _types(values: Any) -> list[str]:
    return [type(value).__name__ for value in values]


def _trial_step_size(algorithm: UpdateRule, step: ServerStep) -> float:
    try:
        first, second = (algorithm.step_size(step) for _ in range(2))
    except Exception:
        if _takes_delays(algorithm, step):
            raise ConfigError(_NEW_STEP_SIZE) from None
        raise
    if not isinstance(first, Real):
        raise ConfigError(f"a step size must return a number, got {type(first).__name__}")
    if first != second:
        raise ConfigError(f"a step size must depend on the step alone: it returned {first}, and then {second}")
    return float(first)


def _takes_delays(algorithm: UpdateRule, step: ServerStep) -> bool:
    """Return whether a part of the step size has the form of fadas 0.1, which was called with the delays."""
    for part in _chain(algorithm.step_size):
        try:
            part(step)
        except Exception:
            with suppress(Exception):  # a part of the new form fails here, too
                if isinstance(part(list(step.delays)), Real):
                    return True
    return False


def _chain(step_size: Any) -> Iterator[Any]:
    """Yield a step size and the step sizes within it, from the outermost to the innermost."""
    yield step_size
    while (step_size := getattr(step_size, "then", None)) is not None:
        yield step_size


def innermost_step_size(step_size: Any) -> Any:
    """Return the step size that a warm-up or a decay scales."""
    *_, innermost = _chain(step_size)
    return innermost


def try_one_step(server: Server) -> None:
    """Take one step of M zero updates and discard it, so that an algorithm that cannot work is refused at once."""
    x, jobs = server.model, [Job(k, k, 0) for k in range(server.ledger.schedule.buffer)]
    updates = zero_updates(jobs, x, server.algorithm.exchange)
    try:
        trial_step(server.algorithm, x, updates, server.ledger.schedule.concurrency + len(jobs))  # as many may come
    except Exception as error:  # the algorithm's parts may be the user's own
        text = f"{type(error).__name__}: {error}".splitlines()[0]
        raise ConfigError(f"the algorithm cannot take a step of {len(jobs)} updates: {text}") from error
