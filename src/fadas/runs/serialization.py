"""Conversion of plain values to and from JSON and TOML, typed tables, and atomic writing of files."""

import errno
import json
import math
import os
import tomllib
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import IO, Any, TypeVar, cast

import tomli_w

from fadas.core.records import LATEST
from fadas.errors import Damaged
from fadas.registry import convert, is_list, is_table

Table = Mapping[str, Any]
T = TypeVar("T")
_DEEPEST = 100  # levels of nesting; what fadas writes has less than ten
_TOO_DEEP = "it is nested too deeply"


def to_json(value: Any) -> str:
    """Return strict JSON. A number that is not finite, such as a diverged loss, becomes null."""
    return json.dumps(_finite_or_none(value), allow_nan=False)


def _finite_or_none(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if is_table(value):
        return {key: _finite_or_none(item) for key, item in value.items()}
    return [_finite_or_none(item) for item in value] if is_list(value) else value


def to_toml(tables: Table) -> str:
    """Return tables as TOML."""
    return tomli_w.dumps(_native(tables))


def toml_value(value: Any) -> str:
    """Return a single value as TOML, on one line."""
    value = _native(value)
    if is_list(value):
        return f"[{', '.join(map(toml_value, value))}]"
    if is_table(value):
        return f"{{{', '.join(f'{_toml_key(key)} = {toml_value(item)}' for key, item in value.items())}}}"
    return tomli_w.dumps({"value": value}).partition("=")[2].strip()


def _toml_key(key: str) -> str:
    return tomli_w.dumps({key: 0}).rpartition("=")[0].strip()


def _native(value: Any) -> Any:
    """Return a value without NumPy's scalars and without tuples, which tomli-w does not write."""
    if is_table(value):
        return {key: _native(item) for key, item in value.items()}
    if is_list(value):
        return [_native(item) for item in value]
    return value.item() if hasattr(value, "item") else value


def flatten(table: Table, prefix: str = "") -> dict[str, Any]:
    """Return nested tables as one table with dotted keys.

    Example:
        >>> flatten({"run": {"steps": 5}})
        {'run.steps': 5}
    """
    flat: dict[str, Any] = {}
    for key, value in table.items():
        flat |= flatten(value, f"{prefix}{key}.") if is_table(value) else {prefix + key: value}
    return flat


def parse_json(path: Path) -> Any:
    """Return the content of a JSON file.

    Raises:
        Damaged: The file is missing, cannot be read, or is not JSON.
    """
    return _parsed(path, strict_json)


def strict_json(text: str | bytes) -> Any:
    """Return the content of a JSON text. NaN, Infinity and repeated keys, which Python accepts, are errors."""
    try:
        value = json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_unique_keys)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    _require_shallow(value)
    return value


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) < len(pairs):
        name, _ = Counter(name for name, _ in pairs).most_common(1)[0]
        raise ValueError(f"the key {name!r} is repeated")
    return table


def _require_shallow(value: Any) -> None:
    """Refuse what is nested so deeply that functions which call themselves would fail."""
    level = [value]
    for _ in range(_DEEPEST):
        level = [item for outer in level for item in _items(outer)]
        if not level:
            return
    raise ValueError(_TOO_DEEP)


def _items(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return cast(dict[str, Any], value).values()
    return cast(list[Any], value) if isinstance(value, list) else ()


def parse_toml(path: Path) -> dict[str, Any]:
    """Return the content of a TOML file.

    Raises:
        Damaged: The file is missing, cannot be read, or is not TOML.
    """
    return _parsed(path, _shallow_toml)


def _shallow_toml(text: str) -> dict[str, Any]:
    try:
        tables = tomllib.loads(text)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    _require_shallow(tables)
    return tables


def _parsed(path: Path, parse: Callable[[str], Any]) -> Any:
    try:
        return parse(read_text(path))
    except Damaged:
        raise
    except ValueError as error:
        raise Damaged(f"{path} is damaged: {error}") from None


def read_text(path: Path) -> str:
    """Return the text of a file.

    Raises:
        Damaged: The file is missing, cannot be read, or is something other than a file, such as a pipe.
    """
    try:
        require_file(path)
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise Damaged(f"cannot read {path}: {error.strerror}") from None


def require_file(path: Path) -> None:
    """Refuse what is not a file: a pipe would make us wait, and a device may never end."""
    if path.exists() and not path.is_file():
        raise Damaged(f"cannot read {path}: it is not a file")


def from_table(kind: type[T], table: Any, where: str) -> T:
    """Return a dataclass from a table that fadas wrote. Keys that the dataclass does not have are ignored.

    Args:
        kind: The dataclass.
        table: A table, as JSON or TOML holds it.
        where: The name of the table, for error messages.

    Raises:
        ValueError: A key is missing, or a value is of the wrong type, not finite or too large to draw.
    """
    if is_table(table):
        known = _field_names(kind)
        table = {key: value for key, value in table.items() if key in known}
        check_numbers(table, where)
    return convert(table, kind, where)


@cache
def _field_names(kind: Any) -> frozenset[str]:
    return frozenset(field.name for field in fields(kind))


def check_numbers(value: Any, where: str, latest: float | None = LATEST) -> None:
    """Refuse whole numbers of more than 64 bits, and floats that reach `latest`, anywhere in a plain value."""
    if isinstance(value, float):
        if latest is not None and abs(value) >= latest:
            raise ValueError(f"{where} is too large: {str(value)[:20]}")
    elif isinstance(value, int):
        if not -(2**63) <= value < 2**64:
            raise ValueError(f"{where} is too large: it has more than 64 bits")
    elif is_table(value):
        for key, item in value.items():
            check_numbers(item, f"{where}.{key}", latest)
    elif is_list(value):
        for item in value:
            check_numbers(item, where, latest)


@contextmanager
def atomic_file(path: Path) -> Generator[IO[bytes], None, None]:
    """Open a file for writing. It appears under its name completely or not at all, even after a power cut.

    Example:
        >>> with atomic_file(folder / "summary.json") as file:
        ...     file.write(b"{}")
    """
    if not path.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "there is no such folder", str(path.parent))
    draft = path.with_name(f"{path.name}.{os.getpid()}.tmp")  # another process may write the same file
    try:
        with draft.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
        _sync_folder(path.parent)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def write_text(path: Path, text: str) -> None:
    """Write a text file completely or not at all."""
    with atomic_file(path) as file:
        file.write(text.encode())


def _sync_folder(folder: Path) -> None:
    """Make a rename within the folder survive a power cut."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
