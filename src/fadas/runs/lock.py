"""One process at a time in a run's folder. The system releases the lock when its holder ends, however that happens."""

import atexit
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import IO

from fadas.errors import Busy, ConfigError

try:
    import fcntl
except ImportError:  # on Windows there is no lock
    fcntl = None

NAME = ".lock"
_held: dict[Path, IO[bytes]] = {}
_made: dict[Path, list[Path]] = {}  # locked folders that did not exist before, each with what was created for it


def acquire(folder: Path) -> None:
    """Lock a folder for this process. Create the folder if it does not exist.

    Raises:
        Busy: Another process holds the lock.
    """
    place = folder.resolve()
    if place in _held:
        return
    made = [path for path in (place, *place.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    file = (folder / NAME).open("ab")
    if not _locks(file) or not _is_current(file, folder):
        file.close()
        raise Busy(f"{folder} is in use by another process")
    _held[place] = file
    _made[place] = made


def _is_current(file: IO[bytes], folder: Path) -> bool:
    """Return whether this file is still the folder's lock. The last holder may have removed an empty folder."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), (folder / NAME).stat())
    except FileNotFoundError:
        return False


def _locks(file: IO[bytes]) -> bool:
    """Lock a file if it is free. Try twice, because a process that only checks the lock holds it for a moment."""
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
    """Release a folder. If it was created for a run that never wrote anything, remove it and its empty new parents."""
    place = folder.resolve()
    if file := _held.pop(place, None):
        made = _made.pop(place, [])
        if made and place.is_dir() and os.listdir(place) == [NAME]:
            if not fcntl:
                file.close()  # Windows refuses to remove an open file
            (place / NAME).unlink()
            with suppress(OSError):  # another run has begun beside this one
                for path in made:
                    path.rmdir()
        file.close()


@atexit.register
def _release_all() -> None:
    """Release what an interrupted command has not released."""
    for place in list(_held):
        release(place)


def require_held(folder: Path) -> None:
    """Raise an error if the locked folder is gone. A new folder at this path may belong to another process."""
    file = _held.get(folder.resolve())
    if file and _is_current(file, folder):
        return
    raise ConfigError(f"{folder} was deleted or moved while its run was writing there; run the command again")


def require_free(folder: Path) -> None:
    """Raise `Busy` if another process holds the lock of a folder."""
    if folder.resolve() not in _held and (folder / NAME).exists():
        acquire(folder)
        release(folder)


def is_held(folder: Path) -> bool:
    """Return whether a process holds the lock of a folder. True where that cannot be told."""
    if not fcntl:
        return True
    try:
        with (folder / NAME).open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except OSError:  # locked, or a file system without locks
        return True
    return False


def _close_in_child() -> None:
    """Close the lock in a forked worker. Otherwise the worker would keep the lock after its parent is killed."""
    for file in _held.values():
        file.close()
    _held.clear()
    _made.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_in_child)
