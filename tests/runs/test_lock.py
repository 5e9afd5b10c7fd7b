"""A run's folder belongs to one living process at a time."""

import fcntl
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from fadas.errors import Busy, ConfigError
from fadas.runs import lock
from helpers.cli import DEMO, run_fadas, start_paused
from helpers.folders import read_files
from helpers.processes import hold_lock, is_stopped, run_in_background, wait_until

RUN = ["--only", "fadas", "--seed", "1", "--executor", "inline"]


@pytest.mark.parametrize("every", [0, 1])
def test_locked_folder_is_refused_and_unchanged(tmp_path, every):
    """With and without a checkpoint, whichever option is given."""
    folder = tmp_path / "o" / "fadas-1"
    settings = ["--set", "run.updates=600", "--set", f"run.checkpoint_every={every}"]
    command = ["run", DEMO, *RUN, *settings, "--out", tmp_path / "o"]
    refusal = f"fadas: {folder} is in use by another process; wait for it, or choose another folder with --out DIR\n"
    with run_in_background(start_paused(20, *command), folder) as process:
        process.send_signal(signal.SIGSTOP)  # only other processes can change the folder now
        wait_until(lambda: is_stopped(process.pid))  # its threads finish their system calls first
        before = read_files(folder)
        for more in ([], ["--resume"], ["--overwrite"]):
            assert run_fadas(*command, *more, code=2).stderr == refusal
        assert read_files(folder) == before


def test_killed_run_leaves_no_lock_and_restart_is_announced(tmp_path):
    folder = tmp_path / "o" / "fadas-1"
    command = [
        "run",
        DEMO,
        *RUN,
        "--set",
        "run.updates=600",
        "--set",
        "run.checkpoint_every=0",
        "--out",
        folder.parent,
    ]
    with run_in_background(start_paused(120, *command), folder):
        pass
    (folder / "notes.txt").write_text("mine")
    done = run_fadas(*command, "--no-report")
    announced, finished = done.stderr.splitlines()
    assert announced == f"{folder}: no usable checkpoint found; starting over"
    assert finished.startswith("fadas-1: 120 steps")
    assert (folder / "notes.txt").read_text() == "mine"
    assert "skipped, it has finished" in run_fadas(*command).stderr
    again = run_fadas(*command, "--overwrite", "--no-report").stderr
    assert "starting over" not in again, "--overwrite asked for it"
    assert (folder / "notes.txt").exists()


def test_sweep_takes_over_point_of_process_that_dies(tmp_path):
    folder = tmp_path / "fedbuff" / "local.lr=0.1-1"
    command = ["sweep", DEMO, "--only", "fedbuff", "--seed", "1", "--out", tmp_path, "--executor", "inline"]
    command += ["--set", "run.updates=200", "--set", "sweep.fedbuff={local={lr=[0.1]}}"]
    with ThreadPoolExecutor() as pool:
        with run_in_background(start_paused(20, *command), folder):
            second = pool.submit(run_fadas, *command)
            with pytest.raises(TimeoutError):
                second.result(2)
        assert "1 runs in" in second.result(60).stderr


HOLDER = """
import os, sys, time
from pathlib import Path
from fadas.runs import lock
lock.acquire(Path(sys.argv[1]))
if not os.fork():
    print(os.getpid(), flush=True)  # the worker has released the lock by now
time.sleep(60)
"""


def test_lock_ends_with_process_despite_forked_workers(tmp_path):
    folder = tmp_path / "run"
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(folder)], stdout=subprocess.PIPE, text=True)
    worker = int(holder.stdout.readline())
    try:
        for attempt in (lock.acquire, lock.require_free):
            with pytest.raises(ConfigError, match="in use by another process"):
                attempt(folder)
        holder.kill()
        holder.wait()
        os.kill(worker, 0)  # the worker is alive
        lock.require_free(folder)
        lock.acquire(folder)
        lock.acquire(folder)  # it is ours already
        lock.release(folder)
    finally:
        os.kill(worker, signal.SIGKILL)
        holder.stdout.close()


def test_briefly_held_lock_is_retried(tmp_path, monkeypatch):
    other, pauses = (tmp_path / lock.NAME).open("ab"), []
    fcntl.flock(other, fcntl.LOCK_EX)

    def release_other(seconds):
        pauses.append(seconds)
        other.close()

    monkeypatch.setattr("time.sleep", release_other)
    lock.acquire(tmp_path)
    assert pauses == [0.5]
    lock.require_held(tmp_path)
    lock.release(tmp_path)


def test_held_lock_is_tried_twice_within_a_second(tmp_path, monkeypatch):
    pauses = []
    monkeypatch.setattr("time.sleep", pauses.append)
    with hold_lock(tmp_path), pytest.raises(Busy, match="is in use by another process"):
        lock.acquire(tmp_path)
    assert pauses == [0.5, 0]
    with pytest.raises(ConfigError, match="was deleted or moved"):
        lock.require_held(tmp_path)


def test_missing_system_locks_allow_everybody(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(lock, "fcntl", None)
        lock.acquire(tmp_path)
        lock.require_held(tmp_path)
        lock.release(tmp_path)

    def raise_unsupported(*arguments):
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr("fcntl.flock", raise_unsupported)
    lock.acquire(tmp_path)
    lock.require_held(tmp_path)
    lock.release(tmp_path)
    with pytest.raises(ConfigError, match="was deleted or moved"):
        lock.require_held(tmp_path)


def test_release_removes_only_folder_that_it_made_and_that_is_empty(tmp_path):
    kept, empty = tmp_path / "kept", tmp_path / "empty"
    kept.mkdir()
    for folder in (kept, empty, tmp_path / "written"):
        lock.acquire(folder)
    (tmp_path / "written" / "config.toml").touch()
    for folder in (kept, empty, tmp_path / "written"):
        lock.release(folder)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kept", "written"]


def test_release_removes_new_parents_until_one_is_used(tmp_path):
    first, second = tmp_path / "runs" / "demo" / "fadas-1", tmp_path / "runs" / "demo" / "fedavg-1"
    lock.acquire(first)
    lock.release(first)
    assert not list(tmp_path.iterdir())
    lock.acquire(first)
    lock.acquire(second)
    (second / "config.toml").touch()
    for folder in (first, second):
        lock.release(folder)
    assert [path.name for path in (tmp_path / "runs" / "demo").iterdir()] == ["fedavg-1"]


def test_lock_held_at_exit_leaves_no_empty_folder(tmp_path):
    code = "import sys; from pathlib import Path; from fadas.runs import lock; lock.acquire(Path(sys.argv[1]))"
    subprocess.run([sys.executable, "-c", code, tmp_path / "runs" / "fadas-1"], check=True)
    assert not list(tmp_path.iterdir())
