"""What a deployment's checkpoint says of the run, checked before it is used."""

import pytest

pytest.importorskip("flwr")
from fadas.flower.saved_run import SavedRun

# One step of M = 2, and one update in the buffer.
SAVED = {
    "version": 1,
    "next_id": 7,
    "nodes": [11, 2**64 - 1, 13],
    "absent": [2],
    "buffer": [[[4, 0, 1], 10]],
    "sent": {"4": 1.5},
    "ends": {"4": 2.5},
    "now": 3.0,
    "updates": 3,
    "key": "00" * 32,
}


def test_saved_run_has_the_values_of_its_checkpoint():
    run = SavedRun.parse(SAVED, 2)
    assert (run.next_id, run.nodes, run.absent, run.now) == (7, [11, 2**64 - 1, 13], [2], 3.0)
    assert [(job.id, job.client, job.version) for job in run.buffer] == [(4, 0, 1)]
    assert (run.waiting, run.sent, run.ends) == ([], {4: 1.5}, {4: 2.5})
    assert (run.progress.updates, run.progress.removed, run.key, run.unpublished) == (3, 0, bytes(32), None)


def test_checkpoint_of_earlier_version_needs_fewer_values():
    old = {name: value for name, value in SAVED.items() if name not in ("absent", "key")}
    run = SavedRun.parse(old, 2)
    assert (run.absent, run.key) == ([], None)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"nodes": [2**64]}, "a node must be below 18446744073709551616, got 18446744073709551616"),
        ({"nodes": [11, 12, 11]}, "a node is named twice$"),
        ({"nodes": []}, "absent must be below 0, got 2"),
        ({"nodes": [], "absent": []}, "an update is of a client that does not exist"),
        ({"absent": [3]}, "absent must be below 3, got 3"),
        ({"sent": {"4": 1e100}}, "sent is too late: 1e\\+100"),
        ({"sent": {"4": -1.0}}, "sent must be a finite number of at least 0"),
        ({"ends": {"4": 1e100}}, "ends is too late"),
        ({"now": 1e100}, "now is too late"),
        ({"next_id": 4}, "next_id is the number of an earlier job$"),
        ({"next_id": -1}, "next_id must be a whole number of at least 0"),
        ({"key": "00" * 31}, "the key must have 32 bytes$"),
        ({"updates": 2}, "2 updates do not make 1 steps"),
        ({"updates": 4, "removed": 2}, "2 updates do not make 1 steps"),
        ({"buffer": [[[4, 0, 1], 10], [[5, 1, 1], 10]], "updates": 4}, "the buffer holds 2 updates, as many as a step"),
    ],
)
def test_impossible_values_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        SavedRun.parse({**SAVED, **change}, 2)
