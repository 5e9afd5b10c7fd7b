"""The settings of a deployment: the arguments of an `AsyncStrategy`, and what an app's run config says."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from fadas.algorithms.algorithm import Algorithm
from fadas.algorithms.combine import COMBINES, ExampleWeighted
from fadas.algorithms.companions import COMPANIONS
from fadas.algorithms.optimizers import OPTIMIZERS
from fadas.algorithms.presets import ALGORITHMS
from fadas.algorithms.privacy import Private
from fadas.algorithms.step_sizes import STEP_SIZES
from fadas.core.interval import Interval
from fadas.core.ledger import Schedule
from fadas.core.metrics import Metric
from fadas.core.update_checks import Checks
from fadas.errors import ConfigError, first_line
from fadas.flower.arrays import Trainable, is_trainable
from fadas.registry import Registry, Table, build, check_arguments, default_arguments, lookup, parameters_of
from fadas.runs.sinks import Sink, check_sinks, make_sinks
from fadas.tasks import TASKS
from fadas.tasks.metrics import take_metrics
from fadas.tasks.task import Task, set_weights
from fadas.tasks.weights import take_weights
from fadas.training.settings import local_from_table
from fadas.training.sgd import LocalSGD
from fadas.validate import one_of

Reply = Literal["arrays", "delta"]

NORM_FACTOR = 20.0  # clients' sizes differ, and so do the lengths of their deltas: this stops what nobody would send
EXAMPLES_FACTOR = 10.0
# Field of an `Algorithm` -> what it is called, and what makes it.
_PARTS: dict[str, tuple[str, Registry]] = {
    "combine": ("combine rule", COMBINES),
    "optimizer": ("optimizer", OPTIMIZERS),
    "step_size": ("step size", STEP_SIZES),
    "companion": ("companion", COMPANIONS),
}
_LOCAL_KEYS = ("lr", "epochs", "batch-size", "weight-decay")  # arguments of local training without a prefix
_PREFIXES = ("algorithm-", "local-", "sinks-", "task-")
_KEYS = (
    *("task", "num-server-rounds", "algorithm", "concurrency", "buffer", "per-client", "num-partitions", "seed"),
    *("eval-every", "metric", "better", "format", "target", "deadline", "patience", "folder", "sinks"),
)
_LOCAL_DOTTED = re.compile(r"\blocal(\.\w+)+")
_DOTTED = re.compile(r"\balgorithm(\.\w+)+")  # how the registry names a setting
_SINKS_DOTTED = re.compile(r"\bsinks(\.\w+)+")


def with_default_limit(schedule: Schedule, algorithm: Algorithm) -> Schedule:
    """Return the schedule with a deployment's default: robust rules count clients, so each has one update in a step."""
    is_robust = hasattr(algorithm.combine, "withstands")
    return replace(schedule, per_client=1) if schedule.per_client is None and is_robust else schedule


def with_default_checks(checks: Checks, algorithm: Algorithm) -> Checks:
    """Return the checks with a deployment's defaults in place of None."""
    norm, examples = checks.norm_factor, checks.examples_factor
    if norm is None:
        norm = 0.0 if isinstance(algorithm.combine, Private) else NORM_FACTOR
    if examples is None:
        examples = EXAMPLES_FACTOR if isinstance(algorithm.combine, ExampleWeighted) else 0.0
    return replace(checks, norm_factor=norm, examples_factor=examples)


@dataclass(frozen=True)
class Options:
    """The arguments of an `AsyncStrategy`. See there.

    Attributes:
        algorithm: What the server does with updates.
        schedule: M_c, M and the refill rule.
        seed: Seeds the choice of nodes.
        checks: What an update must pass.
        trainable: Tells by its name whether an array is trained.
        reply: What nodes answer with.
        folder: Where the run is kept; None: nowhere.
        sinks: Trackers that also receive the run.
        name: The name of the run's folder.
        eval_every: The interval between evaluations.
        metric: What the run is judged by.
        target: A value of the metric to reach.
        deadline: Seconds that a node may take for a job.
        patience: Seconds to wait when no node is connected.
        poll: Seconds between polls.
        app: The app's settings, to be shown with the run. Nothing depends on them here.
    """

    algorithm: Algorithm
    schedule: Schedule
    seed: int = 0
    checks: Checks = field(default_factory=Checks)
    trainable: Trainable = is_trainable
    reply: Reply = "arrays"
    folder: Path | None = None
    sinks: tuple[Sink, ...] = ()
    name: str = "fadas"
    eval_every: int | str = 1
    metric: Metric | None = None
    target: float | None = None
    deadline: float = 600.0
    patience: float = 300.0
    poll: float = 0.2
    app: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def __post_init__(self) -> None:
        one_of(("arrays", "delta"), reply=self.reply)
        Interval.parse(self.eval_every)
        if self.target is not None and self.metric:
            self.metric.require_target(self.target)
        if not (self.deadline > 0 and self.patience >= 0 and 0 < self.poll < math.inf):
            given = f"{self.deadline}, {self.patience} and {self.poll}"
            raise ValueError(f"deadline, patience and poll are seconds, and only patience may be 0; got {given}")
        if self.sinks and self.folder is None:
            raise ConfigError("sinks need a folder for the run; set folder to an absolute path")

    @property
    def interval(self) -> Interval:
        """The interval between evaluations."""
        return Interval.parse(self.eval_every)


