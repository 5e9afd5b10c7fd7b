"""One process at a time in a run's folder, by a lock that the system lifts when its holder ends, however it ends.

The file stays: to delete it would be to lock another one than those who have opened it already.
"""

import os
import time
from pathlib import Path
from typing import IO

from fadas.errors import ConfigError

try:
    import fcntl
except ImportError:  # Windows has none: there, nobody is kept out
    fcntl = None

NAME = ".lock"
_held: dict[Path, IO[bytes]] = {}


def acquire(folder: Path) -> None:
    """The folder, made if need be, is this process's until it is released; an error where it is another's."""
    place = folder.resolve()
    if place in _held:
        return
    folder.mkdir(parents=True, exist_ok=True)
    file = (folder / NAME).open("ab")
    if not _locked(file):
        file.close()
        raise ConfigError(f"{folder} is in use by another process", "busy")
    _held[place] = file


def _locked(file: IO[bytes]) -> bool:
    """Whether the lock is ours now. Who only looks, or has just been forked, holds it for a moment: we try twice."""
    for pause in (0.5, 0):
        try:
            if fcntl:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            time.sleep(pause)
        except OSError:  # a file system without locks
            return True
    return False


def release(folder: Path) -> None:
    if file := _held.pop(folder.resolve(), None):
        file.close()


def check_held(folder: Path) -> None:
    """An error where the folder that was taken is gone; what is there now may be another process's."""
    file = _held.get(folder.resolve())
    try:
        if file and os.path.samestat(os.fstat(file.fileno()), (folder / NAME).stat()):
            return
    except FileNotFoundError:
        pass
    raise ConfigError(f"{folder} was deleted or moved while its run was writing there; give the command again")


def check_free(folder: Path) -> None:
    """An error where the folder is another process's."""
    if folder.resolve() not in _held and (folder / NAME).exists():
        acquire(folder)
        release(folder)


def _let_go() -> None:
    """In a forked worker: it must not keep the lock when the process that holds it is killed."""
    for file in _held.values():
        file.close()
    _held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_go)
