"""Work in processes."""

import pytest

from fadas.experiments.parallel_runs import run_in_processes
from helpers.importable import count_threads


@pytest.mark.parametrize(
    ("item", "text"),
    [("not unpickled", "NotUnpickled: this and that"), ("not pickled", "NotPickled: too much")],
    ids=str,
)
def test_exception_that_cannot_be_pickled_is_reported(item, text):
    ((_, error),) = run_in_processes(count_threads, [item], 2)
    assert str(error) == text


def test_cores_are_shared_among_busy_workers(monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: 8)
    assert [threads for _, threads in run_in_processes(count_threads, [1], 4)] == [8]
    assert [threads for _, threads in run_in_processes(count_threads, [1, 2, 3], 2)] == [4, 4, 4]
    assert list(run_in_processes(count_threads, [], 2)) == []
