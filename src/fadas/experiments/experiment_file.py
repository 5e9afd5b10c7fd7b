"""Experiment files: TOML -> tables, with a profile, another executor and overrides applied. No types yet."""

import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fadas.errors import ConfigError, unknown
from fadas.registry import Table
from fadas.runs.serialization import flatten, toml_value

SECTIONS = ("name", "task", "schedule", "delays", "faults", "local", "checks", "executor", "run", "algorithms", "sweep")
OWN_SECTIONS = ("local", "schedule", "run")  # sections that an algorithm may override for itself
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,99}")
_LETTERS = "letters, digits, '.', '_', '+' and '-', 100 at most"


def read_experiment(
    path: Path, overrides: Sequence[str] = (), profile: str | None = None, executor: str | None = None
) -> dict[str, Any]:
    """An experiment's tables, with one of its profiles, another executor, and then `a.b=c` overrides applied."""
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from None
    tables.setdefault("name", path.stem)
    tables.pop("code", None)  # of a run's own config.toml: which code it had is for that run to say
    profiles = as_table(tables.pop("profiles", {}), "profiles")
    if profile is not None:
        if profile not in profiles:
            raise unknown("profile", profile, profiles) if profiles else ConfigError(f"{path} has no profiles")
        changes = as_table(profiles[profile], f"profiles.{profile}")
        for key, value in flatten({name: changes[name] for name in OWN_SECTIONS if name in changes}).items():
            _put_where_overridden(tables, key, value, f"profiles.{profile}")
        tables = _merge(tables, changes)
    for section in ("task", "delays"):  # a path in the file is relative to the file
        if _has(tables, f"{section}.path") and isinstance(tables[section]["path"], str):
            tables[section]["path"] = str((path.parent / tables[section]["path"]).resolve())
    named = [text.partition("=")[2].strip("'\"") for text in overrides if text.startswith("executor.name=")]
    if executor is not None and named and named[-1] != executor:
        raise ConfigError(f"--executor {executor} and --set executor.name={named[-1]} contradict each other")
    executor = named[-1] if named else executor
    section = as_table(tables.get("executor", {}), "executor")
    if executor is not None and executor != section.get("name"):  # the other executor's options mean nothing to it
        common = ("device", "threads", "compile") if executor in ("auto", "cuda", "ray") else ("device", "threads")
        tables["executor"] = {"name": executor, **{key: section[key] for key in common if key in section}}
    for override in overrides:
        _override(tables, override)
    for key, value in tables.items():
        if key not in SECTIONS:
            raise unknown("section", key, SECTIONS)
        if not isinstance(value, str if key == "name" else dict):
            raise ConfigError(f"{key} must be a {'string' if key == 'name' else 'table'}, not {value!r}")
    if not _NAME.fullmatch(tables["name"]):
        way = f'begin the file with name = "...", of {_LETTERS}'
        raise ConfigError(f"the experiment's name {tables['name']!r} cannot name a folder; {way}")
    for label, table in tables.get("algorithms", {}).items():
        if not isinstance(table, dict):
            raise ConfigError(f"algorithms.{label} must be a table, not {table!r}")
        if not _NAME.fullmatch(label):
            raise ConfigError(f"algorithms.{label}: this cannot name a folder; use {_LETTERS}")
    for label in tables.get("sweep", {}):
        if label not in tables.get("algorithms", {}):
            raise unknown("algorithm", label, tables.get("algorithms", {}))
    if not tables.get("algorithms"):
        raise ConfigError(f"{path} names no algorithms: add a table such as [algorithms.fadas]")
    return tables


def _override(tables: dict[str, Any], override: str) -> None:
    key, equals, text = override.partition("=")
    if not equals or not all(key.split(".")):
        raise ConfigError(f"--set takes a.b=c, not {override!r}")
    value = _read(text)
    if text in ("nan", "inf") and key.endswith(".kind"):  # of faults
        value = text
    put_setting(tables, key, value, f"--set {override}")
    if key.partition(".")[0] in OWN_SECTIONS:
        _put_where_overridden(tables, key, value, f"--set {override}")


def _read(text: str) -> Any:
    """A value as --set takes it: TOML, or a bare word, which is a string."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except ValueError:
        return text


def as_override(key: str, value: Any) -> str:
    """A setting as --set takes it."""
    return f"{key}={value if isinstance(value, str) and _read(value) == value else toml_value(value)}"


def _put_where_overridden(tables: dict[str, Any], key: str, value: Any, where: str) -> None:
    """What a profile or the command line says of a section counts for every algorithm, whatever it has of its own."""
    for table in as_table(tables.get("algorithms", {}), "algorithms").values():
        if _has(table, key):
            put_setting(table, key, value, where)


def put_setting(tables: dict[str, Any], key: str, value: Any, where: str) -> None:
    *path, last = key.split(".")
    for part in path:
        tables = tables.setdefault(part, {})
        if not isinstance(tables, dict):
            raise ConfigError(f"{where}: {part} is not a table")
    tables[last] = value


def _has(table: Any, key: str) -> bool:
    for part in key.split("."):
        if not isinstance(table, Mapping) or part not in table:
            return False
        table = table[part]
    return True


def select_algorithms(tables: Table, only: Sequence[str] | None = None) -> list[str]:
    """The labels of the algorithms to run."""
    labels = list(tables["algorithms"])
    for label in only or ():
        if label not in labels:
            raise unknown("algorithm", label, labels)
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
    if not isinstance(value, Mapping):
        raise ConfigError(f"{where} must be a table, not {value!r}")
    return dict(value)
