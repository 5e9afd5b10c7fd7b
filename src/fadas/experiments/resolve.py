"""Settings: the tables of an experiment -> the typed settings of one run.

An experiment names a task, a schedule, delays, local training, limits, and any number of algorithms. An algorithm's
table holds its own parameters and may override the sections `local`, `schedule` and `run`. Resolving one algorithm and
one seed gives a `RunConfig`, whose `tables` are again a valid experiment: the config.toml beside the results.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, is_dataclass, replace
from functools import partial
from typing import Any

from fadas.algorithms.algorithm import Algorithm
from fadas.algorithms.combine import COMBINES, Combine
from fadas.algorithms.optimizers import OPTIMIZERS, Optimizer
from fadas.algorithms.presets import ALGORITHMS
from fadas.algorithms.step_sizes import STEP_SIZES, StepSize
from fadas.core.update_checks import Checks
from fadas.errors import ConfigError
from fadas.executors import EXECUTORS
from fadas.experiments.experiment_file import OWN_SECTIONS, as_table
from fadas.experiments.settings import RunConfig, RunSettings, ScheduleSettings
from fadas.registry import Table, arguments, build, convert, defaults, lookup, parameters_of
from fadas.runs.same_run import code_of
from fadas.simulation.delays import DELAYS, Delays
from fadas.simulation.delays import Table as DelayTable
from fadas.simulation.faults import Fault
from fadas.tasks import TASKS
from fadas.training.sgd import LocalSGD

PARTS = {Combine: ("combine rule", COMBINES), Optimizer: ("optimizer", OPTIMIZERS), StepSize: ("step size", STEP_SIZES)}
PARTS_OF = ("combine", "optimizer", "step_size")  # the fields of an Algorithm that PARTS makes, in its order
EXECUTOR_ARGUMENTS = ("task", "local", "seed")  # what an executor gets from the run rather than from its section


def seeds(tables: Table) -> tuple[int, ...]:
    section = as_table(tables.get("run", {}), "run")
    return build(RunSettings, {"steps": 1, **section}, "run").seeds  # a limit may stand with each algorithm instead


def resolve(tables: Table, label: str, seed: int) -> RunConfig:
    """The settings of one run, every default filled in."""
    where = f"algorithms.{label}"
    own = dict(tables["algorithms"][label])
    names = ("task", "schedule", "delays", "faults", "local", "checks", "executor", "run")
    sections = {name: as_table(tables.get(name, {}), name) for name in names}
    own_sections = {name: as_table(own.pop(name, {}), f"{where}.{name}") for name in OWN_SECTIONS}
    if "seeds" in own_sections["run"]:
        raise ConfigError(f"{where}.run.seeds: seeds belong to the experiment, under [run]")
    for name, table in own_sections.items():
        sections[name] = {**sections[name], **table}
    algorithm, algorithm_table = _algorithm(own, label, where)
    local = build(LocalSGD, sections["local"], "local")
    run = build(RunSettings, {**sections["run"], "seeds": [seed]}, "run")
    settings = build(ScheduleSettings, sections["schedule"], "schedule")
    try:
        schedule = algorithm.schedule(settings.concurrency, settings.buffer)
        if "buffer" in own_sections["schedule"]:
            schedule = replace(schedule, buffer=settings.buffer)
        if settings.refill is not None:
            schedule = replace(schedule, refill=settings.refill)
    except ValueError as error:
        raise ConfigError(f"schedule: {error}") from None
    delays, delays_table = _delays(sections["delays"])
    faults = {
        name: build(Fault, as_table(f, f"faults.{name}"), f"faults.{name}") for name, f in sections["faults"].items()
    }
    delays = replace(delays, faults=tuple(faults.values()))
    checks = build(Checks, sections["checks"], "checks")
    try:
        make_task, task_table = _spec(TASKS, sections["task"], "task", {"seed": seed})
    except ConfigError as error:
        if "unknown key 'task.clients'" not in str(error):
            raise
        raise ConfigError(f"the task {sections['task']['name']!r} must take `clients`, their number") from None
    clients = task_table.get("clients")
    if not isinstance(clients, int):
        raise ConfigError("task.clients (the number of clients) is missing")
    if schedule.concurrency > clients:
        raise ConfigError(f"schedule: concurrency ({schedule.concurrency}) exceeds the number of clients ({clients})")
    executor_section = {"name": "auto", **sections["executor"]}
    device = convert(executor_section.pop("device", "cpu"), str, "executor.device")
    threads = convert(executor_section.pop("threads", None), int | None, "executor.threads")
    if threads is not None and threads < 1:
        raise ConfigError(f"executor.threads must be at least 1, not {threads}")
    executor, executor_table = _spec(
        EXECUTORS,
        executor_section,
        "executor",
        {"device": device, "threads": threads},
        later=EXECUTOR_ARGUMENTS,
        beside=("device", "threads"),
    )
    resolved = {
        "name": tables["name"],
        "task": {key: value for key, value in task_table.items() if key != "seed"},
        "delays": delays_table,
        "faults": {name: {k: v for k, v in asdict(f).items() if v != math.inf} for name, f in faults.items()},
        "checks": asdict(checks),
        "local": asdict(local),
        "executor": {**executor_table, "threads": threads},
        "run": asdict(run),
        "algorithms": {label: {**algorithm_table, "schedule": asdict(schedule)}},
        "schedule": {"concurrency": schedule.concurrency, "buffer": schedule.buffer},
    }
    if code := code_of(resolved):
        resolved["code"] = code
    return RunConfig(
        experiment=tables["name"],
        label=label,
        seed=seed,
        place=list(tables["algorithms"]).index(label),
        clients=clients,
        algorithm=algorithm,
        schedule=schedule,
        delays=delays,
        local=local,
        checks=checks,
        run=run,
        task=make_task,
        executor=executor,
        device="cpu" if executor_table["name"] == "ray" else device,  # the workers have theirs
        threads=threads,
        tables=_plain(resolved),
    )


def _algorithm(own: dict[str, Any], label: str, where: str) -> tuple[Algorithm, dict[str, Any]]:
    """The preset with its parameters, and with any of its parts (combine, optimizer, ...) exchanged."""
    preset = own.pop("preset", label)
    factory = lookup(ALGORITHMS, "algorithm", preset)
    takes = defaults(factory, where)
    parts = {key: own.pop(key) for key in (*PARTS_OF, "statistics") if key in own and key not in takes}
    made = arguments(Algorithm, parts, where, PARTS) if parts else {}
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
            raise ConfigError(f"{where}.{key} has no effect beside {' and '.join(parts)}; set it there")
    values = {key: value for key, value in takes.items() if isinstance(value, str | bool | int | float)}
    whole = _parts_table(algorithm, {**own, **parts}) if parts or preset == "custom" else None
    return algorithm, whole or {"preset": preset, **values, **own}


def _parts_table(algorithm: Algorithm, given: Table) -> dict[str, Any] | None:
    """The algorithm written out part by part; None when a part is not a registered one with plain fields."""
    table: dict[str, Any] = {"preset": "custom", "refill": algorithm.refill, "buffer": algorithm.buffer}
    if algorithm.statistics != 1:
        table["statistics"] = algorithm.statistics
    for key, (_, registry) in zip(PARTS_OF, PARTS.values(), strict=True):
        part: Any = getattr(algorithm, key)
        told = given.get(key, {})
        told = dict(told) if isinstance(told, Mapping) else {"name": told}
        name = next((name for name, make in registry.items() if make is type(part)), None)
        if name is None and told.get("name", "").rpartition(":")[2] == type(part).__name__:
            name = told["name"]
        if name and is_dataclass(part):
            table[key] = {"name": name, **asdict(part)}  # type: ignore[arg-type]
        elif told:  # a plain class or a function: its defaults are its own business
            table[key] = told
        else:
            return None
    return table


_COMMON = ("dropout", "deadline", "scale_by_data")


def _delays(section: Table) -> tuple[Delays, dict[str, Any]]:
    """[delays] holds the model's name and parameters together with dropout, deadline and scale_by_data."""
    table = {"name": "large", **section}
    common = {key: table.pop(key) for key in _COMMON if key in table}
    make_model, model_table = _spec(DELAYS, table, "delays", {}, beside=_COMMON)
    try:
        model = make_model()
        if not hasattr(model, "bind"):
            raise ConfigError(f"delays: {table['name']} makes a {type(model).__name__}, not a delay model")
        if isinstance(model, DelayTable):
            model_table["digest"] = model.file_digest()  # a changed file is another experiment
    except ValueError as error:
        raise ConfigError(f"delays: {error}") from None
    delays = replace(build(Delays, common, "delays"), model=model)
    return delays, {**model_table, **{key: getattr(delays, key) for key in _COMMON}}


def _spec(
    registry: Mapping[str, Callable[..., Any]],
    section: Table,
    where: str,
    given: dict[str, Any],
    later: Sequence[str] = (),
    beside: Sequence[str] = (),
) -> tuple[Callable[..., Any], dict[str, Any]]:
    """A registry's entry with checked arguments, not called yet; and its table, complete with defaults."""
    table = dict(section)
    if "name" not in table:
        raise ConfigError(f"{where}.name is missing; known: {', '.join(registry)}")
    name = table.pop("name")
    factory = lookup(registry, where, name)
    for key in given:
        if key in table:
            raise ConfigError(f"{where}.{key} cannot be set here: it is the run's, under [run]")
    takes, _ = parameters_of(factory, where)
    values = arguments(factory, table, where, later=(*later, *given), beside=beside)
    values |= {key: value for key, value in given.items() if key in takes}
    return partial(factory, **values), {"name": name, **values}


def _plain(value: Any) -> Any:
    """Only what TOML can hold: no None, no tuples."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items() if item is not None}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if not isinstance(value, str | bool | int | float):
        raise ConfigError(f"{value!r} cannot be kept in config.toml; use strings, numbers and lists")
    return value
