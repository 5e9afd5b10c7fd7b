"""Start processes, wait for them, end them, and check that they are gone."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

from fadas.runs import lock


def wait_until(condition, timeout=300.0, process=None, pause=0.05, what="nothing happened"):
    """Return the first true value of `condition`. Fail when the process ends first or the time is over."""
    end = time.monotonic() + timeout
    while not (value := condition()):
        assert process is None or process.poll() is None, f"the process has ended: {_read_errors(process)}"
        assert time.monotonic() < end, f"{what} within {timeout} s"
        time.sleep(pause)
    return value


def _read_errors(process) -> str:
    return process.communicate()[1] if process.stderr else ""


def count_lines(path: Path) -> int:
    with contextlib.suppress(FileNotFoundError):  # not written yet, or just deleted by a run that starts over
        return path.read_bytes().count(b"\n")
    return 0


def restore_interrupt() -> None:
    """Make SIGINT interrupt this process: a shell's "&" lets it be ignored."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@contextlib.contextmanager
def interruptible():
    """SIGINT interrupts this process as long as the block lasts."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextlib.contextmanager
def run_in_background(process, folder: Path, lines=5):
    """A process that has written some lines into the run's folder. It is killed at the end."""
    try:
        wait_until(lambda: count_lines(folder / "metrics.jsonl") >= lines, process=process, pause=0.01)
        yield process
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def share_one_core(others: int):
    """Keep this process on one core, beside as many others that do nothing but compute."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})  # the others inherit it, and so do threads that start from here on
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(others)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()
        os.sched_setaffinity(0, before)


@contextlib.contextmanager
def session_of(process):
    """A process that has a session of its own. After an error the whole session is killed."""
    with process:
        try:
            yield process
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise


def interrupt_when(condition, process, number, pause=0.05) -> tuple[int, str]:
    """Interrupt a process, as a terminal would, when the condition holds for it.

    Return its exit code and error output. All processes of its session must end.
    """
    with session_of(process):
        wait_until(lambda: condition(process.pid), process=process, pause=pause)
        os.killpg(process.pid, number) if number == signal.SIGINT else process.send_signal(number)
        text = process.communicate(timeout=120)[1]
    # multiprocessing's own tracker ends last
    wait_until(lambda: not find_session(process.pid), timeout=60, what="some processes were left")
    return process.returncode, text


def catches_sigterm(pid: int) -> bool:
    """The process has a handler for SIGTERM."""
    caught = re.search(r"^SigCgt:\s*(\w+)$", Path(f"/proc/{pid}/status").read_text(), re.M)
    return bool(int(caught[1], 16) >> (signal.SIGTERM - 1) & 1)


def has_loaded(pid: int, library: str) -> bool:
    """The process has mapped a file whose name holds this text."""
    return library in Path(f"/proc/{pid}/maps").read_text()


def count_children(pid: int) -> int:
    """Count the processes that a process has started, without those that run another program.

    A torch with CUDA starts `ldconfig` while it loads. A process that has just been started has the name of its parent.
    """

    def read_names():
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            with contextlib.suppress(OSError):  # it has just ended
                yield child, Path(f"/proc/{child}/comm").read_text()

    first = dict(read_names())
    if first:
        time.sleep(0.005)
    return sum(name == first.get(child) != "ldconfig\n" for child, name in read_names())


def find_session(session: int) -> dict[str, str]:
    """The living processes of a session and their states."""
    states = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has just ended
        if fields[3] == str(session) and fields[0] not in "ZX":
            states[path.parent.name] = fields[0]
    return states


def is_stopped(pid: int) -> bool:
    """SIGSTOP has stopped every thread of this process."""
    states = [path.read_text().rpartition(")")[2].split()[0] for path in Path(f"/proc/{pid}/task").glob("*/stat")]
    return set(states) == {"T"}


def is_gone(pid: int) -> bool:
    """No process has this number, not even a dead one."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def has_ended(pid: int) -> bool:
    """The process is gone or dead. In a container, nobody may collect a dead process whose parent was killed."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


@contextlib.contextmanager
def hold_lock(folder: Path):
    """Lock a run's folder as another process would: a lock belongs to whoever opened the file."""
    import fcntl

    folder.mkdir(parents=True, exist_ok=True)
    with (folder / lock.NAME).open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield file
