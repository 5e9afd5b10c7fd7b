"""Objects from plain tables: `{"name": "large", "gamma": 0.5}` -> `Large(gamma=0.5)`, checked against the signature.

One mechanism serves every registry and every section of a configuration. Each mistake is a `ConfigError` of one line
that says where it is and, for a name, what was probably meant.
"""

import hashlib
import inspect
import os
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from fadas.errors import ConfigError, unknown

Table = Mapping[str, Any]
Registry = Mapping[str, Callable[..., Any]]
Parts = Mapping[Any, tuple[str, Registry]]  # type hint -> (what to call it, the registry that makes it)


# An experiment file may come from anywhere: what it names outside fadas is imported only when the user says so.
ALLOW_CODE = "FADAS_ALLOW_CODE"


def lookup(registry: Registry, kind: str, name: Any) -> Callable[..., Any]:
    """A registry's entry, or outside code as "package.module:Name"."""
    if not isinstance(name, str):
        raise ConfigError(f"{kind} must be a name, not {name!r}")
    if name in registry:
        return registry[name]
    module, colon, attribute = name.partition(":")
    if not colon:
        raise unknown(kind, name, registry)
    if os.environ.get(ALLOW_CODE) != "1":
        raise ConfigError(f"{kind} {name!r} is code outside fadas, which runs only with --allow-code ({ALLOW_CODE}=1)")
    if "" not in sys.path:
        sys.path.append("")  # code in the current folder is found; at the end, so that it hides nobody else's
    try:
        found = getattr(_imported(module), attribute)
    except Exception as error:  # importing runs the user's code, which may fail in any way
        where = " (looked for in the current folder and where Python does)" if isinstance(error, ImportError) else ""
        raise ConfigError(f"cannot import {kind} {name!r}: {_first_line(error)}{where}") from error
    if not callable(found):
        raise ConfigError(f"{kind} {name!r} is a {type(found).__name__}, not something that makes one")
    return found


outside: dict[str, str] = {}  # by the name of a module of the user's: a digest of its file when it was imported


def _imported(name: str) -> types.ModuleType:
    module = import_module(name)
    with suppress(OSError):  # not every module is a file
        content = Path(getattr(module, "__file__", None) or "").read_bytes()
        outside.setdefault(name, hashlib.sha256(content).hexdigest()[:12])
    return module


def _first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]


def parameters_of(factory: Callable[..., Any], where: str) -> tuple[dict[str, inspect.Parameter], dict[str, Any]]:
    """A factory's parameters and their type hints."""
    function = factory.func if isinstance(factory, partial) else factory
    try:
        hints = get_type_hints(function.__init__ if inspect.isclass(function) else function)
        return dict(inspect.signature(factory).parameters), hints
    except Exception as error:  # built-in and wrongly annotated callables have none
        name = getattr(function, "__name__", type(function).__name__)
        raise ConfigError(f"{where}: {name} cannot be used here: {_first_line(error)}") from None


def defaults(factory: Callable[..., Any], where: str) -> dict[str, Any]:
    """The factory's default arguments."""
    parameters, _ = parameters_of(factory, where)
    return {name: p.default for name, p in parameters.items() if p.default is not p.empty}


def arguments(
    factory: Callable[..., Any],
    table: Table,
    where: str,
    parts: Parts = {},
    later: Sequence[str] = (),
    beside: Sequence[str] = (),
) -> dict[str, Any]:
    """The factory's keyword arguments, checked and complete with defaults; without those that are given `later`.

    `beside`: what else may stand in the user's table, for who misspelt it.
    """
    parameters, hints = parameters_of(factory, where)
    open_ended = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    named = {name: p for name, p in parameters.items() if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)}
    named = {name: p for name, p in named.items() if name not in later}
    for key in table:
        if key not in named and not open_ended:
            raise unknown("key", f"{where}.{key}", [f"{where}.{name}" for name in {**named, **dict.fromkeys(beside)}])
    values = dict(table)
    for name, parameter in named.items():
        if name in table:
            values[name] = convert(table[name], hints.get(name, Any), f"{where}.{name}", parts)
        elif parameter.default is not parameter.empty:
            values[name] = parameter.default
        else:
            raise ConfigError(f"{where}.{name} is missing")
    return values


def build(factory: Callable[..., Any], table: Table, where: str, parts: Parts = {}) -> Any:
    """Call the factory with the table as its keyword arguments."""
    values = arguments(factory, table, where, parts)
    try:
        return factory(**{name: value for name, value in values.items() if name in table})
    except ConfigError:
        raise
    except ValueError as error:
        raise ConfigError(f"{where}: {error}") from None


def convert(value: Any, hint: Any, where: str, parts: Parts = {}) -> Any:
    """The value as the hinted type, or a ConfigError. Whole numbers pass as floats; nothing else is coerced."""
    if hint in parts:
        kind, registry = parts[hint]
        table = {"name": value} if isinstance(value, str) else value
        if not isinstance(table, Mapping):
            raise ConfigError(f"{where} must be a name or a table with a name, not {value!r}")
        rest = {key: item for key, item in table.items() if key != "name"}
        return build(lookup(registry, kind, table.get("name")), rest, where)
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        if value is None and type(None) in args:
            return None
        problems: list[str] = []
        for arg in args:
            if arg is not type(None):
                try:
                    return convert(value, arg, where, parts)
                except ConfigError as error:
                    problems.append(str(error))
        raise ConfigError("; or ".join(dict.fromkeys(problems)))
    if origin is Literal:
        if value not in args:
            raise ConfigError(f"{where} must be one of {', '.join(map(repr, args))}, not {value!r}")
        return value
    if origin in (tuple, list):
        if not isinstance(value, list | tuple) or (
            args[-1] is not Ellipsis and origin is tuple and len(value) != len(args)
        ):
            length = "" if origin is list or args[-1] is Ellipsis else f" of {len(args)}"
            raise ConfigError(f"{where} must be a list{length}, not {value!r}")
        return origin(convert(item, args[0], where) for item in value)
    if origin is dict or hint is dict:
        expected: Any = Mapping
    elif hint is float:
        expected = int | float
    elif hint in (bool, int, str):
        expected = hint
    else:
        return value
    if not isinstance(value, expected) or (isinstance(value, bool) and hint is not bool):
        name = {bool: "true or false", int: "a whole number", float: "a number", str: "a string"}.get(hint, "a table")
        raise ConfigError(f"{where} must be {name}, not {value!r}")
    return float(value) if hint is float else value
