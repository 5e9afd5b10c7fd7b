"""Every setting of an experiment file, from the signatures and docstrings of what it configures, and those of an app.

The reference page of the site and `fadas explain` are made of this.
"""

import ast
import types
from ast import literal_eval as literal
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from functools import partial
from typing import Any, Literal, Union, get_args, get_origin

from fadas.algorithms import ALGORITHMS, Algorithm
from fadas.core.update_checks import Checks
from fadas.executors import EXECUTORS
from fadas.experiments.catalog.app import app_settings
from fadas.experiments.catalog.docstrings import read_docstring
from fadas.experiments.catalog.setting import Group, Setting
from fadas.experiments.resolve import DELAY_KEYS, EXECUTOR_ARGUMENTS, PART_FIELDS, PARTS
from fadas.experiments.settings import RunSettings, ScheduleSettings
from fadas.registry import Registry, parameters_of
from fadas.runs.serialization import toml_value
from fadas.runs.sinks import SINKS
from fadas.simulation.delays import DELAYS, Delays
from fadas.simulation.faults import Fault
from fadas.tasks import TASKS
from fadas.training import LOCAL_TRAINERS, RATE_SCHEDULES, STEP_LAWS
from fadas.training.settings import COMPANION
from fadas.training.sgd import LocalSGD

_REGISTRIES: dict[str, Registry] = {
    "task": TASKS,
    "delays": DELAYS,
    "local": LOCAL_TRAINERS,
    "executor": EXECUTORS,
    "algorithms": ALGORITHMS,
}
_HIDDEN = {  # parameters that are no settings: the run passes them, or they are set elsewhere
    "task": ("seed",),
    "delays": ("digest",),
    "local": tuple(field.name for field in fields(LocalSGD)),
    "executor": (*EXECUTOR_ARGUMENTS, "device", "threads"),
}
_NAMES = {"task": "task", "delays": "delay model", "local": "local trainer", "executor": "executor"}


__all__ = ["Group", "Setting", "describe_type", "list_settings"]


def list_settings() -> list[Group]:
    """Return all settings of an experiment file, in the order of its sections, and then those of a Flower app.

    Example:
        >>> [setting.key for group in list_settings() for setting in group.settings if group.section == "local"]
        ['local.lr', 'local.epochs', 'local.batch_size', 'local.weight_decay', 'local.steps']
    """
    local = [one for one in _from(LocalSGD, "local") if one.name != COMPANION]
    return [
        Group("name", (), "", "", (Setting("name", "string", "", False, _NAME, '"demo"'),)),
        _named_section("task", "Model, data and loss.", "", (_METRICS, _WEIGHTS)),
        *_entries("task"),
        _section("schedule", ScheduleSettings, {"buffer": ", ".join(_buffered())}),
        _named_section(
            "delays", "How long jobs take, in virtual time.", '"large"', _from(Delays, "delays", DELAY_KEYS)
        ),
        *_entries("delays"),
        _section("faults.*", Fault),
        _named_section("local", "What a client does with a job.", '"sgd"', local),
        *_entries("local"),
        *_entries("rate_schedule", RATE_SCHEDULES),
        *_entries("step_law", STEP_LAWS),
        _section("checks", Checks),
        _named_section("executor", "Where jobs are trained.", '"auto"', _EXECUTOR),
        *_entries("executor"),
        _section("run", RunSettings),
        *_entries("sink", SINKS),
        Group("algorithms", (), _ALGORITHMS, "", _OWN),
        *_entries("algorithms"),
        *(group for field, (_, registry) in _parts().items() for group in _entries(field, registry)),
        Group("sweep", (), "Values to try: `fadas sweep` runs every combination of them.", "", _SWEEP),
        Group("profiles", (), "Variants of the experiment: `--profile NAME` applies these settings.", "", _PROFILES),
        app_settings(),
    ]


