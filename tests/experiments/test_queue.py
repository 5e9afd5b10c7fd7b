"""Runs that several processes share."""

from itertools import chain, repeat

import pytest

from fadas.errors import Busy, ConfigError
from fadas.experiments.queue import RunQueue


def attempt_with(busy_times):
    """Return an attempt that raises `Busy` for an item as often as told."""
    left = dict(busy_times)

    def attempt(item):
        if left.get(item, 0):
            left[item] -= 1
            raise Busy(f"{item} is in use")
        return item.upper()

    return attempt


def test_queue_defers_item_of_other_process_to_the_end():
    said = []
    queue = RunQueue(["a", "b", "c"], str, said.append)
    assert list(queue.run(attempt_with({"a": 1}))) == [("b", "B"), ("c", "C"), ("a", "A")]
    assert queue.skipped == []
    assert said == ["a: another process was running it; trying again"]


def test_queue_skips_item_that_stays_busy_and_names_it():
    queue = RunQueue(["a", "b"], str)
    assert list(queue.run(attempt_with({"b": 2}))) == [("a", "A")]
    assert queue.skipped == ["b"]
    with pytest.raises(Busy, match="1 of 2 runs skipped, because another process is running them: b"):
        queue.raise_if_skipped()


def test_queue_waits_for_busy_items(monkeypatch):
    said = []
    looks = chain([True, True, True], repeat(False))
    monkeypatch.setattr("fadas.experiments.queue._PAUSE", 0.0)
    queue = RunQueue(["a", "b"], str, said.append, lambda item: next(looks))
    assert list(queue.run(attempt_with({"a": 3}))) == [("b", "B"), ("a", "A")]
    assert said == ["waiting for another process, which is running a"]
    assert queue.skipped == []


def test_queue_raises_other_errors_at_once():
    def fail(item):
        raise ConfigError("wrong")

    with pytest.raises(ConfigError, match="wrong"):
        list(RunQueue(["a", "b"], str).run(fail))


def test_queue_can_run_again_after_skipping():
    queue = RunQueue(["a"], str)
    assert list(queue.run(attempt_with({"a": 2}))) == []
    assert list(queue.run(attempt_with({}))) == [("a", "A")]
    assert queue.skipped == []
