"""Local training from plain settings: the section [local] of an experiment, or the settings of a Flower app."""

import inspect
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from fadas.errors import ConfigError
from fadas.registry import Registry, Table, build, lookup
from fadas.training.optimizers import LOCAL_TRAINERS, CustomStep
from fadas.training.schedules import RATE_SCHEDULES, RateSchedule
from fadas.training.sgd import LocalSGD
from fadas.training.work import STEP_LAWS, StepLaw

LOCAL_PARTS: dict[Any, tuple[str, Registry]] = {
    RateSchedule: ("rate schedule", RATE_SCHEDULES),
    StepLaw: ("step law", STEP_LAWS),
}
DEFAULT_TRAINER = "sgd"
COMPANION = "companion"  # the argument of a trainer that the algorithm sets, not the user
_STEP = ["params", "grads", "state", "t"]  # what a step function takes
_LAW = ["job", "examples", "seed"]  # what a law for the number of steps takes


def local_from_table(section: Table) -> LocalSGD:
    """Return local training from its settings.

    Args:
        section: The name of a local trainer (default: sgd), and its arguments.

    Raises:
        ConfigError: A setting is unknown, missing or invalid.

    Example:
        >>> local_from_table({"name": "momentum", "lr": 0.1, "steps": {"name": "uniform", "low": 5, "high": 20}})
    """
    table = dict(section)
    name = table.pop("name", DEFAULT_TRAINER)
    factory = trainer_factory(name)
    law = _law_function(table.get("steps"))
    local = build(factory, {**table, "steps": 1} if law else table, "local", LOCAL_PARTS, [COMPANION])
    if not isinstance(local, LocalSGD):
        raise ConfigError(f"local: {name!r} makes a {type(local).__name__}, not a LocalSGD")
    return replace(local, steps=law) if law else local


def trainer_factory(name: Any) -> Callable[..., LocalSGD]:
    """Return what makes the local trainer of this name. It may be a step function of the user's own."""
    factory = lookup(LOCAL_TRAINERS, "local", name)
    if inspect.isfunction(factory) and list(inspect.signature(factory).parameters) == _STEP:
        return partial(CustomStep, function=factory)
    return factory


def _law_function(given: Any) -> StepLaw | None:
    """Return the user's function for the number of local steps, if the setting names one."""
    if not isinstance(given, str) or ":" not in given:
        return None
    found = lookup(STEP_LAWS, "step law", given)
    return found if inspect.isfunction(found) and list(inspect.signature(found).parameters) == _LAW else None