_NAME = "The experiment's name. Results go to runs/NAME. Not set: the name of the file."
_ALGORITHMS = "The methods to run, one table each. NAME is a method's name, or any name together with `preset`."
_WEIGHTS = Setting(
    "task.weights",
    "string",
    "",
    False,
    "A safetensors file with the weights that training starts from, such as a run's model.safetensors. A path in the "
    "experiment file is relative to that file. Not set: the task initialises its network.",
    '"model.safetensors"',
)
_METRICS = Setting(
    "task.metrics",
    "list of strings",
    "",
    False,
    "What to measure on the test data beside the loss: accuracy, top5 (any number), macro_f1, auc, rmse, mae, r2, "
    "perplexity. Not set: the task's own metrics.",
    '["macro_f1", "accuracy"]',
)
_EXECUTOR = (
    Setting("executor.device", "string", '"cpu"', False, 'Where to train: "cpu", "cuda", "cuda:1", ...', '"cuda"'),
    Setting(
        "executor.threads",
        "whole number",
        "",
        False,
        "The torch threads of this process. Not set: one for small networks and in workers, else torch's choice. "
        "Another number may change the last bits of the results.",
        "2",
    ),
)
_OWN = (
    Setting(
        "algorithms.*.preset",
        "string",
        "",
        False,
        "The method whose parts and settings are the defaults. Not set: NAME is that method.",
        '"fadas-da"',
    ),
    *(
        Setting(
            f"algorithms.*.{field}", f"{kind}: name or table", "", False, f"Replaces the method's own {kind}.", example
        )
        for field, kind, example in (
            ("combine", "combine rule", '"calibrated"'),
            ("optimizer", "optimizer", '{name = "yogi", beta1 = 0.8}'),
            ("step_size", "step size", '{name = "cosine", steps = 500, eta = 0.01}'),
        )
    ),
    Setting(
        "algorithms.*.statistics",
        "number",
        "",
        False,
        read_docstring(Algorithm).arguments["statistics"].replace("None:", "Not set:"),
        "0.2",
    ),
    *(
        Setting(
            f"algorithms.*.{section}", "table", "", False, f"Overrides keys of [{section}] for this method.", example
        )
        for section, example in (("local", "{lr = 0.1}"), ("schedule", "{buffer = 1}"), ("run", "{eval_every = 25}"))
    ),
)
_SWEEP = (
    Setting(
        "sweep.*.*",
        "list or table",
        "",
        False,
        "The values to try of one setting: a list, or a range such as `{low = 1e-4, high = 0.1, log = true}`. The "
        "first NAME is that of a table [algorithms.NAME]. The second is a key of that table, such as `eta` or "
        "`local.lr`.",
        "[0.001, 0.003]",
    ),
)
_PROFILES = (
    Setting("profiles.*.*", "table", "", False, "A section, with the keys to change in it.", "{updates = 50}"),
)


def _parts() -> dict[str, tuple[str, Registry]]:
    return dict(zip(PART_FIELDS, PARTS.values(), strict=True))


def _buffered() -> list[str]:
    """Return the methods that use the experiment's M rather than a buffer of their own."""
    return [name for name, make in ALGORITHMS.items() if make().schedule(7, 3).buffer == 3]


def _section(section: str, factory: Callable[..., Any], concerns: Mapping[str, str] = {}) -> Group:
    text = read_docstring(factory)
    settings = (one._replace(concerns=concerns.get(one.name, "")) for one in _from(factory, section))
    return Group(section.partition(".")[0], (), text.summary, text.description, tuple(settings))


def _named_section(section: str, summary: str, default: str, common: Sequence[Setting]) -> Group:
    registry = _REGISTRIES[section]
    known = ", ".join(f'"{name}"' for name in registry)
    example = toml_value(list(registry)[1 if default else 0])  # another one than the default
    name = Setting(
        f"{section}.name", "string", default, not default, f'The {_NAMES[section]}: {known}; or "module:Name".', example
    )
    return Group(section, (), summary, "", (name, *common))


def _entries(section: str, registry: Registry | None = None) -> Iterator[Group]:
    """Yield one group for each entry of a registry. Entries that are made by the same function share a group."""
    registry = _REGISTRIES[section] if registry is None else registry
    taken = {name: parameters_of(make, name)[0] for name, make in registry.items()}
    alike: dict[Any, list[str]] = {}
    for name, make in registry.items():
        alike.setdefault(_function_of(make), []).append(name)
    for names in alike.values():
        factory = registry[names[0]]
        text = read_docstring(factory)
        settings = [
            one._replace(concerns=", ".join(name for name, parameters in taken.items() if one.name in parameters))
            for one in _from(factory, f"algorithms.{names[0]}" if section == "algorithms" else section)
            if one.name not in _HIDDEN.get(section, ())
        ]
        yield Group(section, tuple(names), text.summary, text.description, tuple(settings))


