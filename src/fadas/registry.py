"""Objects from plain tables: `{"name": "large", "gamma": 0.5}` -> `Large(gamma=0.5)`, checked against the signature.

One mechanism serves every registry, every section of an experiment file and every file that fadas reads back. A
mistake is a `ConfigError` of one line. It says where the mistake is and suggests the nearest known name.
"""

import hashlib
import inspect
import os
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import is_dataclass
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, TypeGuard, Union, cast, get_args, get_origin, get_type_hints

from fadas.errors import ConfigError, first_line, place_of, unknown_name
from fadas.validate import InvalidValue

Table = Mapping[str, Any]
Registry = Mapping[str, Callable[..., Any]]
Parts = Mapping[Any, tuple[str, Registry]]  # type hint -> (what to call it, the registry that makes it)

# An experiment file may come from anywhere. Code that it names is imported only if the user allows it.
ALLOW_CODE = "FADAS_ALLOW_CODE"
_DIGEST = "__fadas_digest__"  # an attribute of the user's modules: a digest of the file as it was imported


def is_table(value: Any) -> TypeGuard[Table]:
    """Return whether this is a table, as TOML and JSON have them."""
    return isinstance(value, Mapping)


def is_list(value: Any) -> TypeGuard[list[Any] | tuple[Any, ...]]:
    """Return whether this is a list or a tuple."""
    return isinstance(value, list | tuple)


def lookup(registry: Registry, kind: str, name: Any) -> Callable[..., Any]:
    """Return a registry's entry, or the user's own code for a name such as "package.module:Name".

    Args:
        registry: Known names and what makes them.
        kind: What the name stands for, for error messages.
        name: The name as the user typed it.
    """
    if not isinstance(name, str):
        raise ConfigError(f"{kind} must be a name, got {name!r}")
    if name in registry:
        return registry[name]
    module, colon, attribute = name.partition(":")
    if not colon:
        raise unknown_name(kind, name, registry)
    if os.environ.get(ALLOW_CODE) != "1":
        raise ConfigError(f"{kind} {name!r} is code outside fadas, which runs only with --allow-code ({ALLOW_CODE}=1)")
    if "" not in sys.path:
        sys.path.append("")  # finds code in the current folder; at the end, so that it hides no other module
    try:
        found = getattr(_import_code(module), attribute)
    except Exception as error:  # importing runs the user's code, which may fail in any way
        where = " (searched the current folder and Python's path)" if isinstance(error, ImportError) else ""
        raise ConfigError(f"cannot import {kind} {name!r}: {first_line(error)}{where}") from error
    if not callable(found):
        raise ConfigError(f"{kind} {name!r} must be a class or a function, got {type(found).__name__}")
    return found


def _import_code(name: str) -> types.ModuleType:
    module = import_module(name)
    with suppress(OSError):  # not every module is a file
        content = Path(getattr(module, "__file__", None) or "").read_bytes()
        if _DIGEST not in vars(module):  # the file may have changed since it was imported
            setattr(module, _DIGEST, hashlib.sha256(content).hexdigest()[:12])
    return module


def code_digests(names: Sequence[str]) -> dict[str, str]:
    """Return a digest of the code behind each name such as "package.module:Name" that was imported from a file."""
    modules = sorted({name.partition(":")[0] for name in names if ":" in name})
    digests = {module: getattr(sys.modules.get(module), _DIGEST, None) for module in modules}
    return {module: digest for module, digest in digests.items() if digest}


def parameters_of(factory: Callable[..., Any], where: str) -> tuple[dict[str, inspect.Parameter], dict[str, Any]]:
    """Return a factory's parameters and their type hints."""
    function: Any = factory
    while isinstance(function, partial):
        function = cast(Any, function).func
    try:
        hints = get_type_hints(_code_of(function))
        return dict(inspect.signature(factory).parameters), hints
    except Exception as error:  # built-in and wrongly annotated callables have none
        name = getattr(function, "__name__", type(function).__name__)
        raise ConfigError(f"{where}: {name} cannot be used here: {first_line(error)}") from None


def _code_of(function: Any) -> Any:
    """Return the function that a call of a class, a function or an object runs."""
    if inspect.isclass(function):
        return function.__init__
    return function if inspect.isroutine(function) else type(function).__call__


def default_arguments(factory: Callable[..., Any], where: str) -> dict[str, Any]:
    """Return a factory's default arguments."""
    parameters, _ = parameters_of(factory, where)
    return {name: p.default for name, p in parameters.items() if p.default is not p.empty}


def check_arguments(
    factory: Callable[..., Any],
    table: Table,
    where: str,
    parts: Parts = {},
    supplied_by_run: Sequence[str] = (),
    also_known: Sequence[str] = (),
) -> dict[str, Any]:
    """Return a factory's keyword arguments from the user's table, checked and completed with defaults.

    Args:
        factory: A class or a function. Its signature says what the table may hold.
        table: The user's settings.
        where: The name of the section, for error messages.
        parts: Registries for parameters that are objects themselves.
        supplied_by_run: Parameters that the caller passes later. The user must not set them.
        also_known: Other keys of the user's table, to suggest for a misspelt key.
    """
    parameters, hints = parameters_of(factory, where)
    open_ended = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    named = {name: p for name, p in parameters.items() if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)}
    named = {name: p for name, p in named.items() if name not in supplied_by_run}
    for key in table:
        if key not in named and not open_ended:
            raise unknown_name("key", f"{where}.{key}", [f"{where}.{name}" for name in [*named, *also_known]])
    values = dict(table)
    for name, parameter in named.items():
        if name in table:
            values[name] = convert(table[name], hints.get(name, Any), f"{where}.{name}", parts)
        elif parameter.default is not parameter.empty:
            values[name] = parameter.default
        else:
            raise ConfigError(f"{where}.{name} is missing")
    return values


