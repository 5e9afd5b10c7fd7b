"""Comparison of runs. Two runs are the same if all settings that affect the results are equal."""

from collections.abc import Mapping
from typing import Any

from fadas.registry import is_table
from fadas.runs.formats import upgrade_config
from fadas.runs.serialization import flatten

Tables = Mapping[str, Any]
DEPLOYMENT = "flower"  # task.name in the settings of a deployment
_IGNORED = ("tensorboard", "sinks", "checkpoint_every")  # of [run]: these do not change the results
_MEASURED = ("steps", "metric", "better", "format", "target")  # a deployment may continue with others


def same_run(one: Tables, other: Tables) -> bool:
    """Return whether these settings give the same results, except for the rounding of the last bits."""
    return identity(one) == identity(other)


def differing_settings(one: Tables, other: Tables) -> list[str]:
    """Return a description of each setting that differs."""
    before, now = flatten(identity(one)), flatten(identity(other))
    keys = [key for key in {**before, **now} if before.get(key) != now.get(key)]
    keys = [key for key in keys if not _is_repeated(key, keys)]
    return [
        f"{key.removeprefix('code.')}.py has changed"
        if key.startswith("code.") and key in before and key in now
        else f"{key} was {before.get(key)!r} and is {now.get(key)!r}"
        for key in keys
    ]


def _is_repeated(key: str, keys: list[str]) -> bool:
    """Return whether a method's own setting, such as algorithms.a.local.lr, only repeats that of the section."""
    parts = key.split(".")
    return parts[0] == "algorithms" and len(parts) > 3 and ".".join(parts[2:]) in keys


def identity(tables: Tables) -> dict[str, Any]:
    """Return the settings that affect the results.

    The executors of fadas all give the same results, so from [executor] only the precision is included. An executor of
    the user's own may do anything: its name and its own settings are included.
    """
    tables = upgrade_config(tables)
    ignored = {*_IGNORED, *_MEASURED} if is_deployment(tables) else _IGNORED  # a deployment may be extended
    run = {key: value for key, value in _section(tables, "run").items() if key not in ignored}
    same = {**tables, "run": run, "executor": _own_executor(tables), "precision": precision(tables)}
    same.pop("name", None)  # of the experiment: it names the folder
    if is_deployment(tables):
        same.pop("app", None)  # what counts for the server is in the other sections
        # who may fill the buffer can change at a restart, as other checks of updates can
        section = _section(tables, "schedule")
        same["schedule"] = {key: value for key, value in section.items() if key not in ("per_client", "excess")}
    task = _section(tables, "task")
    if "weights_digest" in task:  # the content of the file counts, not its place
        same["task"] = {key: value for key, value in task.items() if key != "weights"}
    return same


def _own_executor(tables: Tables) -> dict[str, Any]:
    section = _section(tables, "executor")
    if ":" not in str(section.get("name", "")):
        return {}
    return {key: value for key, value in section.items() if key not in ("device", "threads")}


def precision(tables: Tables) -> str:
    """Return the precision in which the clients train."""
    return upgrade_config(tables).get("precision") or "fp32"


def is_deployment(tables: Tables) -> bool:
    """Return whether these are the settings of a deployment, whose times are in seconds."""
    return _section(tables, "task").get("name") == DEPLOYMENT


def _section(tables: Tables, name: str) -> Tables:
    """Return a section. Settings are read from disk too, where they may be damaged."""
    section = tables.get(name)
    return section if is_table(section) else {}
