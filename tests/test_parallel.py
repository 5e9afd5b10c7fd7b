"""Pieces of work in processes of their own."""

import threading

import pytest
import torch

from fadas.experiments.parallel_runs import run_in_processes


class Stubborn(Exception):
    """Cannot be made from what it is pickled as."""

    def __init__(self, one, two):
        super().__init__(f"{one} and {two}")


class Heavy(Exception):
    """Cannot be pickled at all."""

    def __init__(self):
        super().__init__("too much")
        self.lock = threading.Lock()


def work(item):
    if item == "stubborn":
        raise Stubborn("this", "that")
    if item == "heavy":
        raise Heavy
    return torch.get_num_threads()


@pytest.mark.parametrize(
    ("item", "text"), [("stubborn", "Stubborn: this and that"), ("heavy", "Heavy: too much")], ids=str
)
def test_an_exception_that_cannot_travel_is_told_all_the_same(item, text):
    ((_, error),) = run_in_processes(work, [item], 2)
    assert str(error) == text


def test_the_cores_are_shared_among_those_that_there_is_work_for(monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: 8)
    assert [threads for _, threads in run_in_processes(work, [1], 4)] == [8]
    assert [threads for _, threads in run_in_processes(work, [1, 2, 3], 2)] == [4, 4, 4]
    assert list(run_in_processes(work, [], 2)) == []
