"""Write settings into an experiment file. Its comments, order and formatting stay.

tomlkit edits the text. The result is parsed again: it must hold the same settings as before but for the new ones.
Otherwise nothing is written.
"""

import copy
import os
import shutil
import tomllib
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fadas.errors import ConfigError, FadasWarning
from fadas.experiments.experiment_file import put_setting, read_experiment
from fadas.runs.serialization import atomic_file, toml_value

Winners = Mapping[str, Mapping[str, Any]]  # by algorithm: dotted keys of its table -> values
_BOM = "\ufeff"


class WinnersFile:
    """The file into which a sweep writes the best values: the experiment file, or a new copy of it.

    Args:
        source: The experiment file.
        copy_to: The copy. None: the experiment file itself is changed.
        profile: The profile that the sweep runs with.

    Attributes:
        target: The file that is written.

    Example:
        >>> WinnersFile(Path("tune.toml")).write({"fadas": {"eta": 0.002, "local.lr": 0.1}})
    """

    def __init__(self, source: Path, copy_to: Path | None = None, profile: str | None = None) -> None:
        self.source, self.profile = source, profile
        self.target = copy_to or source

    def require_usable(self, points: Winners) -> None:
        """Raise a ConfigError, before the first run, if values such as these points could not be written."""
        if self.target != self.source:
            self._require_new()
        edit_experiment(self.source, points)
        folder = self.target.resolve().parent
        if not os.access(folder, os.W_OK):
            raise ConfigError(f"cannot write {self.target}: the folder {folder} is read-only")

    def _require_new(self) -> None:
        """Refuse a copy that exists, or in which relative paths would mean something else."""
        if self.target.exists():
            raise ConfigError(f"{self.target} exists; choose another file with --apply-to FILE, or delete it")
        if not self.target.parent.is_dir():
            raise ConfigError(f"cannot write {self.target}: there is no folder {self.target.parent}")
        if self.target.parent.resolve() == self.source.parent.resolve():
            return
        tables = _parse(_read_text(self.source), self.source)
        for section in ("task", "delays"):
            path = _setting(tables, f"{section}.path")
            if isinstance(path, str) and not Path(path).is_absolute():
                where = f"{section}.path is relative to {self.source}"
                raise ConfigError(f"cannot write {self.target}: {where}; choose a file in the same folder")

    def write(self, winners: Winners) -> None:
        """Write the best values. Warn of those that the profile sets again.

        Raises:
            ConfigError: A file cannot be read or written, or the settings do not fit into it.
        """
        text = edit_experiment(self.source, winners)
        target = self.target.resolve()  # a link stays a link
        try:
            with atomic_file(target) as file:
                file.write(text.encode())
                if target.exists():
                    shutil.copymode(target, file.name)
        except OSError as error:
            raise ConfigError(f"cannot write {self.target}: {error.strerror}") from None
        if self.profile is not None:
            tables = read_experiment(self.target, profile=self.profile)
            hidden = [
                f"algorithms.{label}.{key}"
                for label, point in winners.items()
                for key, value in point.items()
                if _setting(tables["algorithms"][label], key) != value
            ]
            if hidden:
                text = f"the profile {self.profile} sets {', '.join(hidden)} again; the values there are not changed"
                warnings.warn(text, FadasWarning, stacklevel=2)


def edit_experiment(source: Path, winners: Winners) -> str:
    """Return the text of an experiment file with settings written into it."""
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    text = _read_text(source)
    before = _parse(text, source)
    wanted = copy.deepcopy(before)
    for label, point in winners.items():
        if label not in wanted.get("algorithms", {}):
            raise ConfigError(f"cannot write the best values: {source} has no table [algorithms.{label}]")
        for key, value in point.items():
            put_setting(wanted["algorithms"][label], key, value, f"{source}: algorithms.{label}.{key}")
    try:
        document = tomlkit.parse(text.removeprefix(_BOM).replace("\r\n", "\n"))
        for label, point in winners.items():
            for key, value in point.items():
                if _setting(before["algorithms"][label], key) != value:
                    _put(document, ["algorithms", label, *key.split(".")], value)
        edited = tomlkit.dumps(document)
        same = tomllib.loads(edited) == wanted
    except (TOMLKitError, ValueError, TypeError, AttributeError, LookupError):  # tomlkit has many ways to fail
        same, edited = False, ""
    if not same:
        raise ConfigError(f"{source}: its tables are written in a way that cannot be edited; nothing was written")
    if "\r\n" in text:
        edited = edited.replace("\n", "\r\n")
    return _BOM * text.startswith(_BOM) + edited


def _put(table: Any, path: list[str], value: Any) -> None:
    """Put a value into a table of tomlkit: in place if the key exists, else behind the table's other keys."""
    from tomlkit.items import InlineTable, Table

    first, *rest = path
    if rest and isinstance(table.get(first), InlineTable):
        inner = table[first].unwrap()
        put_setting(inner, ".".join(rest), value, ".".join(path))
        _put(table, [first], inner)
    elif rest and first in table:
        _put(table[first], rest, value)
    elif first in table:
        item = _as_item(value)
        if trivia := getattr(table[first], "trivia", None):  # the comment on its line
            item.trivia.comment, item.trivia.comment_ws = trivia.comment, trivia.comment_ws
            item.trivia.trail = trivia.trail
        table[first] = item
    elif isinstance(table, Table):
        _append(table, path, value)
    else:
        for part in reversed(rest):
            value = {part: value}
        table[first] = _as_item(value)


def _append(table: Any, path: list[str], value: Any) -> None:
    """Append a key to a table, before the comments and empty lines at its end. These belong to the next table."""
    import tomlkit

    body, end = table.value.body, []
    while body and body[-1][0] is None and any(key is not None for key, _ in body):
        end.insert(0, body.pop())
    table.append(tomlkit.key(path), _as_item(value))
    body.extend(end)


def _as_item(value: Any) -> Any:
    import tomlkit

    return tomlkit.value(toml_value(value))


def _setting(table: Any, key: str) -> Any:
    for part in key.split("."):
        if not isinstance(table, Mapping) or part not in table:
            return None
        table = table[part]
    return table


def _read_text(path: Path) -> str:
    try:
        return path.read_bytes().decode()
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    except ValueError as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from None


def _parse(text: str, path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(text.removeprefix(_BOM))
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from None
