"""The exact bounds of what a deployment's checkpoint may say, and the words of each refusal."""

import re

import pytest

pytest.importorskip("flwr")
from fadas.flower.saved_run import SavedRun
from fadas.runs.serialization import to_json
from helpers.folders import make_record

# One step of M = 2, one update in the buffer and one that waits.
SAVED = {
    "version": 1,
    "next_id": 7,
    "nodes": [11, 12],
    "absent": [],
    "buffer": [[[4, 0, 1], 10]],
    "waiting": [[[6, 1, 1], 10]],
    "sent": {"4": 1.5},
    "ends": {"4": 2.5},
    "now": 3.0,
    "updates": 5,
    "removed": 1,
    "dropped": 2,
    "expired": 3,
    "key": "01" * 32,
}
MOST = 2**62 - 1


def parse(**changes):
    return SavedRun.parse({**SAVED, **changes}, 2)


def test_every_counter_is_restored():
    run = parse()
    assert vars(run.progress) == {"updates": 5, "removed": 1, "dropped": 2, "expired": 3}
    assert (run.buffer[0].id, run.waiting[0].id) == (4, 6)
    assert (run.key, run.now, type(parse(now=3).now)) == (b"\x01" * 32, 3.0, float)


def test_counters_of_earlier_version_are_zero():
    old = {name: value for name, value in SAVED.items() if name not in ("removed", "dropped", "expired", "waiting")}
    progress = SavedRun.parse({**old, "updates": 3}, 2).progress
    assert (progress.removed, progress.dropped, progress.expired) == (0, 0, 0)


@pytest.mark.parametrize(
    "change",
    [
        {"next_id": MOST},
        {"dropped": MOST},
        {"expired": MOST},
        {"updates": MOST, "removed": MOST - 4},
        {"now": 9.9e99, "sent": {"4": 0}, "ends": {"4": 9.9e99}},
        {"unpublished": to_json(make_record(1).as_dict())},
        {"unpublished": None},
    ],
    ids=lambda change: ", ".join(change),
)
def test_bounds_are_accepted(change):
    run = parse(**change)
    assert (run.unpublished is not None) is bool(change.get("unpublished"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"next_id": 2**62}, "next_id must be below 4611686018427387904, got 4611686018427387904"),
        ({"dropped": 2**62}, "dropped must be below 4611686018427387904, got 4611686018427387904"),
        ({"updates": -1}, "updates must be a whole number of at least 0, got -1"),
        ({"removed": -1}, "removed must be a whole number of at least 0, got -1"),
        ({"expired": 0.5}, "expired must be a whole number of at least 0, got 0.5"),
        ({"absent": [2]}, "absent must be below 2, got 2"),
        ({"absent": [-1]}, "absent must be a whole number of at least 0, got -1"),
        ({"nodes": [11, -1]}, "a node must be a whole number of at least 0, got -1"),
        ({"nodes": [11, 11]}, "a node is named twice"),
        ({"nodes": [11]}, "an update is of a client that does not exist"),
        ({"next_id": 6}, "next_id is the number of an earlier job"),
        ({"key": "00" * 33}, "the key must have 32 bytes"),
        ({"updates": 6}, "5 updates do not make 1 steps"),
        ({"version": 2}, "4 updates do not make 2 steps"),
        ({"now": 1e100}, "now is too late: 1e+100"),
        ({"now": -1.0}, "now must be a finite number of at least 0, got -1.0"),
        ({"sent": {"4": 1e100}}, "sent is too late: 1e+100"),
        ({"ends": {"4": -1.0}}, "ends must be a finite number of at least 0, got -1.0"),
        ({"buffer": [[[-4, 0, 1], 10]]}, "buffer must be a whole number of at least 0, got -4"),
        ({"waiting": [[[6, 1, -1], 10]]}, "waiting must be a whole number of at least 0, got -1"),
        ({"unpublished": to_json(make_record(2).as_dict())}, "the unpublished step is not the last one"),
    ],
    ids=str,
)
def test_impossible_value_is_refused_in_these_words(change, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        parse(**change)
