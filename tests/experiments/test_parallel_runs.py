"""Work in processes."""

import multiprocessing
import os
import select
import signal
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from multiprocessing.context import SpawnProcess

import pytest

from fadas.errors import FadasWarning
from fadas.executors.processes import can_fork
from fadas.experiments.parallel_runs import end_with_parent, run_in_processes
from helpers.importable import count_threads, terminate_at_exit, warn_of


def test_cores_are_shared_and_exceptions_that_cannot_be_pickled_are_reported(monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: 8)
    assert [threads for _, threads in run_in_processes(count_threads, [1], 4)] == [8]
    results = dict(run_in_processes(count_threads, [1, "not unpickled", 2, "not pickled", 3], 2))
    errors = {item: str(results.pop(item)) for item in ("not unpickled", "not pickled")}
    assert results == {1: 4, 2: 4, 3: 4}
    assert errors == {"not unpickled": "NotUnpickled: this and that", "not pickled": "NotPickled: too much"}
    assert list(run_in_processes(count_threads, [], 2)) == []


def test_warnings_and_progress_of_workers_reach_the_parent():
    seen = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        results = list(run_in_processes(warn_of, ["one two", "two one", ""], 2, lambda *told: seen.append(told)))
    assert sorted(str(warning.message) for warning in caught) == ["one", "two"]
    assert all(warning.category is FadasWarning for warning in caught)
    assert sorted(result for _, result in results) == ["", "one two", "two one"]
    for item in ("one two", "two one"):
        assert [word for of, word in seen if of == item] == item.split()


def test_worker_that_is_terminated_while_it_exits_prints_nothing(capfd):
    assert list(run_in_processes(terminate_at_exit, ["item"], 2)) == [("item", "item")]
    assert capfd.readouterr().err == ""


def hold_forked_worker(ready):
    with ProcessPoolExecutor(1, multiprocessing.get_context("fork"), initializer=end_with_parent) as pool:
        pool.submit(os.getpid).result()
        ready.set()
        time.sleep(60)


@pytest.mark.skipif(not can_fork(), reason="needs forks")
def test_forked_worker_ends_with_a_killed_parent():
    fork = multiprocessing.get_context("fork")
    ready, (reader, writer) = fork.Event(), os.pipe()
    parent = fork.Process(target=hold_forked_worker, args=(ready,))
    parent.start()
    os.close(writer)  # the parent and its worker hold it, too
    assert ready.wait(20)
    parent.kill()
    assert select.select([reader], [], [], 20)[0], "nobody holds it any more"
    os.close(reader)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_while_worker_starts_takes_effect_and_leaves_none(monkeypatch, number):
    start, started = SpawnProcess.start, []

    def start_with_signal(worker):
        os.kill(os.getpid(), number)
        start(worker)
        started.append(worker)

    before = signal.signal(number, signal.default_int_handler)
    monkeypatch.setattr(SpawnProcess, "start", start_with_signal)
    try:
        with pytest.raises(KeyboardInterrupt):
            list(run_in_processes(count_threads, [1, 2, 3], 2))
    finally:
        signal.signal(number, before)
    assert len(started) == 1
    assert not multiprocessing.active_children()
    assert not signal.pthread_sigmask(signal.SIG_BLOCK, ())
