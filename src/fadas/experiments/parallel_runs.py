"""Run pieces of work in processes, some at a time."""

import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
import warnings
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from multiprocessing import resource_tracker
from multiprocessing.connection import wait
from multiprocessing.context import SpawnProcess
from typing import Any, TypeVar

from fadas.errors import ConfigError, FadasWarning, Interrupted

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_PATIENCE = 5.0  # seconds
T = TypeVar("T")
R = TypeVar("R")


def run_in_processes(
    work: Callable[[T], R],
    todo: Sequence[T],
    jobs: int,
    on_progress: Callable[[T, Any], None] = lambda item, progress: None,
) -> Generator[tuple[T, R | Exception], None, None]:
    """Yield each item with its result or its exception, as results come.

    The processes share the machine's cores. When the generator is closed, running work is interrupted as by SIGTERM,
    nothing further begins, and no process is left. The processes' own warnings (`FadasWarning`) are issued here, once
    for each text.

    Args:
        work: Does one piece of work. With several jobs it must be picklable, and so must the items.
        todo: The items.
        jobs: How many to do at the same time. With 1, everything runs in this process.
        on_progress: Receives what `report_progress` is called with in a process, and the item of that process.
    """
    if jobs == 1:
        for item in todo:
            try:
                result = work(item)
            except Interrupted:
                raise
            except Exception as error:
                result = error
            yield item, result
        return
    jobs = min(jobs, len(todo))
    threads = max(1, (os.cpu_count() or 1) // max(1, jobs))
    workers: dict[Any, SpawnProcess] = {}  # by the pipe to each
    at_work: dict[Any, T] = {}
    waiting = deque(todo)
    warned: set[str] = set()
    try:
        for _ in range(jobs):
            _start_worker(workers, work, threads)
        while waiting or at_work:
            for pipe in workers.keys() - at_work.keys():
                if waiting:
                    at_work[pipe] = waiting.popleft()
                    pipe.send(at_work[pipe])
            ready: list[Any] = wait(list(at_work))
            for pipe in ready:
                value: Any
                try:
                    kind, value = pipe.recv()
                except (EOFError, ConnectionError):
                    kind, value = "result", ChildProcessError("its process died: out of memory?")
                    workers.pop(pipe).join()
                    _start_worker(workers, work, threads)
                if kind == "result":
                    yield at_work.pop(pipe), value
                elif kind == "progress":
                    on_progress(at_work[pipe], value)
                elif value not in warned:
                    warned.add(value)
                    warnings.warn(value, FadasWarning, stacklevel=2)
    finally:
        for pipe, worker in workers.items():
            pipe.close()
            worker.terminate()
        try:
            for worker in workers.values():
                worker.join()
        finally:  # a second Ctrl-C waits for no checkpoint
            for worker in workers.values():
                worker.kill()


_to_parent: Any = None  # the pipe of a process that was started here


def report_progress(progress: Any) -> None:
    """Tell the parent process how far the work is. It does nothing in a process that was not started here.

    Args:
        progress: What `on_progress` receives.
    """
    if _to_parent is not None:
        _to_parent.send(("progress", progress))


def _start_worker(workers: dict[Any, SpawnProcess], work: Callable[[Any], Any], threads: int) -> None:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    worker = context.Process(target=_serve, args=(theirs, work, threads))
    with _signals_held():
        worker.start()
        workers[ours] = worker
    theirs.close()


@contextmanager
def _signals_held() -> Iterator[None]:
    """Hold back Ctrl-C and SIGTERM while a worker starts. Otherwise it might start and not be known.

    The worker inherits that Ctrl-C is blocked: in a terminal it goes to all processes, and the parent ends its workers.
    """
    if not hasattr(signal, "pthread_sigmask"):  # on Windows
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)
        return
    resource_tracker.ensure_running()  # its start, which is a part of a worker's start, would unblock the signals
    held: list[int] = []
    # Handlers hold the signals back: those that are blocked may still reach another thread of this process.
    before = {number: signal.signal(number, lambda number, frame: held.append(number)) for number in _SIGNALS}
    # Of these, a worker inherits that Ctrl-C is blocked. SIGTERM must not be: its parent ends it by that.
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)  # a Ctrl-C that was blocked arrives, and is held
        for number, handler in before.items():
            signal.signal(number, handler)
    if held:
        signal.raise_signal(held[0])


def _serve(pipe: Any, work: Callable[[Any], Any], threads: int) -> None:
    """Do the work received through the pipe until it closes. Send warnings, progress and results with their kind."""
    import torch

    global _to_parent
    _to_parent = pipe
    torch.set_num_threads(threads)
    warnings.showwarning = partial(_send_warning, pipe, warnings.showwarning)
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # what is open is closed
    end_with_parent()
    try:
        with suppress(EOFError, ConnectionError):
            while True:
                item = pipe.recv()
                try:
                    result = work(item)
                except (Interrupted, KeyboardInterrupt):
                    return
                except Exception as error:  # not every exception can be pickled, and no traceback can: send their text
                    text = f"{type(error).__name__}: {error}"
                    result = error if isinstance(error, ConfigError) else RuntimeError(text)
                    result.add_note(traceback.format_exc())
                pipe.send(("result", result))
    finally:  # only Python's own clean-up is left: an exception in it would be printed
        signal.signal(signal.SIGTERM, signal.SIG_IGN)


def _send_warning(
    pipe: Any, show: Callable[..., None], message: Warning | str, category: type[Warning], *place: Any
) -> None:
    """Send a `FadasWarning` to the parent, which shows it once. Show other warnings here."""
    if issubclass(category, FadasWarning):
        pipe.send(("warning", str(message)))
    else:
        show(message, category, *place)


def end_with_parent() -> None:
    """End this process by SIGTERM when its parent ends. A parent that is killed cannot end its workers."""
    threading.Thread(target=_wait_for_parent, daemon=True).start()


def _wait_for_parent() -> None:
    if parent := multiprocessing.parent_process():
        parent.join()
        while True:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(_PATIENCE)  # the first signal may only have ended a run, which writes its checkpoint
