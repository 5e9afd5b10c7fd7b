"""Settings: the tables of an experiment -> the typed settings of one run.

An experiment names a task, a schedule, delays, local training, limits, and any number of algorithms. An algorithm's
table holds its own parameters and may override the sections `local`, `schedule` and `run`. Resolving one algorithm and
one seed gives a `RunConfig`. Its `tables` are again a valid experiment: the config.toml beside the results.
"""

import inspect
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from functools import partial
from typing import Any

from fadas.algorithms import (
    ALGORITHMS,
    COMBINES,
    COMPANIONS,
    OPTIMIZERS,
    STEP_SIZES,
    Algorithm,
    Combine,
    Companion,
    Optimizer,
    StepSize,
)
from fadas.core.ledger import Schedule
from fadas.core.update_checks import Checks
from fadas.errors import ConfigError
from fadas.executors import DEFAULT as DEFAULT_EXECUTOR, EXECUTORS
from fadas.executors.base import ExecutorTraits, executor_traits
from fadas.experiments.experiment_file import OWN_SECTIONS, as_table, to_plain
from fadas.experiments.settings import RunConfig, RunSettings, ScheduleSettings
from fadas.registry import (
    Registry,
    Table,
    build,
    check_arguments,
    code_digests,
    convert,
    default_arguments,
    lookup,
    parameters_of,
)
from fadas.runs.serialization import flatten
from fadas.simulation.delays import DELAYS, Delays, DelayTable
from fadas.simulation.faults import Fault
from fadas.tasks import TASKS
from fadas.tasks.metrics import take_metrics
from fadas.tasks.weights import StartWeights, take_weights
from fadas.training import RATE_SCHEDULES, STEP_LAWS
from fadas.training.settings import COMPANION, DEFAULT_TRAINER, local_from_table, trainer_factory
from fadas.training.sgd import LocalSGD
from fadas.validate import MOST_THREADS, at_least, at_most

PARTS = {
    Combine: ("combine rule", COMBINES),
    Optimizer: ("optimizer", OPTIMIZERS),
    StepSize: ("step size", STEP_SIZES),
    Companion: ("companion", COMPANIONS),
}
PART_FIELDS = ("combine", "optimizer", "step_size", "companion")  # of an Algorithm: what PARTS makes, in its order
_SECTIONS = ("task", "schedule", "delays", "faults", "local", "checks", "executor", "run")
EXECUTOR_ARGUMENTS = ("task", "local", "seed")  # what an executor gets from the run rather than from its section
# Settings of [local] that earlier versions did not have. They are written only if they are set.
_ADDED = ("mu", "clip", "schedule", "warmup", "decoupled", "keep", "bias_correction")
DELAY_KEYS = ("dropout", "deadline", "scale_by_data")  # keys of [delays] that are no parameters of the model


