"""Processes that are forks of one that has imported everything. A process of its own would import torch each time.

The server is a clean process: no test runs in it. Each fork has its own folder, environment and files.
"""

import atexit
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import IO

SIZE, ANSWER = struct.Struct("!q"), struct.Struct("!qd")  # as in fork_server.py


@cache
def start_server() -> str:
    """Start the server of this process, if there is none yet. Return its address."""
    folder = tempfile.TemporaryDirectory(prefix="fork")  # a short path, which sockets need
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(f"{folder.name}/socket")
    listener.listen(64)
    server = subprocess.Popen([sys.executable, "-P", Path(__file__).with_name("fork_server.py")], stdin=listener)
    listener.close()
    atexit.register(folder.cleanup)
    atexit.register(server.wait)
    atexit.register(server.kill)
    return f"{folder.name}/socket"


class Fork:
    """A fork of the server, used like a `subprocess.Popen`. Its files are given as numbers or as open files.

    Args:
        arguments: The arguments of a fadas command, or of the code.
        code: Python to run in place of a command, as `python -c` does.
        cwd: Its current folder. Not set: that of this process.
        environment: Its environment. Not set: that of this process.
        files: Its standard input, output and error output, and more files. Not set: they are null devices, but the
            error output is kept for `communicate`.
        session: It gets a session of its own.
        address: The server's address.
    """

    def __init__(
        self,
        arguments: Sequence[object] = (),
        code="",
        cwd=None,
        environment=None,
        files: Sequence[int | IO] | None = None,
        session=False,
        address="",
    ) -> None:
        self.args, self.returncode, self.stderr, self.seconds = arguments, None, None, 0.0
        request = {"arguments": list(map(str, arguments)), "code": code, "program": "-c" if code else "fadas"}
        request |= {"cwd": str(cwd or os.getcwd()), "session": session}
        request |= {"environment": {**(os.environ if environment is None else environment)}}
        request |= {"cores": sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None}
        message = json.dumps(request).encode()
        self._connection = socket.socket(socket.AF_UNIX)
        self._connection.connect(address or start_server())
        with open(os.devnull, "r+b") as null:
            if files is None:
                self.stderr = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115
                files = (null, null, self.stderr)
            numbers = [file if isinstance(file, int) else file.fileno() for file in files]
            socket.send_fds(self._connection, [SIZE.pack(len(message))], numbers)
            self._connection.sendall(message)
            self.pid, _ = ANSWER.unpack(self._connection.recv(ANSWER.size))

    def poll(self) -> int | None:
        """Return the exit code, or None while it runs."""
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def wait(self, timeout: float | None = None) -> int:
        """Wait until it ends. Return the exit code. From then on, `seconds` is the processor time that it used."""
        if self.returncode is None:
            self._connection.settimeout(timeout)
            try:
                self.returncode, self.seconds = ANSWER.unpack(self._connection.recv(ANSWER.size))
            except (TimeoutError, BlockingIOError):
                raise subprocess.TimeoutExpired(str(self.args), timeout or 0) from None
            self._connection.close()
        return self.returncode

    def communicate(self, timeout: float | None = None) -> tuple[None, str]:
        """Wait until it ends. Return None, and what it wrote to its error output."""
        self.wait(timeout)
        self.stderr.seek(0)
        return None, self.stderr.read()

    def send_signal(self, number: int) -> None:
        """Send it a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill it, unless it has ended."""
        self.send_signal(signal.SIGKILL)

    def __enter__(self) -> "Fork":
        return self

    def __exit__(self, *error: object) -> None:
        self.wait()


def run_in_fork(arguments: Sequence[object], code="", **options) -> subprocess.CompletedProcess:
    """Run a fadas command, or Python code, to its end. The result also has its processor time in `seconds`."""
    with (
        open(os.devnull, "rb") as null,
        tempfile.TemporaryFile("w+", encoding="utf-8") as out,
        tempfile.TemporaryFile("w+", encoding="utf-8") as err,
    ):
        fork = Fork(arguments, code, files=(null, out, err), **options)
        fork.wait()
        out.seek(0)
        err.seek(0)
        done = subprocess.CompletedProcess(arguments, fork.returncode, out.read(), err.read())
        done.seconds = fork.seconds
        return done


# A fadas command for shells: it runs in a fork, too. The signals that it gets, the fork gets.
COMMAND = """#!{python} -IS
import os, signal, sys
sys.path.insert(0, {tests!r})
from helpers.forks import Fork
fork = Fork(sys.argv[1:], files=(0, 1, 2), address={address!r})
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, lambda number, frame: os.kill(fork.pid, number))
code = fork.wait()
sys.exit(128 - code if code < 0 else code)
"""


def write_command(folder: Path) -> Path:
    """Write the command `fadas` for shells into a folder. Return the folder."""
    path = folder / "fadas"
    tests = str(Path(__file__).parents[1])
    path.write_text(COMMAND.format(python=sys.executable, tests=tests, address=start_server()))
    path.chmod(0o755)
    return folder
