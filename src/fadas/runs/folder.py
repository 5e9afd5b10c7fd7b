"""A run's folder: the names of its files, its state, and the right to write there."""

import re
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

from fadas.errors import Damaged, Foreign, OtherSettings, Unfinished
from fadas.runs import lock
from fadas.runs.formats import upgrade_table
from fadas.runs.same_run import differing_settings, same_run
from fadas.runs.serialization import from_table, parse_json, parse_toml
from fadas.runs.summary import Summary, require_possible

CONFIG, METRICS, SUMMARY, PARTITION = "config.toml", "metrics.jsonl", "summary.json", "partition.json"
MODEL, CLIENTS = "model.safetensors", "clients.jsonl"
SINK_NOTES = "sinks.json"  # which runs of trackers this run is
_FILES = (CONFIG, METRICS, CLIENTS, MODEL, "adapter", PARTITION, SINK_NOTES, SUMMARY, "report.html")
_DRAFT = re.compile(r"(\.[0-9]+)?\.tmp$")
_CHECKPOINT = re.compile(r"checkpoint-[0-9]{9}\.ckpt")  # not a copy that someone keeps beside it

Mode = Literal["new", "resume", "overwrite"]


def checkpoint_name(step: int) -> str:
    """Return the name of the checkpoint after a step."""
    return f"checkpoint-{step:09d}.ckpt"


def is_checkpoint(name: str) -> bool:
    """Return whether this is the name of a checkpoint or of its draft."""
    name = _DRAFT.sub("", name)
    return bool(_CHECKPOINT.fullmatch(name) or _CHECKPOINT.fullmatch(f"{name}.ckpt"))


def is_run_file(name: str) -> bool:
    """Return whether fadas writes files of this name. Other files in a run's folder are left alone."""
    return _DRAFT.sub("", name) in _FILES or name.startswith("events.out.tfevents") or is_checkpoint(name)


def checkpoints(folder: Path) -> list[Path]:
    """Return the checkpoints in a folder, the newest first."""
    return sorted((path for path in folder.glob("*.ckpt") if _CHECKPOINT.fullmatch(path.name)), reverse=True)


@dataclass(frozen=True)
class Finished:
    """The run has finished already, with the same settings."""

    summary: Summary


@dataclass(frozen=True)
class Claim:
    """The right to write a run's folder, until it is released. As a context manager, it is released at the end.

    Attributes:
        folder: The folder. This process holds its lock.
        tables: The run's settings.
        mode: What to do with an unfinished run in the folder.
    """

    folder: Path
    tables: Mapping[str, Any]
    mode: Mode

    def release(self) -> None:
        """Release the lock, so that another process may write here."""
        lock.release(self.folder)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.release()


def claim(folder: Path, tables: Mapping[str, Any], mode: Mode = "new") -> Finished | Claim:
    """Lock a folder for a run, unless the run has finished already.

    Args:
        folder: Where the run is kept.
        tables: The run's settings.
        mode: "new" refuses a folder with an interrupted run, "resume" continues it, "overwrite" replaces any run.

    Raises:
        Busy: Another process is running it.
        Foreign: The folder holds something other than a run.
        OtherSettings: The folder holds a run with other settings.
        Unfinished: The folder holds an interrupted run, and the mode is "new".

    Example:
        >>> claimed = claim(Path("runs/mine/fadas-0"), config.tables, mode="resume")
    """
    _require_no_file_above(folder)
    # A finished run gets no new file, not even a lock. A folder that does not exist is asked once, under its lock.
    if folder.exists() and (summary := find_finished(folder, tables, mode)):
        return Finished(summary)
    lock.acquire(folder)
    try:
        if summary := find_finished(folder, tables, mode):  # another process was faster
            lock.release(folder)
            return Finished(summary)
    except BaseException:
        lock.release(folder)
        raise
    return Claim(folder, tables, mode)


def find_finished(folder: Path, tables: Mapping[str, Any], mode: Mode = "new") -> Summary | None:
    """Return the summary of a run that has finished with these settings. Raises as `claim` does."""
    _require_no_file_above(folder)
    if not folder.exists():
        return None
    if not folder.is_dir() or not _may_hold_run({path.name for path in folder.iterdir()}):
        raise Foreign(f"{folder} exists and is not a run of fadas")
    if mode == "overwrite":
        lock.require_free(folder)
        return None
    if (folder / CONFIG).exists():
        _require_same_settings(folder, tables)
        if (folder / SUMMARY).exists():
            return read_summary(folder)
    lock.require_free(folder)
    if (folder / SUMMARY).exists():  # it finished while we waited for the lock
        return find_finished(folder, tables, mode)
    if mode == "new" and checkpoints(folder):
        raise Unfinished(f"{folder} holds an interrupted run")
    return None


def _require_no_file_above(folder: Path) -> None:
    if blocked := next((path for path in folder.parents if path.exists() and not path.is_dir()), None):
        raise Foreign(f"{blocked} exists and is not a folder")


def read_summary(folder: Path) -> Summary:
    """Return the summary of a finished run.

    Raises:
        Damaged: summary.json is not a valid summary.
    """
    path = folder / SUMMARY
    try:
        summary = from_table(Summary, upgrade_table(parse_json(path), str(path)), "summary")
        require_possible(summary)
        return summary
    except Damaged:
        raise
    except (ValueError, AttributeError) as error:
        raise Damaged(f"{folder} is damaged: {SUMMARY}: {error}") from None


def _require_same_settings(folder: Path, tables: Mapping[str, Any]) -> None:
    held: dict[str, Any] = {}
    with suppress(Damaged):
        held = parse_toml(folder / CONFIG)
    if same_run(held, tables):
        return
    some = differing_settings(held, tables)
    which = "; ".join([*some[:2], *([f"{len(some) - 2} more"] if len(some) > 2 else [])])
    raise OtherSettings(f"{folder} holds a run with other settings{f' ({which})' if which else ''}")


def _may_hold_run(names: set[str]) -> bool:
    """Return whether a folder with these files is empty or holds a run."""
    return CONFIG in names or all(name == lock.NAME or _DRAFT.sub("", name) == CONFIG for name in names)


def remove_run(folder: Path) -> None:
    """Remove a run's files, and nothing else.

    The summary goes first, so that an interrupted removal does not leave a run that looks finished. The settings go
    last, because without them nothing else in the folder can be recognised.
    """
    order = {SUMMARY: -1, CONFIG: 1}
    for path in sorted(folder.iterdir(), key=lambda path: order.get(path.name, 0)):
        if is_run_file(path.name):
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
