"""Errors that users see, and the nearest known name for a misspelt one."""

import difflib
import errno
from collections.abc import Iterable

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # the disk, or one's share of it


class ConfigError(ValueError):
    """A mistake in what the user gave; its message is one line that the user can act on.

    Where the way out depends on the command, the message is the bare fact, and `matter` tells the command which.
    """

    def __init__(self, message: str, matter: str = "") -> None:
        super().__init__(message)
        self.matter = matter


class Interrupted(Exception):
    """The user or the system ended a run; its checkpoint is on disk. How to go on is the command's to say."""

    matter = "interrupted"


class Diverged(ArithmeticError):
    """Training has come to an end before its time: the model, or what the clients make of it, is of no use any more."""

    matter = "diverged"


def unknown(kind: str, name: str, known: Iterable[str]) -> ConfigError:
    names = sorted(known)
    prefix = name.rpartition(".")[0]
    short = {other.rpartition(".")[2]: other for other in names if other.rpartition(".")[0] == prefix}
    near = [short[s] for s in difflib.get_close_matches(name.rpartition(".")[2], short, n=1)]
    hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(names)}" if names else "none is allowed here"
    return ConfigError(f"unknown {kind} {name!r}; {hint}")
