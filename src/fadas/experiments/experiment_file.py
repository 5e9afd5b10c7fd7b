"""Experiment files: TOML -> tables, with a profile, another executor and overrides applied. No types yet."""

import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fadas.errors import ConfigError, unknown_name
from fadas.registry import Table
from fadas.runs.serialization import flatten, toml_value
from fadas.validate import whole_number

SECTIONS = ("name", "task", "schedule", "delays", "faults", "local", "checks", "executor", "run", "algorithms", "sweep")
OWN_SECTIONS = ("local", "schedule", "run")  # sections that an algorithm may override for itself
_RUN_KEYS = ("format", "code", "precision")  # keys of a run's config.toml that each run determines for itself
_PATHS = (("task", "path"), ("task", "test"), ("task", "weights"), ("delays", "path"))  # settings that may hold paths
_FILES = (".csv", ".parquet", ".npz", ".safetensors")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,99}")
_LETTERS = "at most 100 letters, digits, '.', '_', '+' and '-'"


def read_experiment(
    path: Path,
    overrides: Sequence[str] = (),
    profile: str | None = None,
    executor: str | None = None,
    changes: Mapping[str, Any] = {},
) -> dict[str, Any]:
    """Return an experiment's tables, with a profile, another executor and changes applied.

    Args:
        path: The experiment file.
        overrides: Settings as `--set` takes them: "a.b=c".
        profile: The name of one of the file's profiles, applied first.
        executor: Use this executor instead of the file's.
        changes: Settings as values, by dotted key. They are applied after the overrides.

    Raises:
        ConfigError: The file cannot be read, or does not have the form of an experiment.

    Example:
        >>> tables = read_experiment(Path("experiment.toml"), overrides=["run.updates=100"])
    """
    tables = _read_toml(path)
    profiles = as_table(tables.pop("profiles", {}), "profiles")
    if profile is not None:
        if profile not in profiles:
            raise unknown_name("profile", profile, profiles) if profiles else ConfigError(f"{path} has no profiles")
        tables = _apply_profile(tables, as_table(profiles[profile], f"profiles.{profile}"), f"profiles.{profile}")
    for section, key in _PATHS:  # a path in the file is relative to the file
        if _has_setting(tables, f"{section}.{key}") and _is_path(key, tables[section][key]):
            tables[section][key] = str((path.parent / tables[section][key]).resolve())
    _switch_executor(tables, executor, overrides)
    for override in overrides:
        _override(tables, *_parse_override(override), f"--set {override}")
    for key, value in changes.items():
        _override(tables, key, value, key)
    _check_form(tables, path)
    return tables


def _is_path(key: str, value: Any) -> bool:
    """Return whether a value names a file or folder. A task of the user's own may mean something else by some keys."""
    return isinstance(value, str) and (key == "path" or value.lower().endswith(_FILES))


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from None
    for key in _RUN_KEYS:
        tables.pop(key, None)
    return {"name": path.stem, **tables}


def _apply_profile(tables: dict[str, Any], changes: dict[str, Any], where: str) -> dict[str, Any]:
    for key, value in flatten({name: changes[name] for name in OWN_SECTIONS if name in changes}).items():
        _put_where_overridden(tables, key, value, where)
    return _merge(tables, changes)


def _switch_executor(tables: dict[str, Any], executor: str | None, overrides: Sequence[str]) -> None:
    """Choose another executor. Options of the file's executor mean nothing to it, except those that both share."""
    from fadas.executors import EXECUTORS  # loads torch, which nothing else here needs
    from fadas.executors.base import executor_traits

    named = [text.partition("=")[2].strip("'\"") for text in overrides if text.startswith("executor.name=")]
    if executor is not None and named and named[-1] != executor:
        raise ConfigError(f"--executor {executor} and --set executor.name={named[-1]} contradict each other")
    executor = named[-1] if named else executor
    section = as_table(tables.get("executor", {}), "executor")
    if executor is not None and executor != section.get("name"):
        shared = executor_traits(EXECUTORS.get(executor)).shared_options
        tables["executor"] = {"name": executor, **{key: section[key] for key in shared if key in section}}


def _parse_override(override: str) -> tuple[str, Any]:
    """Return key and value of "a.b=c"."""
    key, equals, text = override.partition("=")
    if not equals or not all(key.split(".")):
        raise ConfigError(f"--set takes a.b=c, got {override!r}")
    if text in ("nan", "inf") and key.endswith(".kind"):  # of a fault; elsewhere these are numbers
        return key, text
    return key, _parse_value(text)


