"""A run's folder: config.toml, metrics.jsonl (one line per server step), model.safetensors, at the end summary.json.

summary.json is written last: a folder without it holds a run that did not finish. Reading needs no torch.
"""

import hashlib
import json
import math
import os
import shutil
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fadas.errors import ConfigError
from fadas.runs import lock
from fadas.runs import reader as intact
from fadas.runs.folder import checkpoints, is_checkpoint, is_ours
from fadas.runs.same_run import differences, identity, same
from fadas.runs.serialization import dumps

Line = dict[str, Any]


@dataclass(frozen=True)
class Run:
    """A finished run, read back."""

    folder: Path
    config: dict[str, Any]
    records: list[Line]
    summary: Line
    counts: list[list[int]] | None = None  # examples of each label, by client

    @property
    def label(self) -> str:
        return self.summary["algorithm"]

    @property
    def diverged(self) -> str | None:
        """Why it ended early, where it did."""
        return self.summary.get("diverged")

    @property
    def clock(self) -> str:
        """What its times are: a deployment's are real."""
        return "seconds" if self.config.get("task", {}).get("name") == "flower" else "virtual time"

    @property
    def evaluations(self) -> list[Line]:
        return [record for record in self.records if record["metrics"]]


def check(folder: Path, tables: Mapping[str, Any], overwrite: bool = False, resume: bool = False) -> bool:
    """Is this very run finished already? A folder that must not be written to is an error."""
    if not folder.exists():
        if blocked := next((path for path in folder.parents if path.exists() and not path.is_dir()), None):
            raise ConfigError(f"{blocked} exists and is not a folder", "foreign")
        return False
    if not folder.is_dir() or not _may_hold_run({path.name for path in folder.iterdir()}):
        raise ConfigError(f"{folder} exists and is not a run of fadas", "foreign")
    settings = folder / "config.toml"
    if settings.exists() and not overwrite:
        try:
            held = tomllib.loads(settings.read_text(encoding="utf-8"))
        except ValueError:
            held = {}
        if not same(held, tables):
            some = differences(held, tables)
            which = "; ".join([*some[:2], *([f"{len(some) - 2} more"] if len(some) > 2 else [])])
            raise ConfigError(f"{folder} holds a run with other settings{f' ({which})' if which else ''}", "settings")
        if (folder / "summary.json").exists():
            return True
    lock.check_free(folder)
    if not overwrite and (folder / "summary.json").exists():  # finished while we waited for the lock
        return check(folder, tables, overwrite, resume)
    if not (overwrite or resume) and checkpoints(folder):
        raise ConfigError(f"{folder} holds an interrupted run", "unfinished")
    return False


def claim(folder: Path, tables: Mapping[str, Any], overwrite: bool = False, resume: bool = False) -> bool:
    """As `check`; but where the run is not finished, the folder is this process's from now on."""
    if not check(folder, tables, overwrite, resume):  # else nothing of ours belongs there, nor a lock
        lock.take(folder)
    if not check(folder, tables, overwrite, resume):  # another may have been faster
        return False
    lock.release(folder)
    return True


def _may_hold_run(names: set[str]) -> bool:
    """Does a folder with these files hold a run, or nothing yet? What else lies beside a run is left alone."""
    return "config.toml" in names or names <= {lock.NAME, "config.toml.tmp"}


def _empty(folder: Path) -> None:
    """Remove a run's files, and nothing else.

    That it is finished first: it is no longer. Its settings last: without them, the rest would be nobody's.
    """
    order = {"summary.json": -1, "config.toml": 1}
    for path in sorted(folder.iterdir(), key=lambda path: order.get(path.name, 0)):
        if is_ours(path.name):
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


