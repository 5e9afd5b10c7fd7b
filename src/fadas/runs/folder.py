"""What fadas calls the files in a run's folder. All else that lies there is somebody else's."""

import re
import shutil
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fadas.errors import ConfigError
from fadas.runs import lock
from fadas.runs.same_run import differing_settings, same_run

_FILES = (
    "config.toml",
    "metrics.jsonl",
    "model.safetensors",
    "adapter",
    "partition.json",
    "summary.json",
    "report.html",
)
_DRAFTS = ("config.toml.tmp", "partition.json.tmp", "summary.json.tmp")
_CHECKPOINT = re.compile(r"checkpoint-[0-9]{9}\.(ckpt|tmp)")  # and not a copy that someone keeps beside


def checkpoint_name(step: int) -> str:
    return f"checkpoint-{step:09d}.ckpt"


def is_checkpoint(name: str) -> bool:
    """Of a checkpoint, or of its draft."""
    return bool(_CHECKPOINT.fullmatch(name))


def is_run_file(name: str) -> bool:
    known = name in _FILES or name in _DRAFTS or name.startswith("events.out.tfevents")
    return known or is_checkpoint(name)


def checkpoints(folder: Path) -> list[Path]:
    """The checkpoints in a folder, the newest first."""
    return sorted((path for path in folder.glob("*.ckpt") if is_checkpoint(path.name)), reverse=True)


def is_finished(folder: Path, tables: Mapping[str, Any], overwrite: bool = False, resume: bool = False) -> bool:
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
        if not same_run(held, tables):
            some = differing_settings(held, tables)
            which = "; ".join([*some[:2], *([f"{len(some) - 2} more"] if len(some) > 2 else [])])
            raise ConfigError(f"{folder} holds a run with other settings{f' ({which})' if which else ''}", "settings")
        if (folder / "summary.json").exists():
            return True
    lock.check_free(folder)
    if not overwrite and (folder / "summary.json").exists():  # finished while we waited for the lock
        return is_finished(folder, tables, overwrite, resume)
    if not (overwrite or resume) and checkpoints(folder):
        raise ConfigError(f"{folder} holds an interrupted run", "unfinished")
    return False


def claim(folder: Path, tables: Mapping[str, Any], overwrite: bool = False, resume: bool = False) -> bool:
    """As `check`; but where the run is not finished, the folder is this process's from now on."""
    if not is_finished(folder, tables, overwrite, resume):  # else nothing of ours belongs there, nor a lock
        lock.acquire(folder)
    if not is_finished(folder, tables, overwrite, resume):  # another may have been faster
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
        if is_run_file(path.name):
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
