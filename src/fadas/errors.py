"""Errors that users see, and the nearest known name for a misspelt one."""

import difflib
import errno
import traceback
from collections.abc import Iterable
from pathlib import Path

NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # the disk is full, or the user's share of it


class ConfigError(ValueError):
    """A mistake in settings, files or code that the user gave. The message is one line and says what to do.

    The messages of its subclasses state a fact. What to do depends on the command, and each command adds its own advice
    (see `fadas.cli.options.with_advice`).

    Example:
        >>> try:
        ...     simulation = fadas.simulate(plan, task, algorithm, local)
        ... except fadas.ConfigError as error:
        ...     print(error)
    """


class Busy(ConfigError):
    """Another process is using the folder."""


class Foreign(ConfigError):
    """The folder exists and does not hold a run of fadas."""


class OtherSettings(ConfigError):
    """The folder holds a run with other settings."""


class Unfinished(ConfigError):
    """The folder holds an interrupted run."""


class Damaged(ConfigError):
    """A file does not hold what fadas wrote."""


class Stale(ConfigError):
    """A kept result comes from other settings than those that would be used now."""


class DiskFull(ConfigError):
    """The disk is full."""


class Unsuitable(ValueError):
    """An executor cannot train the task, while others can."""


class FadasWarning(UserWarning):
    """A warning of something that the user probably did not intend. The command line prints it on one line."""


class Interrupted(Exception):
    """The user or the system stopped a run. Its checkpoint is on disk."""


class NoUsableUpdates(ConfigError):
    """All updates are refused, and not because training diverged."""


class Diverged(ArithmeticError):
    """Training stopped early, because the model or the clients' updates can no longer be used.

    Example:
        >>> try:
        ...     records = list(simulation)
        ... except fadas.Diverged as error:
        ...     print(error)
    """


def unknown_name(kind: str, name: str, known: Iterable[str]) -> ConfigError:
    """Return the error for an unknown name. It suggests the nearest known name, or lists all of them."""
    names = sorted(known)
    prefix = name.rpartition(".")[0]
    short = {other.rpartition(".")[2]: other for other in names if other.rpartition(".")[0] == prefix}
    near = [short[s] for s in difflib.get_close_matches(name.rpartition(".")[2], short, n=1)]
    hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(names)}" if names else "none is allowed here"
    return ConfigError(f"unknown {kind} {name!r}; {hint}")


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, or the error's type if there is no message."""
    return (str(error) or type(error).__name__).splitlines()[0]


def place_of(error: BaseException) -> str:
    """Return where in the user's own code an error was raised, such as " (mytask.py:12)"; "" if it was not there."""
    ours, installed = str(Path(__file__).parent), ("site-packages", "lib/python", "<")
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith(ours)]
    own = [frame for frame in frames if not any(part in frame.filename for part in installed)]
    return f" ({Path(own[-1].filename).name}:{own[-1].lineno})" if own else ""
