"""Locks of folders that come and go, and of forked processes."""

import os

import pytest

from fadas.errors import Busy, ConfigError
from fadas.runs import lock
from helpers.processes import hold_lock


def test_lock_creates_missing_folders(tmp_path):
    place = tmp_path / "new" / "deep" / "a-0"
    lock.acquire(place)
    assert (place / lock.NAME).exists()
    lock.require_held(place)
    lock.release(place)
    assert not list(tmp_path.iterdir()), "what was created for the lock is removed"


def test_folder_that_was_kept_is_not_removed_later(tmp_path):
    """The first run made the folder and wrote there. Later its files are gone, but the folder is now the user's."""
    place = tmp_path / "a-0"
    lock.acquire(place)
    (place / "config.toml").touch()
    lock.release(place)
    (place / "config.toml").unlink()
    lock.acquire(place)
    lock.release(place)
    assert place.is_dir()


def test_release_of_a_folder_that_is_not_held_does_nothing(tmp_path):
    lock.release(tmp_path)
    with hold_lock(tmp_path / "a-0"):
        lock.release(tmp_path / "a-0")
        assert (tmp_path / "a-0" / lock.NAME).exists()


def test_release_after_the_folder_is_gone_is_quiet(tmp_path):
    place = tmp_path / "a-0"
    lock.acquire(place)
    (place / lock.NAME).unlink()
    place.rmdir()
    with pytest.raises(ConfigError, match="a-0 was deleted or moved"):
        lock.require_held(place)
    lock.release(place)
    lock.acquire(place)
    lock.release(place)


def test_lock_of_a_removed_folder_is_not_taken(tmp_path, monkeypatch):
    """The last holder removes an empty folder between our opening the file and our locking it."""
    place = tmp_path / "a-0"
    place.mkdir()
    locks = lock._locks

    def remove_and_lock(file):
        (place / lock.NAME).unlink()
        return locks(file)

    monkeypatch.setattr(lock, "_locks", remove_and_lock)
    with pytest.raises(Busy, match="a-0 is in use by another process"):
        lock.acquire(place)
    with pytest.raises(ConfigError, match="was deleted or moved"):
        lock.require_held(place)


def test_looking_whether_a_lock_is_free_leaves_it_free(tmp_path):
    lock.require_free(tmp_path / "nowhere")
    assert not (tmp_path / "nowhere").exists()
    (tmp_path / lock.NAME).touch()
    lock.require_free(tmp_path)
    with hold_lock(tmp_path):
        pass
    with pytest.raises(ConfigError, match="was deleted or moved"):
        lock.require_held(tmp_path)
    lock.acquire(tmp_path)
    lock.require_free(tmp_path)  # it is ours
    lock.require_held(tmp_path)
    lock.release(tmp_path)


def run_in_fork(check) -> int:
    """Run a function in a forked process. Return its exit code: 0 if it returned true."""
    child = os.fork()
    if not child:
        code = 2
        try:
            code = 0 if check() else 1
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_forked_process_holds_no_lock(tmp_path, monkeypatch):
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    lock.acquire(tmp_path / "a-0")

    def is_busy():
        try:
            lock.require_held(tmp_path / "a-0")
            return False
        except ConfigError:
            pass
        try:
            lock.acquire(tmp_path / "a-0")
            return False
        except Busy:
            return True

    assert run_in_fork(is_busy) == 0
    lock.require_held(tmp_path / "a-0")
    lock.release(tmp_path / "a-0")


def test_forked_process_does_not_remove_its_parents_folder(tmp_path):
    lock.acquire(tmp_path / "a-0")

    def release():
        lock.release(tmp_path / "a-0")
        return (tmp_path / "a-0" / lock.NAME).exists()

    assert run_in_fork(release) == 0
    lock.require_held(tmp_path / "a-0")
    lock.release(tmp_path / "a-0")


def test_lock_file_is_closed_before_removal_without_fcntl(tmp_path, monkeypatch):
    """Windows has no fcntl, and refuses to remove an open file."""
    monkeypatch.setattr(lock, "fcntl", None)
    place = tmp_path / "a-0"
    lock.acquire(place)
    file = lock._held[place.resolve()]
    unlink = type(place).unlink

    def refuse_open_file(path):
        assert file.closed
        unlink(path)

    monkeypatch.setattr(type(place), "unlink", refuse_open_file)
    lock.release(place)
    assert not place.exists()


def test_empty_folder_is_removed_while_its_lock_is_held(tmp_path, monkeypatch):
    """Otherwise another process could lock a file that is about to be removed."""
    place = tmp_path / "a-0"
    lock.acquire(place)
    file = lock._held[place.resolve()]
    unlink, closed = type(place).unlink, []

    def watch(path):
        closed.append(file.closed)
        unlink(path)

    monkeypatch.setattr(type(place), "unlink", watch)
    lock.release(place)
    assert closed == [False]
    assert file.closed
