"""The settings of an experiment -> those of a Flower app."""

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from fadas.errors import ConfigError


def app_settings(tables: Mapping[str, Any], label: str) -> dict[str, Any]:
    """Return an app's settings for one algorithm of an experiment. Delays and faults are left out.

    Args:
        tables: The experiment.
        label: One of its algorithms.

    Raises:
        ConfigError: The app's flat settings cannot express the algorithm, its schedule or the task.
    """
    from fadas.core.update_checks import Checks
    from fadas.experiments.resolve import experiment_seeds, resolve
    from fadas.flower.options import algorithm_from_run_config, local_from_run_config, schedule_from_run_config

    config = resolve(tables, label, experiment_seeds(tables)[0])
    own = {key: value for key, value in config.tables["algorithms"][label].items() if key != "schedule"}
    task = {key: value for key, value in config.tables["task"].items() if key != "clients"}
    if config.task_metrics:
        task["metrics"] = ",".join(config.task_metrics)
    schedule, run = config.schedule, config.run
    config.algorithm.deployed()  # refuses baselines
    settings = {
        "task": task.pop("name"),
        **_flatten("task", task),
        "num-server-rounds": run.steps or math.ceil((run.updates or 1) / schedule.buffer),
        "algorithm": own.pop("preset"),
        **_flatten("algorithm", own),
        "concurrency": schedule.concurrency,
        "buffer": schedule.buffer,
        **({"per-client": schedule.per_client} if schedule.per_client else {}),
        "num-partitions": config.clients,
        **_local_settings(config.tables["local"]),
        "seed": config.seed,
        "eval-every": run.eval_every,
        **{key: value for key in ("metric", "better", "format", "target") if (value := getattr(run, key)) is not None},
        **_sink_settings(run.sinks),
    }
    algorithm = algorithm_from_run_config(settings)
    if algorithm != config.algorithm:
        raise ConfigError(f"algorithms.{label} cannot be written as settings of an app; build it in app/server_app.py")
    if schedule_from_run_config(settings, algorithm) != schedule:
        raise ConfigError(
            f"algorithms.{label}: an app takes no schedule.refill, excess or buffer against the method's own"
        )
    if local_from_run_config(settings) != config.algorithm.local_training(config.local):
        raise ConfigError("[local] cannot be written as settings of an app; set it in app/task.py, and remove it here")
    if config.checks != Checks():
        raise ConfigError("checks cannot be settings of an app; remove [checks], and pass them in app/server_app.py")
    return settings


def _local_settings(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return the section [local] as flat settings. The most common ones have no prefix."""
    plain = {key.replace("_", "-"): table[key] for key in ("lr", "epochs", "batch_size", "weight_decay")}
    rest = {key: value for key, value in table.items() if key not in ("lr", "epochs", "batch_size", "weight_decay")}
    name = {"local-name": rest.pop("name")} if "name" in rest else {}
    return {**plain, "local-steps": 0, **name, **_flatten("local", rest)}


def _sink_settings(sinks: Sequence[str | Mapping[str, Any]]) -> dict[str, Any]:
    """Return the trackers that fadas comes with as flat settings. A class of the user's own is left out."""
    from fadas.runs.sinks import SINKS

    tables = [{"name": one} if isinstance(one, str) else one for one in sinks]
    tables = [table for table in tables if table["name"] in SINKS]
    settings: dict[str, Any] = {"sinks": ",".join(table["name"] for table in tables)} if tables else {}
    for table in tables:
        settings |= _flatten(
            f"sinks-{table['name']}", {key: one for key, one in table.items() if key != "name" and one != ()}
        )
    return settings


def fill_settings(pyproject: str, settings: Mapping[str, Any]) -> str:
    """Return an app's pyproject.toml with these settings. Parameters of the template's algorithm are removed."""
    text = re.sub(r"^(# )?algorithm-.*\n", "", pyproject, flags=re.M)
    for key, value in settings.items():
        line = f"{key} = {json.dumps(value)}"
        text, found = re.subn(rf"^(# )?{re.escape(key)} = .*$", lambda _, line=line: line, text, flags=re.M)
        text = text if found else f"{text.rstrip()}\n{line}\n"
    return text


def _flatten(prefix: str, table: Mapping[str, Any]) -> dict[str, Any]:
    """Return a table as flat settings. None is left out, because it is no value of an app."""
    settings: dict[str, Any] = {}
    for key, value in table.items():
        name = prefix if key == "name" else f"{prefix}-{key.replace('_', '-')}"
        if isinstance(value, Mapping):
            settings |= _flatten(name, value)
        elif isinstance(value, str | bool | int | float):
            settings[name] = value
        elif value is not None:
            raise ConfigError(
                f"{name} = {value!r} cannot be a setting of an app, which is a text, a number or a truth value"
            )
    return settings