def resolve(tables: Table, label: str, seed: int) -> RunConfig:
    """Return the settings of one run, with every default filled in.

    Args:
        tables: The experiment, from `read_experiment`.
        label: One of its algorithms.
        seed: The run's seed.

    Raises:
        ConfigError: A setting is unknown, missing or invalid.

    Example:
        >>> config = resolve(read_experiment(Path("experiment.toml")), "fadas", seed=0)
    """
    where = f"algorithms.{label}"
    own = dict(tables["algorithms"][label])
    sections, own_sections = _merge_sections(tables, own, where)
    algorithm, algorithm_table = _make_algorithm(own, label, where)
    schedule = _make_schedule(algorithm, sections["schedule"], "buffer" in own_sections["schedule"])
    local, local_table = make_local(sections["local"])
    try:
        algorithm.local_training(local)
    except ConfigError as error:  # before any run of the experiment
        raise ConfigError(f"{where}: {error}") from None
    run = build(RunSettings, {**sections["run"], "seeds": [seed]}, "run").with_sinks()
    checks = build(Checks, sections["checks"], "checks")
    delays, delays_table = _make_delays(sections["delays"])
    faults = {
        name: build(Fault, as_table(f, f"faults.{name}"), f"faults.{name}") for name, f in sections["faults"].items()
    }
    task, metrics, weights = _make_task(sections["task"], seed)
    clients = task.table["clients"]
    if schedule.concurrency > clients:
        raise ConfigError(f"schedule: concurrency ({schedule.concurrency}) exceeds the number of clients ({clients})")
    if not schedule.can_step(clients):
        raise ConfigError(
            f"schedule: {clients} clients with per_client = {schedule.per_client} never fill a buffer of "
            f"{schedule.buffer}"
        )
    executor = _make_executor(sections["executor"])
    resolved = {
        "name": tables["name"],
        "task": {key: value for key, value in task.table.items() if key != "seed"},
        "delays": delays_table,
        "faults": {name: {k: v for k, v in asdict(f).items() if v != math.inf} for name, f in faults.items()},
        "checks": asdict(checks),
        "local": local_table,
        "executor": executor.table,
        "run": {key: value for key, value in asdict(run).items() if key != "sinks" or value},
        "algorithms": {label: {**algorithm_table, "schedule": schedule.as_table()}},
        "schedule": {"concurrency": schedule.concurrency, "buffer": schedule.buffer},
        "precision": executor.precision,
    }
    if code := code_digests([value for value in flatten(resolved).values() if isinstance(value, str)]):
        resolved["code"] = code  # changed code is another run
    return RunConfig(
        experiment=tables["name"],
        label=label,
        seed=seed,
        place=list(tables["algorithms"]).index(label),
        clients=clients,
        algorithm=algorithm,
        schedule=schedule,
        delays=replace(delays, faults=tuple(faults.values())),
        local=local,
        checks=checks,
        run=run,
        make_task=task.make,
        task_metrics=metrics,
        weights=weights,
        make_executor=executor.make,
        traits=executor.traits,
        train_device=executor.device,
        threads=executor.threads,
        tables=to_plain(resolved),
    )


def experiment_seeds(tables: Table) -> tuple[int, ...]:
    """Return the seeds of an experiment."""
    section = as_table(tables.get("run", {}), "run")
    return build(RunSettings, {"steps": 1, **section}, "run").seeds  # an algorithm may have limits of its own


def _merge_sections(
    tables: Table, own: dict[str, Any], where: str
) -> tuple[dict[str, dict[str, Any]], dict[str, dict[str, Any]]]:
    """Return the sections as they are for one algorithm, and those that it overrides, which leave its table `own`."""
    sections = {name: as_table(tables.get(name, {}), name) for name in _SECTIONS}
    own_sections = {name: as_table(own.pop(name, {}), f"{where}.{name}") for name in OWN_SECTIONS}
    if "seeds" in own_sections["run"]:
        raise ConfigError(f"{where}.run.seeds: seeds belong to the experiment, under [run]")
    for name, table in own_sections.items():
        base = sections[name]
        if name == "local" and table.get("name", base.get("name")) != base.get("name"):
            takes = parameters_of(trainer_factory(table["name"]), "local")[0]
            base = {key: value for key, value in base.items() if key in takes}  # the rest is for another trainer
        sections[name] = {**base, **table}
    return sections, own_sections


def make_local(section: Table) -> tuple[LocalSGD, dict[str, Any]]:
    """Return local training and its settings written out.

    Args:
        section: The section [local]: the name of a trainer and its arguments.
    """
    local, name = local_from_table(section), section.get("name", DEFAULT_TRAINER)
    values = {f.name: getattr(local, f.name) for f in fields(local) if f.name not in _ADDED or f.name in section}
    if local.schedule is not None:
        values["schedule"] = _part_table(local.schedule, RATE_SCHEDULES, section["schedule"])
    if callable(local.steps):
        values["steps"] = _part_table(local.steps, STEP_LAWS, section["steps"])
        if inspect.isfunction(local.steps):
            values["steps"] = section["steps"]
    del values[COMPANION]
    values.pop("function", None)  # of a step function, which is what `name` says
    return local, values if name == DEFAULT_TRAINER else {"name": name, **values}