def algorithm_from_run_config(config: Mapping[str, Any]) -> Algorithm:
    """Return the algorithm that an app's settings describe.

    Args:
        config: The run config. `algorithm` is a preset, `algorithm-*` are its parameters. `algorithm-combine`,
            `algorithm-optimizer` and `algorithm-step-size` exchange a part of it; `algorithm-combine-*` are parameters
            of the part. A name such as "module:Name" is the user's own code in the app.

    Raises:
        ConfigError: A setting is unknown, missing or invalid. The message names the app's key.

    Example:
        >>> algorithm_from_run_config({"algorithm-combine": "trimmed", "algorithm-combine-trim": 1})
    """
    try:
        return _compose(str(config.get("algorithm", "fadas")), _strip("algorithm", config))
    except ConfigError as error:
        dashed = _DOTTED.sub(lambda found: re.sub("[._]", "-", found[0]), str(error))
        raise ConfigError(dashed) from None


def local_from_run_config(config: Mapping[str, Any]) -> LocalSGD:
    """Return what a node does with a job, as an app's settings describe it, with what the algorithm adds.

    Args:
        config: The run config. `lr`, `epochs`, `batch-size` and `weight-decay` are arguments of the local trainer that
            `local-name` names. Its others are `local-*`, such as `local-mu`. `local-schedule` and `local-steps` may
            name a schedule and a law, whose arguments are `local-schedule-*` and `local-steps-*`. `local-steps = 0`
            means epochs. `algorithm` and `algorithm-*` are as in `algorithm_from_run_config`.

    Raises:
        ConfigError: A setting is unknown, missing or invalid. The message names the app's key.

    Example:
        >>> local_from_run_config({"algorithm": "scaffold", "lr": 0.1, "local-steps": 10})
        >>> local_from_run_config({"lr": 0.01, "local-name": "adam", "local-beta1": 0.8, "local-keep": True})
    """
    table = {key.replace("-", "_"): config[key] for key in _LOCAL_KEYS if key in config}
    own = _strip("local", config)
    for part in ("schedule", "steps"):
        begin = f"{part}_"
        arguments = {key.removeprefix(begin): own.pop(key) for key in list(own) if key.startswith(begin)}
        if part in own and isinstance(own[part], str):
            own[part] = {"name": own[part], **arguments} if arguments or ":" not in own[part] else own[part]
        elif arguments:
            raise ConfigError(f"local-{part} is missing: local-{part}-{min(arguments).replace('_', '-')} needs it")
    if own.get("steps") == 0:
        del own["steps"]
    try:
        return algorithm_from_run_config(config).local_training(local_from_table({**table, **own}))
    except ConfigError as error:
        dashed = _LOCAL_DOTTED.sub(lambda found: re.sub("[._]", "-", found[0]), str(error))
        raise ConfigError(dashed) from None


def schedule_from_run_config(config: Mapping[str, Any], algorithm: Algorithm) -> Schedule:
    """Return the schedule that an app's settings describe.

    Args:
        config: The run config: `concurrency`, `buffer` and `per-client`.
        algorithm: The algorithm, which may have a schedule of its own.
    """
    schedule = algorithm.schedule(int(config.get("concurrency", 8)), int(config.get("buffer", 4)))
    per_client = config.get("per-client", "")
    return schedule if per_client == "" else replace(schedule, per_client=int(per_client))


def find_misspelt(config: Mapping[str, Any]) -> dict[str, str]:
    """Return the keys of a run config that fadas does not read but that look like a known one, with that one.

    Other unknown keys may belong to the app.
    """
    known = (*_LOCAL_KEYS, *_KEYS)
    others = [key for key in config if key not in known and not key.startswith(_PREFIXES)]
    close = {key: get_close_matches(key, known, 1, 0.8) for key in others}
    return {key: found[0] for key, found in close.items() if found}


def shown_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of an app that may be shown with its run: no sinks, whose addresses may hold passwords."""
    return {key: value for key, value in config.items() if value != "" and not key.startswith(("sinks", "folder"))}


def sinks_from_run_config(config: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the sinks that an app's settings name, as tables.

    Args:
        config: The run config. `sinks` holds names, with commas between them. `sinks-wandb-*` are arguments of the sink
            "wandb", and so on.

    Raises:
        ConfigError: A setting is unknown or invalid. The message names the app's key.

    Example:
        >>> sinks_from_run_config({"sinks": "tensorboard, wandb", "sinks-wandb-project": "x"})
    """
    names = split_names(str(config.get("sinks", "")))
    given = {name: _strip(f"sinks-{name}", config) for name in names}
    for key in config:
        if key.startswith("sinks-") and not any(key.startswith(f"sinks-{name}-") for name in names):
            raise ConfigError(f"{key} has no effect: sinks = {config.get('sinks', '')!r} does not name that sink")
    tables = [{"name": name, **given[name]} for name in names]
    try:
        check_sinks(tables, "sinks", _find)
    except ConfigError as error:
        dashed = _SINKS_DOTTED.sub(lambda found: re.sub("[._]", "-", found[0]), str(error))
        raise ConfigError(dashed) from None
    return tables