def build(
    factory: Callable[..., Any], table: Table, where: str, parts: Parts = {}, supplied_by_run: Sequence[str] = ()
) -> Any:
    """Call a factory with the user's table as its keyword arguments. The arguments are those of `check_arguments`."""
    values = check_arguments(factory, table, where, parts, supplied_by_run)
    try:
        return factory(**{name: value for name, value in values.items() if name in table})
    except ConfigError:
        raise
    except InvalidValue as error:  # "lr must be ..." -> "local.lr must be ..."
        raise ConfigError(f"{where}{'.' if error.name in values else ': '}{error}") from None
    except ValueError as error:
        raise ConfigError(f"{where}: {error}") from None
    except Exception as error:  # the user's own code may fail in any way
        if _is_ours(factory):
            raise
        raise ConfigError(f"{where}: {type(error).__name__}: {first_line(error)}{place_of(error)}") from error


def _is_ours(factory: Callable[..., Any]) -> bool:
    """Return whether a factory is a part of fadas."""
    while isinstance(factory, partial):
        factory = cast(Callable[..., Any], cast(Any, factory).func)
    return f"{getattr(factory, '__module__', '')}.".startswith("fadas.")


def convert(value: Any, hint: Any, where: str, parts: Parts = {}) -> Any:
    """Return a value as the hinted type. Whole numbers pass as floats; nothing else is coerced.

    Args:
        value: A plain value, as TOML or JSON holds it.
        hint: A type hint: a plain type, a union, a tuple, list or dict, a literal, a dataclass, or a key of `parts`.
        where: The name of the setting, for error messages.
        parts: Registries for hints that stand for objects.

    Raises:
        ConfigError: The value does not fit. The message names the setting and the value.
    """
    if parts and hint in parts:
        kind, registry = parts[hint]
        table: Any = {"name": value} if isinstance(value, str) else value
        if not is_table(table):
            raise ConfigError(f"{where} must be a name or a table with a name, got {value!r}")
        if "name" not in table:
            raise ConfigError(f"{where}.name is missing; known: {', '.join(registry)}")
        rest = {key: item for key, item in table.items() if key != "name"}
        return build(lookup(registry, kind, table["name"]), rest, where, parts)
    return _converter(hint)(value, where, parts)


_Converter = Callable[[Any, str, Parts], Any]


@cache
def _converter(hint: Any) -> _Converter:
    """Return the function that converts values to a hinted type."""
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return _to_union(args)
    if origin is Literal:
        return _to_literal(args)
    if origin in (tuple, list):
        return _to_sequence(origin, args)
    if origin is dict or hint is dict:
        return _to_dict(args)
    if isinstance(hint, type) and is_dataclass(hint):
        return lambda value, where, parts: build(hint, _checked(value, Mapping, "a table", where), where, parts)
    if hint in _PLAIN:
        return _to_plain(hint)
    return lambda value, where, parts: value


def _to_union(args: tuple[Any, ...]) -> _Converter:
    optional, others = type(None) in args, [arg for arg in args if arg is not type(None)]

    def to_union(value: Any, where: str, parts: Parts) -> Any:
        if value is None and optional:
            return None
        if isinstance(value, Mapping | str) and str not in others and (part := [one for one in others if one in parts]):
            return convert(value, part[0], where, parts)  # a name or a table can be nothing else
        problems: list[str] = []
        for other in others:
            try:
                return convert(value, other, where, parts)
            except ConfigError as error:
                problems.append(str(error))
        raise ConfigError("; or ".join(dict.fromkeys(problems)))

    return to_union


def _to_literal(choices: tuple[Any, ...]) -> _Converter:
    def to_literal(value: Any, where: str, parts: Parts) -> Any:
        if value not in choices:
            raise ConfigError(f"{where} must be one of {', '.join(map(repr, choices))}, got {value!r}")
        return value

    return to_literal


def _to_sequence(origin: Callable[[list[Any]], Any], args: tuple[Any, ...]) -> _Converter:
    fixed = origin is tuple and args[-1] is not Ellipsis
    expected = f"a list of {len(args)}" if fixed else "a list"

    def to_sequence(value: Any, where: str, parts: Parts) -> Any:
        if not is_list(value) or (fixed and len(value) != len(args)):
            raise ConfigError(f"{where} must be {expected}, got {value!r}")
        hints = args if fixed else [args[0]] * len(value)
        return origin([convert(item, hint, where, parts) for item, hint in zip(value, hints, strict=True)])

    return to_sequence


def _to_dict(args: tuple[Any, ...]) -> _Converter:
    hint = args[1] if args else Any

    def to_dict(value: Any, where: str, parts: Parts) -> Any:
        table = _checked(value, Mapping, "a table", where)
        if hint is Any:
            return table
        return {key: convert(item, hint, f"{where}.{key}", parts) for key, item in table.items()}

    return to_dict


_PLAIN: dict[Any, tuple[Any, str]] = {
    bool: (bool, "true or false"),
    int: (int, "a whole number"),
    float: (int | float, "a number"),
    str: (str, "a string"),
}


def _to_plain(hint: Any) -> _Converter:
    kinds, expected = _PLAIN[hint]

    def to_plain(value: Any, where: str, parts: Parts) -> Any:
        if not isinstance(value, kinds) or (hint is not bool and isinstance(value, bool)):
            raise ConfigError(f"{where} must be {expected}, got {value!r}")
        return float(value) if hint is float else value

    return to_plain


def _checked(value: Any, kind: Any, expected: str, where: str) -> Any:
    if not isinstance(value, kind):
        raise ConfigError(f"{where} must be {expected}, got {value!r}")
    return value
