"""Ctrl-C and SIGTERM: a command ends with one line on stderr, and leaves nothing half-made.

| while a command | a signal                                                                                  |
|-----------------|-------------------------------------------------------------------------------------------|
| loads           | ends the process at once: it has written nothing and started nothing                      |
| works           | raises KeyboardInterrupt: what is open is closed, and processes are ended                 |
| trains          | ends the run after the current update, with a checkpoint (see `fadas.experiments.run`)    |

This module is imported before everything else and must load fast.
"""

import os
import signal
import sys
import threading
from types import FrameType
from typing import Any

_AT_ONCE = b"fadas: interrupted; run the command again\n"


class _State:
    handled: tuple[int, ...] = ()  # without those that the parent told this process to ignore
    needs_cleanup = False
    received: int | None = None  # the first signal that raised KeyboardInterrupt


def install() -> None:
    """Handle the signals of this process."""
    _State.handled = tuple(n for n in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(n) is not signal.SIG_IGN)
    _State.needs_cleanup, _State.received = False, None
    _set_handlers(_handle)
    before = sys.unraisablehook

    def raise_again(unraisable: Any) -> None:
        """Python drops an exception that is raised in a destructor or a callback. Send the signal once more."""
        if isinstance(unraisable.exc_value, KeyboardInterrupt) and _State.received:
            again = threading.Timer(0.01, os.kill, (os.getpid(), _State.received))
            again.daemon = True
            again.start()
        else:
            before(unraisable)

    sys.unraisablehook = raise_again


def require_cleanup() -> None:
    """From now on there is something to clean up: a signal raises KeyboardInterrupt."""
    _State.needs_cleanup = True


def received() -> bool:
    """Return whether a signal has raised KeyboardInterrupt."""
    return _State.received is not None


def exit_code() -> int:
    """Return the exit code of an interrupted command: 128 + the signal's number. A run that was stopped has 130."""
    return 128 + (_State.received or signal.SIGINT)


def ignore() -> None:
    """Ignore the signals: the command has done its work, and only Python's own clean-up is left."""
    _set_handlers(signal.SIG_IGN)


def use_defaults() -> None:
    """Let a signal end the process without a word: its last line has been written."""
    _set_handlers(signal.SIG_DFL)


def _set_handlers(handler: Any) -> None:
    for number in _State.handled:
        signal.signal(number, handler)


def _handle(number: int, frame: FrameType | None) -> None:
    if not _State.needs_cleanup:
        # An exception could be lost or turned into another one while modules are imported.
        os.write(2, _AT_ONCE)
        os._exit(128 + number)
    _State.received = _State.received or number
    raise KeyboardInterrupt