def _make_schedule(algorithm: Algorithm, section: Table, own_buffer: bool) -> Schedule:
    settings: ScheduleSettings = build(ScheduleSettings, section, "schedule")
    try:
        schedule = algorithm.schedule(settings.concurrency, settings.buffer)
        if own_buffer:
            schedule = replace(schedule, buffer=settings.buffer)
        if settings.refill is not None and not algorithm.is_timeless:  # which always takes one job after the other
            schedule = replace(schedule, refill=settings.refill)
        if settings.per_client:
            schedule = replace(schedule, per_client=settings.per_client, excess=settings.excess)
        elif settings.excess != "wait":
            raise ValueError("excess has no effect without per_client; set per_client, for example to 1")
    except ValueError as error:
        raise ConfigError(f"schedule: {error}") from None
    return schedule


@dataclass(frozen=True)
class _Named:
    """A registry's entry with checked arguments, not called yet."""

    factory: Any
    make: partial[Any]
    table: dict[str, Any]  # its name and arguments, with defaults


def _choose(
    registry: Registry,
    section: Table,
    where: str,
    fixed: Mapping[str, Any] = {},
    supplied_by_run: Sequence[str] = (),
    also_known: Sequence[str] = (),
) -> _Named:
    """Return the entry that a section names.

    Args:
        registry: Known names and what makes them.
        section: The user's settings: a name and its arguments.
        where: The name of the section.
        fixed: Arguments that the user must not set. They are passed if the entry takes them.
        supplied_by_run: Parameters that are passed when the entry is called.
        also_known: Other keys of the section, to suggest for a misspelt key.
    """
    table = dict(section)
    if "name" not in table:
        raise ConfigError(f"{where}.name is missing; known: {', '.join(registry)}")
    name = table.pop("name")
    factory = lookup(registry, where, name)
    for key in fixed:
        if key in table:
            raise ConfigError(f"{where}.{key} cannot be set here: set it under [run]")
    takes, _ = parameters_of(factory, where)
    values = check_arguments(factory, table, where, supplied_by_run=(*supplied_by_run, *fixed), also_known=also_known)
    values |= {key: value for key, value in fixed.items() if key in takes}
    return _Named(factory, partial(factory, **values), {"name": name, **values})


def _make_task(given: Table, seed: int) -> tuple[_Named, tuple[str, ...] | None, StartWeights | None]:
    section = dict(given)
    takes = parameters_of(lookup(TASKS, "task", section["name"]), "task")[0] if "name" in section else {}
    weights = take_weights(section, takes, "task.")
    metrics = take_metrics(section, takes)
    open_ended = any(p.kind is p.VAR_KEYWORD for p in takes.values())
    if "clients" in section and "name" in section and "clients" not in takes and not open_ended:
        raise ConfigError(f"the task {section['name']!r} must take the argument `clients`")
    task = _choose(TASKS, section, "task", {"seed": seed}, also_known=("weights", "metrics"))
    if not isinstance(task.table.get("clients"), int):
        raise ConfigError("task.clients (the number of clients) is missing")
    if weights:
        task.table.update({"weights": weights.path, "weights_digest": weights.digest})
    if metrics is not None:
        task.table["metrics"] = list(metrics)
    return task, metrics, weights


@dataclass(frozen=True)
class _ExecutorChoice:
    make: partial[Any]
    table: dict[str, Any]
    traits: ExecutorTraits
    device: str
    threads: int | None
    precision: str


def _make_executor(given: Table) -> _ExecutorChoice:
    section = {"name": DEFAULT_EXECUTOR, **given}
    device = convert(section.pop("device", "cpu"), str, "executor.device")
    threads = convert(section.pop("threads", None), int | None, "executor.threads")
    try:
        at_least(1, threads=threads)
        at_most(MOST_THREADS, threads=threads)
    except ValueError as error:
        raise ConfigError(f"executor.{error}") from None
    own = {"device": device, "threads": threads}
    chosen = _choose(EXECUTORS, section, "executor", own, EXECUTOR_ARGUMENTS, also_known=("device", "threads"))
    traits = executor_traits(chosen.factory)
    precision = chosen.table.get("precision") or traits.default_precision(device)
    table = {**chosen.table, "threads": threads}
    return _ExecutorChoice(chosen.make, table, traits, device, threads, precision)