def _parse_value(text: str) -> Any:
    """Return a value as `--set` takes it: TOML, or a bare word, which is a string."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except ValueError:
        return text


def as_override(key: str, value: Any) -> str:
    """Return a setting as `--set` takes it."""
    return f"{key}={value if isinstance(value, str) and _parse_value(value) == value else toml_value(value)}"


def parse_change(change: str) -> tuple[str, Any]:
    """Return key and value of a setting that `as_override` wrote."""
    return _parse_override(change)


def _override(tables: dict[str, Any], key: str, value: Any, where: str) -> None:
    put_setting(tables, key, value, where)
    if key.partition(".")[0] in OWN_SECTIONS:
        _put_where_overridden(tables, key, value, where)


def _put_where_overridden(tables: dict[str, Any], key: str, value: Any, where: str) -> None:
    """Put a setting into each algorithm that overrides it: profiles and the command line take precedence."""
    for table in as_table(tables.get("algorithms", {}), "algorithms").values():
        if _has_setting(table, key):
            put_setting(table, key, value, where)


def put_setting(tables: dict[str, Any], key: str, value: Any, where: str) -> None:
    """Put a value under a dotted key."""
    *path, last = key.split(".")
    for part in path:
        tables = tables.setdefault(part, {})
        if not isinstance(tables, dict):
            raise ConfigError(f"{where}: {part} is not a table")
    tables[last] = value


def _has_setting(table: Any, key: str) -> bool:
    for part in key.split("."):
        if not isinstance(table, Mapping) or part not in table:
            return False
        table = table[part]
    return True


def _check_whole_numbers(value: Any, where: str = "") -> None:
    """Refuse whole numbers that a run's files could not hold. Python reads them at any length."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            _check_whole_numbers(item, f"{where}.{key}" if where else str(key))
    elif isinstance(value, list):
        for item in value:
            _check_whole_numbers(item, where)
    elif isinstance(value, int) and not isinstance(value, bool):
        try:
            whole_number(**{where: value})
        except ValueError as error:
            raise ConfigError(str(error)) from None


def _check_form(tables: dict[str, Any], path: Path) -> None:
    _check_whole_numbers(tables)
    for key, value in tables.items():
        if key not in SECTIONS:
            raise unknown_name("section", key, SECTIONS)
        if not isinstance(value, str if key == "name" else dict):
            raise ConfigError(f"{key} must be a {'string' if key == 'name' else 'table'}, got {value!r}")
    if not _NAME.fullmatch(tables["name"]):
        way = f'set name = "..." at the top of the file, of {_LETTERS}'
        raise ConfigError(f"the experiment's name {tables['name']!r} cannot name a folder; {way}")
    algorithms = tables.get("algorithms", {})
    for label, table in algorithms.items():
        if not isinstance(table, dict):
            raise ConfigError(f"algorithms.{label} must be a table, got {table!r}")
        if not _NAME.fullmatch(label):
            raise ConfigError(f"algorithms.{label}: this cannot name a folder; use {_LETTERS}")
    for label in tables.get("sweep", {}):
        if label not in algorithms:
            raise unknown_name("algorithm", label, algorithms)
    if not algorithms:
        raise ConfigError(f"{path} names no algorithms: add a table such as [algorithms.fadas]")


def select_algorithms(tables: Table, only: Sequence[str] | None = None) -> list[str]:
    """Return the labels of the algorithms to run.

    Args:
        tables: The experiment, from `read_experiment`.
        only: The labels to choose. None: all.

    Raises:
        ConfigError: The experiment lacks one of them.
    """
    labels = list(tables["algorithms"])
    for label in only or ():
        if label not in labels:
            raise unknown_name("algorithm", label, labels)
    if only is not None and not only:
        raise ConfigError("no algorithm is chosen")
    return labels if only is None else [label for label in labels if label in only]


def _merge(tables: Table, changes: Table) -> dict[str, Any]:
    merged = dict(tables)
    for key, value in changes.items():
        both = isinstance(value, Mapping) and isinstance(merged.get(key), Mapping)
        merged[key] = _merge(merged[key], value) if both else value
    return merged


def as_table(value: Any, where: str) -> dict[str, Any]:
    """Return a copy of a table; a ConfigError if the value is not one."""
    if not isinstance(value, Mapping):
        raise ConfigError(f"{where} must be a table, got {value!r}")
    return dict(value)


def to_plain(value: Any) -> Any:
    """Return only what TOML can hold: no None, no tuples."""
    if isinstance(value, Mapping):
        return {key: to_plain(item) for key, item in value.items() if item is not None}
    if isinstance(value, list | tuple):
        return [to_plain(item) for item in value]
    if not isinstance(value, str | bool | int | float):
        raise ConfigError(f"{value!r} cannot be kept in config.toml; use strings, numbers and lists")
    return value
