"""Work in processes."""

import multiprocessing
import os
import signal
import warnings
from multiprocessing.context import SpawnProcess

import pytest

from fadas.errors import FadasWarning
from fadas.experiments.parallel_runs import run_in_processes
from helpers.importable import count_threads, report_twice, terminate_at_exit, warn_of


def test_cores_are_shared_and_exceptions_that_cannot_be_pickled_are_reported(monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: 8)
    assert [threads for _, threads in run_in_processes(count_threads, [1], 4)] == [8]
    results = dict(run_in_processes(count_threads, [1, "not unpickled", 2, "not pickled", 3], 2))
    errors = {item: str(results.pop(item)) for item in ("not unpickled", "not pickled")}
    assert results == {1: 4, 2: 4, 3: 4}
    assert errors == {"not unpickled": "NotUnpickled: this and that", "not pickled": "NotPickled: too much"}
    assert list(run_in_processes(count_threads, [], 2)) == []


def test_warnings_of_workers_are_shown_once_in_the_parent():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        results = list(run_in_processes(warn_of, ["one two", "two one", ""], 2))
    assert sorted(str(warning.message) for warning in caught) == ["one", "two"]
    assert all(warning.category is FadasWarning for warning in caught)
    assert sorted(result for _, result in results) == ["", "one two", "two one"]


def test_progress_of_workers_arrives_before_the_result():
    seen = []
    for item, result in run_in_processes(report_twice, [10, 20], 2, lambda *progress: seen.append(progress)):
        assert result == -item
        assert [progress for of, progress in seen if of == item] == [item, item + 1]
    assert report_twice(30) == -30, "nobody to tell in this process"
    assert len(seen) == 4


def test_worker_that_is_terminated_while_it_exits_prints_nothing(capfd):
    assert list(run_in_processes(terminate_at_exit, ["item"], 2)) == [("item", "item")]
    assert capfd.readouterr().err == ""


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