def _from(factory: Callable[..., Any], section: str, only: Sequence[str] | None = None) -> list[Setting]:
    """Return a factory's parameters as settings."""
    parameters, hints = parameters_of(factory, section)
    text = read_docstring(factory)
    examples = _examples(factory, text.examples, list(parameters))
    settings: list[Setting] = []
    for name, parameter in parameters.items():
        if parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL) or (only and name not in only):
            continue
        hint, default = hints.get(name, Any), parameter.default
        required = default is parameter.empty
        shown = "" if required or default is None else _as_toml(default)
        example = examples.get(name) or _other_choice(hint, default) or shown
        meaning = text.arguments.get(name, "").replace("None:", "Not set:")
        settings.append(Setting(f"{section}.{name}", describe_type(hint), shown, required, meaning, example))
    return settings


def _function_of(factory: Any) -> Any:
    while isinstance(factory, partial):
        factory = factory.func
    return factory


def describe_type(hint: Any) -> str:
    """Return what a type hint allows, in words: "whole number", "list of 2 numbers", '"wait" or "replace"'."""
    plain = {int: "whole number", float: "number", str: "string", bool: "true or false", dict: "table"}
    origin, args = get_origin(hint), get_args(hint)
    if hint in plain:
        return plain[hint]
    if origin is Literal:
        return " or ".join(map(toml_value, args))
    if origin in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(describe_type(arg) for arg in args if arg is not type(None)))
    if origin in (tuple, list):
        fixed = origin is tuple and args[-1] is not Ellipsis
        items = get_args(args[0]) if get_origin(args[0]) is types.UnionType else args[:1]
        words = " or ".join(f"{describe_type(item)}s" for item in items)
        return f"list of {len(args)} {words}" if fixed else f"list of {words}"
    if origin is dict or hint is Any:
        return "table"
    return f"{PARTS[hint][0]}: name or table" if hint in PARTS else "table"


def _as_toml(value: Any) -> str:
    """Return a default as TOML. The parts of an algorithm are given by name."""
    for _, registry in PARTS.values():
        for name, make in registry.items():
            if make is type(value):
                return toml_value(name)
    return toml_value(value)


def _other_choice(hint: Any, default: Any) -> str:
    """Return another value than the default where there are few."""
    if hint is bool:
        return toml_value(not default)
    for choice in (hint, *get_args(hint)):
        if get_origin(choice) is Literal:
            return toml_value(next(value for value in get_args(choice) if value != default))
    return ""


def _examples(factory: Any, statements: Sequence[str], parameters: Sequence[str]) -> dict[str, str]:
    """Return the arguments, as TOML, with which the examples of a docstring call the factory."""
    name = getattr(_function_of(factory), "__name__", "")
    found: dict[str, str] = {}
    for call in (node for text in statements for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)):
        if isinstance(call.func, ast.Name) and call.func.id == name:
            given = {
                **dict(zip(parameters, call.args, strict=False)),
                **{k.arg: k.value for k in call.keywords if k.arg},
            }
            values = {key: _read_value(node) for key, node in given.items()}
            found |= {key: toml_value(value) for key, value in values.items() if value is not None}
    return found


def _read_value(node: ast.expr) -> Any:
    """Return an argument as a plain value, a part of an algorithm as a table; None if it is neither."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        for _, registry in PARTS.values():
            for name, make in registry.items():
                if getattr(make, "__name__", "") == node.func.id:
                    keys = list(parameters_of(make, name)[0])
                    given = [*zip(keys, node.args, strict=False), *((k.arg, k.value) for k in node.keywords)]
                    return {"name": name, **{key: _read_value(value) for key, value in given}}
        return None
    try:
        return literal(node)
    except ValueError:
        return None
