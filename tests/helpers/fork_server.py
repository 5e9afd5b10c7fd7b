"""A process that has imported torch and fadas, and forks itself for each request. `forks.py` starts it and asks it.

A request comes through a Unix socket: its length, its JSON, and the files that become the fork's files 0, 1, 2 and so
on. The first answer is the fork's number. The second comes when it has ended: its exit code and its processor seconds.
"""

import atexit
import gc
import json
import os
import signal
import socket
import struct
import sys
import threading
import traceback
import types
from contextlib import suppress
from importlib import import_module
from typing import Any, NoReturn

MODULES = (
    "torch",
    "fadas.cli.app",
    "fadas.cli.dry_run",
    "fadas.cli.terminal",
    "fadas.experiments.sweeps.halving",
    "fadas.experiments.prepare",
    "fadas.experiments.queue",
    "fadas.experiments.run",
    "fadas.experiments.sweeps.points",
    "fadas.report.figures",
    "fadas.report.html",
    "fadas.simulation.simulator",
    "fadas.tasks.digits",
    "matplotlib.backends.backend_svg",
    "numpy.random",
    "sklearn.datasets",
)
SIZE, ANSWER, MOST_FILES = struct.Struct("!q"), struct.Struct("!qd"), 8


def serve(listener: socket.socket) -> NoReturn:
    """Fork for every connection, until the process that started this one has ended."""
    for name in MODULES:
        import_module(name)
    gc.freeze()  # the forks need not look through what is imported
    parent = os.getppid()
    listener.settimeout(5)
    while os.getppid() == parent:
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:  # of those that wait for the forks
                pass
        try:
            connection, _ = listener.accept()
        except TimeoutError:
            continue
        with connection:
            if not os.fork():
                listener.close()
                answer(connection)
    sys.exit()


def answer(connection: socket.socket) -> NoReturn:
    """Start a fork, and wait until it ends."""
    size, files, *_ = socket.recv_fds(connection, SIZE.size, MOST_FILES)
    with connection.makefile("rb") as stream:
        request = json.loads(stream.read(*SIZE.unpack(size)))
    fork = os.fork()
    if not fork:
        connection.close()
        become(request, files)
    try:
        for file in files:
            os.close(file)
        connection.sendall(ANSWER.pack(fork, 0.0))
        _, status, used = os.wait4(fork, 0)
        connection.sendall(ANSWER.pack(os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime))
    finally:
        os._exit(0)


def become(request: dict[str, Any], files: list[int]) -> NoReturn:
    """Be the process that a request describes: a fadas command, or code as `python -c` runs it."""
    code = 1
    try:
        if request["session"]:
            os.setsid()
        if request["cores"]:
            os.sched_setaffinity(0, request["cores"])
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's "&" lets it be ignored
        free = max(files) + 1  # moved there first: a file may have the number that another is to get
        moved = [os.dup2(file, free + place) for place, file in enumerate(files)]
        for place, file in enumerate(moved):
            os.dup2(file, place)
        os.closerange(len(files), free + len(files))
        sys.stdin, sys.stdout, sys.stderr = (
            os.fdopen(place, mode, closefd=False, errors=errors)
            for place, mode, errors in ((0, "r", None), (1, "w", None), (2, "w", "backslashreplace"))
        )
        os.environ.clear()
        os.environ.update(request["environment"])
        os.chdir(request["cwd"])
        added = request["environment"].get("PYTHONPATH", "").split(os.pathsep)
        sys.path[:0] = [folder for folder in added if folder and folder not in sys.path]
        sys.argv = [request["program"], *request["arguments"]]
        sys.modules["__main__"] = main = types.ModuleType("__main__")
        if request["code"]:
            sys.path.insert(0, "")
            exec(compile(request["code"], "<string>", "exec"), vars(main))
        else:
            import_module("fadas.cli").main()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    finally:
        for thread in threading.enumerate():
            if thread is not threading.current_thread() and not thread.daemon:
                thread.join()
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    serve(socket.socket(fileno=0))
