"""Where a run's records go besides metrics.jsonl.

| file             | what it holds                                                                        |
|------------------|--------------------------------------------------------------------------------------|
| `base.py`        | the contract `Sink`, the guard against failing sinks, and `Tracker`, which resumes   |
| `tensorboard.py` | event files in the run's folder                                                      |
| `wandb.py`       | Weights & Biases                                                                     |
| `mlflow.py`      | MLflow                                                                               |
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fadas.errors import ConfigError
from fadas.registry import Registry, Table, build, check_arguments, is_table, lookup
from fadas.runs.sinks.base import Guard, Sink, Tracker
from fadas.runs.sinks.mlflow import MLflow
from fadas.runs.sinks.tensorboard import TensorBoard
from fadas.runs.sinks.wandb import Wandb

__all__ = ["SINKS", "Guard", "MLflow", "Sink", "TensorBoard", "Tracker", "Wandb", "check_sinks", "make_sinks"]

SINKS: dict[str, Callable[..., Sink]] = {"tensorboard": TensorBoard, "wandb": Wandb, "mlflow": MLflow}

Find = Callable[[Registry, str, Any], Callable[..., Any]]


def check_sinks(given: Sequence[str | Table], where: str, find: Find = lookup) -> tuple[dict[str, Any], ...]:
    """Return sinks as tables: the name and the arguments of each, checked and completed with defaults.

    Args:
        given: Names of `SINKS`, or tables with a name and arguments.
        where: The name of the setting, for error messages.
        find: Finds the code of a name.

    Raises:
        ConfigError: A name or an argument is unknown or invalid, or a sink is named twice.
    """
    found: list[dict[str, Any]] = []
    for one in given:
        name, table = _split(one, where)
        if name in SINKS and any(other["name"] == name for other in found):
            raise ConfigError(f"{where} names {name!r} twice; name it once")
        found.append({"name": name, **check_arguments(find(SINKS, "sink", name), table, f"{where}.{name}")})
    return tuple(found)


def make_sinks(given: Sequence[Sink | str | Table], where: str, find: Find = lookup) -> list[Sink]:
    """Return sinks, made of their names and arguments. Sinks that are objects already are returned as they are.

    Args:
        given: Names of `SINKS`, tables with a name and arguments, or sinks.
        where: The name of the setting, for error messages.
        find: Finds the code of a name.

    Raises:
        ConfigError: A sink cannot be made, for example because an extra is not installed.

    Example:
        >>> sinks = make_sinks(["tensorboard", {"name": "wandb", "project": "x"}], "run.sinks")
    """
    check_sinks([one for one in given if isinstance(one, str | Mapping)], where, find)
    made: list[Any] = []
    for one in given:
        if not isinstance(one, str | Mapping):
            made.append(one)
            continue
        name, table = _split(one, where)
        made.append(build(find(SINKS, "sink", name), table, f"{where}.{name}"))
    for sink in made:
        if lacking := [name for name in ("open", "record", "close") if not callable(getattr(sink, name, None))]:
            raise ConfigError(f"{where}: {type(sink).__name__} is not a sink: it has no method {lacking[0]}()")
    return made


def _split(given: Any, where: str) -> tuple[str, dict[str, Any]]:
    """Return a sink's name and its arguments."""
    table = {"name": given} if isinstance(given, str) else given
    if not is_table(table) or "name" not in table:
        raise ConfigError(f"{where} holds names, or tables with a name, got {given!r}; known: {', '.join(SINKS)}")
    return table["name"], {key: value for key, value in table.items() if key != "name"}