def split_names(text: str) -> list[str]:
    """Return names that have commas between them. A run config has no lists."""
    return [name.strip() for name in text.split(",") if name.strip()]


def prepare_sinks(given: Sequence[Sink | str | Table]) -> tuple[Sink, ...]:
    """Return sinks, made of their names and arguments."""
    return tuple(make_sinks(given, "sinks", _find))


def _strip(prefix: str, table: Mapping[str, Any]) -> dict[str, Any]:
    """Return what stands under a prefix, by the rest of the key."""
    begin = f"{prefix}-"
    return {key.removeprefix(begin).replace("-", "_"): table[key] for key in table if key.startswith(begin)}


def _compose(preset: str, table: Mapping[str, Any]) -> Algorithm:
    """Return a preset with its parameters, and with any of its parts exchanged."""
    own = {key: value for key, value in table.items() if not any(f"{key}_".startswith(f"{part}_") for part in _PARTS)}
    parts = {part: made for part in _PARTS if (made := _make_part(part, table)) is not None}
    factory = _find(ALGORITHMS, "algorithm", preset)
    # Parts are set by keys of their own, also those of the preset "custom".
    check_arguments(factory, own, "algorithm", also_known=[part for part in _PARTS if factory is not Algorithm])
    algorithm = replace(build(factory, own, "algorithm"), **parts)
    defaults = default_arguments(factory, "algorithm")
    for key, value in own.items():
        others = {other: own[other] for other in own if other != key}
        if parts and value != defaults[key] and replace(build(factory, others, "algorithm"), **parts) == algorithm:
            instead = " and ".join(f"algorithm.{part}" for part in parts)
            raise ConfigError(f"algorithm.{key} has no effect together with {instead}; set it there")
    return algorithm


def _make_part(part: str, table: Mapping[str, Any]) -> Any:
    """Return a part of an algorithm, or None if the settings name none."""
    where, (kind, registry) = f"algorithm.{part}", _PARTS[part]
    begin = f"{part}_"
    arguments = {key.removeprefix(begin): table[key] for key in table if key.startswith(begin)}
    if part in table:
        return build(_find(registry, kind, table[part]), arguments, where)
    if arguments:
        raise ConfigError(f"{where} is missing: {where}.{min(arguments)} needs it; known: {', '.join(registry)}")
    return None


def task_from_run_config(config: Mapping[str, Any]) -> Task:
    """Return the task that an app's settings name.

    Args:
        config: The run config. `task` is a name of `fadas list`, or the user's own function as "module:function".
            `task-*` are its arguments, `num-partitions` is the number of clients. `task-weights` is a safetensors file
            with the weights that training starts from. `task-metrics` holds names of ready metrics, with commas between
            them.

    Raises:
        ConfigError: The task cannot be found, or does not take these arguments. Or the weights do not fit the network.

    Example:
        >>> task = task_from_run_config({"task": "digits", "num-partitions": 8, "seed": 1, "task-alpha": 0.5})
    """
    name = str(config["task"])
    make = _find(TASKS, "task", name)
    table = {key.removeprefix("task-").replace("-", "_"): config[key] for key in config if key.startswith("task-")}
    takes, _ = parameters_of(make, name)
    weights = take_weights(table, takes, "task-")
    if "metrics" not in takes and isinstance(table.get("metrics"), str):
        table["metrics"] = split_names(table["metrics"])
    metrics = take_metrics(table, takes)
    common = {"clients": int(config["num-partitions"]), "seed": int(config.get("seed", 0))}
    given = {key: value for key, value in common.items() if key in takes}
    task = build(make, {**given, **table}, "task")
    if not isinstance(task, Task):
        raise ConfigError(f"task: {name} makes a {type(task).__name__}, not a Task")
    if metrics:
        task = replace(task, metrics=metrics)
    if weights:
        set_weights(task, weights, common["seed"], "task-weights")
    return task


def _find(registry: Registry, kind: str, name: Any) -> Callable[..., Any]:
    """Return a registry's entry, or the user's own code. An app is the user's own code, so it needs no permission."""
    if not isinstance(name, str) or name in registry or ":" not in name:
        return lookup(registry, kind, name)
    module, _, attribute = name.partition(":")
    try:
        found = getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"cannot import {kind} {name!r} in the app: {first_line(error)}") from error
    if not callable(found):
        raise ConfigError(f"{kind} {name!r} must be a class or a function, got {type(found).__name__}")
    return found
