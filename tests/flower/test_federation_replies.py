"""Replies: wrong, late, repeated, never asked for."""

import numpy as np
import pytest

pytest.importorskip("flwr")
from flwr.app import Array, ArrayRecord, MetricRecord
from flwr.common.constant import ErrorCode

from helpers.flower import INITIAL, NAN, ONE, TWO, Node, answer_error, answer_records, answer_trained, find_lines


def test_error_reply_frees_slot(play):
    play({ONE: Node(), TWO: Node(answer_error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, "disk full"))}, concurrency=1)
    failed = play.grid.heard.count(TWO)
    assert failed > 0
    assert (play.last["dropped"], play.last["expired"], play.last["refused"]) == (failed, 0, {})
    assert len(find_lines(play.log, "ended without an update", "error 2", "disk full")) == failed


@pytest.mark.parametrize("code", [ErrorCode.MESSAGE_UNAVAILABLE, ErrorCode.REPLY_MESSAGE_UNAVAILABLE])
def test_expired_message_frees_slot(play, code):
    play({ONE: Node(), TWO: Node(answer_error(code))}, concurrency=1)
    failed = play.grid.heard.count(TWO)
    assert failed > 0
    assert (play.last["dropped"], play.last["expired"]) == (0, failed)
    assert len(find_lines(play.log, "ended without an update", "expired")) == failed


def answer_twice(delay):
    """Reply, and reply again after a delay."""

    def answer(message):
        (reply,) = answer_trained(message)
        (again,) = answer_trained(message)
        again.delay = delay
        return [reply, again]

    return answer


@pytest.mark.parametrize("delay", [0.0, 2.5], ids=["together", "later"])
def test_repeated_reply_is_applied_once(play, delay):
    play({ONE: Node(answer_twice(delay)), TWO: Node(latency=1.5)}, steps=20)
    repeats = play.last["refused"]["already reported"]
    mine = sum(job["client"] == 0 for record in play.records for job in record["jobs"])
    assert mine - 4 <= repeats <= mine
    assert len(find_lines(play.log, "a reply of node 11 is refused: already reported")) >= repeats
    assert play.grid.most == 2


def test_reply_to_expired_job_is_refused(play):
    play({ONE: Node(latency=9.0), TWO: Node()}, deadline=5.0, steps=40)
    assert {job["client"] for record in play.records for job in record["jobs"]} == {1}
    assert play.last["expired"] >= 6
    assert play.last["refused"]["expired"] >= 5
    assert find_lines(play.log, "a reply of node 11 is refused: expired")


def test_reply_to_unknown_message_is_refused(play):
    def answer_unknown(message):
        (reply,), (other,) = answer_trained(message), answer_trained(message)
        other.metadata.__dict__["_reply_to_message_id"] = "another run's"
        return [other, reply]

    play({ONE: Node(answer_unknown), TWO: Node()})
    assert play.last["refused"]["unknown job"] > 0
    assert find_lines(play.log, "a reply of node 11 is refused: unknown job")


WHOLE = ArrayRecord({"w": Array(INITIAL)})


GARBAGE = Array(dtype="float32", shape=(2,), stype="numpy.ndarray", data=b"")


MALFORMED = {
    "no arrays": answer_records(metrics=MetricRecord({"num-examples": 1})),
    "another array": answer_records(arrays=ArrayRecord({"v": Array(INITIAL)})),
    "another shape": answer_records(arrays=ArrayRecord({"w": Array(np.zeros(3, np.float32))})),
    "two records": answer_records(arrays=WHOLE, more=WHOLE),
    "complex numbers": answer_records(arrays=ArrayRecord({"w": Array(INITIAL.astype(np.complex64))})),
    "whole numbers": answer_records(arrays=ArrayRecord({"w": Array(INITIAL.astype(np.int64))})),
    "truths": answer_records(arrays=ArrayRecord({"w": Array(INITIAL > 0)})),
    "words": answer_records(arrays=ArrayRecord({"w": Array(INITIAL.astype(str))})),
    "dates": answer_records(arrays=ArrayRecord({"w": Array(INITIAL.astype("datetime64[D]"))})),
    "no bytes": answer_records(arrays=ArrayRecord({"w": GARBAGE})),
    "infinitely many examples": answer_records(arrays=WHOLE, metrics=MetricRecord({"num-examples": float("inf")})),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_reply_frees_slot(play, name):
    play({ONE: Node(), TWO: Node(MALFORMED[name])}, concurrency=1)
    failed = play.grid.heard.count(TWO)
    assert failed > 0
    assert play.last["dropped"] == len(find_lines(play.log, "ended without an update", "malformed")) == failed


def test_refused_update_frees_slot(play):
    play({ONE: Node(), TWO: Node(answer_records(arrays=NAN))}, concurrency=1)
    failed = play.grid.heard.count(TWO)
    assert failed > 0
    assert play.last["refused"] == {"not finite": failed}
    assert len(find_lines(play.log, "is refused: not finite")) == failed


def test_model_is_evaluated_every_k_steps_and_at_end(play):
    seen = {}

    def evaluate(step, arrays):
        seen[step] = arrays["w"].numpy().tolist()
        return MetricRecord({"accuracy": step / 10})

    play({ONE: Node(), TWO: Node()}, steps=8, evaluate=evaluate, eval_every=3)
    assert list(seen) == [0, 3, 6, 8]
    assert seen[0] == INITIAL.tolist()
    assert [r["metrics"] and r["metrics"]["accuracy"] for r in play.records] == [
        None,
        None,
        0.3,
        None,
        None,
        0.6,
        None,
        0.8,
    ]
