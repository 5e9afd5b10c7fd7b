"""Tables to TOML text; reading is the standard library's."""

import json
import math
import re
from collections.abc import Mapping
from typing import Any

Table = Mapping[str, Any]


def dumps(tables: Table) -> str:
    """Tables as TOML, in a form that `tomllib` reads back to the same tables."""
    return "\n".join(_lines(tables, ())).lstrip("\n") + "\n"


def flatten(table: Table, prefix: str = "") -> dict[str, Any]:
    """Nested tables as one, with dotted keys."""
    flat: dict[str, Any] = {}
    for key, value in table.items():
        flat |= flatten(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {prefix + key: value}
    return flat


def _lines(table: Table, path: tuple[str, ...]) -> list[str]:
    values = {key: value for key, value in table.items() if not isinstance(value, Mapping)}
    lines = [f"{_key(key)} = {toml_value(value)}" for key, value in values.items()]
    if path and (lines or not table):
        lines.insert(0, f"\n[{'.'.join(map(_key, path))}]")
    for key, value in table.items():
        if isinstance(value, Mapping):
            lines += _lines(value, (*path, key))
    return lines


def _key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else toml_value(key)


def toml_value(value: Any) -> str:
    """A single value as TOML."""
    if hasattr(value, "item"):  # a scalar of NumPy's
        value = value.item()
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return f"[{', '.join(map(toml_value, value))}]"
    if isinstance(value, Mapping):  # inside a list; elsewhere tables have a heading of their own
        return f"{{{', '.join(f'{_key(key)} = {toml_value(item)}' for key, item in value.items())}}}"
    return repr(value)


def to_json(value: Any) -> str:
    """Strict JSON: a number that is not finite (a diverged loss) becomes null."""
    return json.dumps(_finite(value), allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list | tuple) else value