def _make_algorithm(own: dict[str, Any], label: str, where: str) -> tuple[Algorithm, dict[str, Any]]:
    """Return the preset with its parameters, and with any of its parts (combine, optimizer, ...) exchanged."""
    preset = own.pop("preset", label)
    factory = lookup(ALGORITHMS, "algorithm", preset)
    takes = default_arguments(factory, where)
    parts = {key: own.pop(key) for key in (*PART_FIELDS, "statistics") if key in own and key not in takes}
    made = check_arguments(Algorithm, parts, where, PARTS) if parts else {}
    swapped = {key: made[key] for key in parts}

    def compose(table: Table) -> Algorithm:
        algorithm = build(factory, table, where, PARTS)
        if not isinstance(algorithm, Algorithm):
            raise ConfigError(f"{where}: {preset!r} makes a {type(algorithm).__name__}, not an Algorithm")
        try:
            return replace(algorithm, **swapped)
        except ValueError as error:
            raise ConfigError(f"{where}: {error}") from None

    algorithm = compose(own)
    for key, value in own.items():
        if parts and value != takes.get(key) and compose({k: v for k, v in own.items() if k != key}) == algorithm:
            raise ConfigError(f"{where}.{key} has no effect together with {' and '.join(parts)}; set it there")
    values = {key: value for key, value in takes.items() if isinstance(value, str | bool | int | float)}
    in_parts = _parts_table(algorithm, {**own, **parts}) if parts or preset == "custom" else None
    return algorithm, in_parts or {"preset": preset, **values, **own}


def _parts_table(algorithm: Algorithm, given: Table) -> dict[str, Any] | None:
    """Return the algorithm written out part by part; None if a part is not a registered one with plain fields."""
    table: dict[str, Any] = {"preset": "custom", "refill": algorithm.refill, "buffer": algorithm.buffer}
    if algorithm.statistics != replace(algorithm, statistics=None).effective_statistics:
        table["statistics"] = algorithm.statistics
    if algorithm.baseline is not None:
        table["baseline"] = algorithm.baseline
    for key, (_, registry) in zip(PART_FIELDS, PARTS.values(), strict=True):
        if getattr(algorithm, key) is None:
            continue
        written = _part_table(getattr(algorithm, key), registry, given.get(key, {}))
        if written is None:
            return None
        table[key] = written
    return table


def _part_table(part: Any, registry: Registry, given: Any) -> dict[str, Any] | None:
    """Return a part's name and fields. Parts within it, such as a warm-up's `then`, are written in the same way."""
    told = dict(given) if isinstance(given, Mapping) else {"name": given}
    name = next((name for name, make in registry.items() if make is type(part)), None)
    if name is None and told.get("name", "").rpartition(":")[2] == type(part).__name__:
        name = told["name"]
    if not (name and is_dataclass(part)):
        return told or None  # a plain class or a function keeps what the user wrote
    table: dict[str, Any] = {"name": name}
    for key in (one.name for one in fields(part)):  # without class variables
        value = getattr(part, key)
        named = isinstance(told.get(key), Mapping | str) and not isinstance(value, Mapping | str)
        if type(value) in registry.values() or named:
            value = _part_table(value, registry, told.get(key, {}))
        table[key] = value
    return table


def _make_delays(section: Table) -> tuple[Delays, dict[str, Any]]:
    """[delays] holds the model's name and parameters together with dropout, deadline and scale_by_data."""
    table = {"name": "large", **section}
    common = {key: table.pop(key) for key in DELAY_KEYS if key in table}
    chosen = _choose(DELAYS, table, "delays", also_known=DELAY_KEYS)
    try:
        model = chosen.make()
        if not hasattr(model, "bind"):
            raise ConfigError(f"delays: {table['name']} makes a {type(model).__name__}, not a delay model")
        if isinstance(model, DelayTable):
            chosen.table["digest"] = model.file_digest()  # a changed file is another experiment
    except ValueError as error:
        raise ConfigError(f"delays: {error}") from None
    delays = replace(build(Delays, common, "delays"), model=model)
    return delays, {**chosen.table, **{key: getattr(delays, key) for key in DELAY_KEYS}}