class Writer:
    """Writes one run's folder, in place of an unfinished run or, with `overwrite`, of any. Lines are flushed.

    Until it is closed, no other process may write there.

    With `kept` (bytes of metrics.jsonl, as `mark` gave them) it goes on with an unfinished run after these lines;
    with `resume` and none kept, checkpoints that cannot be used are no reason to refuse.
    """

    def __init__(
        self,
        folder: Path,
        tables: Mapping[str, Any],
        overwrite: bool = False,
        kept: int | None = None,
        resume: bool = False,
    ) -> None:
        self.folder = folder
        resume = resume or kept is not None
        if claim(folder, tables, overwrite, resume):
            raise ConfigError(
                f"{folder} has been written meanwhile by another process; give the command again", "written"
            )
        if kept is None:
            _empty(folder)
            draft = folder / "config.toml.tmp"
            draft.write_text(dumps(tables), encoding="utf-8")
            os.replace(draft, folder / "config.toml")  # whole at any time: others look at it
        self._metrics = (folder / "metrics.jsonl").open("r+b" if kept else "wb")
        self._digest = hashlib.sha256(self._metrics.read(kept) if kept else b"")
        self._metrics.truncate(kept or 0)
        self._metrics.seek(0, os.SEEK_END)

    def append(self, line: Line) -> None:
        text = to_json(line).encode() + b"\n"
        self._digest.update(text)
        self._metrics.write(text)
        self._metrics.flush()

    def amend(self, line: Line) -> None:
        """Write the last line anew. There are no marks after that."""
        begin = (self.folder / "metrics.jsonl").read_bytes()[:-1].rfind(b"\n") + 1
        self._metrics.truncate(begin)
        self._metrics.seek(begin)
        self.append(line)

    def mark(self) -> tuple[int, str]:
        """How long metrics.jsonl is, all of it safely on disk, and its checksum: for `kept`."""
        self.check()
        os.fsync(self._metrics.fileno())
        return self._metrics.tell(), self._digest.hexdigest()

    def write_json(self, name: str, value: Line) -> None:
        draft = self.folder / f"{name}.tmp"
        with draft.open("w", encoding="utf-8") as file:
            file.write(to_json(value) + "\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, self.folder / name)

    def check(self) -> None:
        """An error where the folder is not the one that was begun: files of two runs must not meet there."""
        lock.check_held(self.folder)

    def finish(self, summary: Line) -> None:
        self.check()
        self._metrics.close()
        self.write_json("summary.json", summary)
        for path in self.folder.iterdir():
            if is_checkpoint(path.name):
                path.unlink()
        self.close()

    def close(self) -> None:
        lock.release(self.folder)
        self._metrics.close()


def read(folder: Path) -> Run:
    """A finished run; a ConfigError if the folder does not hold one."""
    file, counts = folder, None
    try:
        config = tomllib.loads((file := folder / "config.toml").read_text(encoding="utf-8"))
        intact.check_settings(config)
        summary = json.loads((file := folder / "summary.json").read_text(encoding="utf-8"))
        intact.check_summary(summary)
        records = read_lines(file := folder / "metrics.jsonl")
        intact.check_records(records, summary)
        if (file := folder / "partition.json").exists():
            counts = json.loads(file.read_text(encoding="utf-8"))["counts"]
            intact.check_counts(counts)
    except OSError as error:
        raise ConfigError(f"{folder} is not a finished run: {error.strerror} ({error.filename})", "damaged") from None
    except intact.DAMAGE as error:
        raise ConfigError(f"{folder} is damaged: {file.name}: {type(error).__name__}: {error}", "damaged") from None
    return Run(folder, config, records, summary, counts)


def finished(wanted: Mapping[Path, Mapping[str, Any]], overwrite: bool, resume: bool) -> dict[Path, Line]:
    """The summaries of those runs that are there already; of folders and settings, as `check` takes them.

    That other processes are at some is an error only where there is nothing else to do.
    """
    there: dict[Path, Line] = {}
    busy: list[ConfigError] = []
    for folder, tables in wanted.items():
        try:
            if check(folder, tables, overwrite, resume):
                there[folder] = read(folder).summary
        except ConfigError as error:
            if error.matter != "busy":
                raise
            busy.append(error)
    if busy and len(busy) + len(there) == len(wanted):
        raise busy[0]
    return there


def kept(folder: Path, mark: Sequence[Any]) -> int:
    """How much of metrics.jsonl belongs to a `Writer.mark`; a ValueError if that is no more what it was."""
    length, digest = mark
    with (folder / "metrics.jsonl").open("rb") as file:
        if hashlib.sha256(file.read(length)).hexdigest() != digest:
            raise ValueError("metrics.jsonl does not hold what belongs to it")
    return length


def read_lines(path: Path) -> list[Line]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def find(folder: Path) -> list[Run]:
    """The finished runs directly below an experiment's folder (or the folder itself, if it is one), in order."""
    files = ("config.toml", "metrics.jsonl", "summary.json")
    folders = [folder, *(path.parent for path in folder.glob("*/summary.json"))]
    found = [read(path) for path in folders if all((path / name).exists() for name in files)]
    if not found:
        below = sorted({str(path.parents[1]) for path in folder.glob("*/*/summary.json")})  # a sweep's
        raise ConfigError(f"no finished runs in {folder}{', but in ' + ', '.join(below) if below else ''}")
    return sorted(found, key=lambda run: (run.summary["place"], run.summary["seed"], run.folder.name))


def unfinished(folder: Path) -> list[str]:
    """Names of the runs below a folder that began and did not finish."""
    begun = (path.parent for path in folder.glob("*/metrics.jsonl"))
    return sorted(path.name for path in begun if not (path / "summary.json").exists())


def grouped(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """Runs that differ in their seed only, under the algorithm's name; where one name has several settings, apart."""
    groups: dict[str, dict[str, list[Run]]] = {}
    for run in runs:
        settings = identity(run.config)
        settings["run"].pop("seeds", None)
        groups.setdefault(run.label, {}).setdefault(to_json(settings), []).append(run)
    named: dict[str, list[Run]] = {}
    for label, by_settings in groups.items():
        full = [group[0].folder.name for group in by_settings.values()]
        seeds = [group[0].summary["seed"] if len(group) > 1 else "" for group in by_settings.values()]
        short = [name.removesuffix(f"-{seed}") for name, seed in zip(full, seeds, strict=True)]
        for whole, name, group in zip(full, short, by_settings.values(), strict=True):
            taken = short.count(name) > 1 or (name != whole and name in full)
            named[label if len(by_settings) == 1 else f"{label} ({whole if taken else name})"] = group
    return named


def to_json(value: Any) -> str:
    """Strict JSON: a number that is not finite (a diverged loss) becomes null."""
    return json.dumps(_finite(value), allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list | tuple) else value
