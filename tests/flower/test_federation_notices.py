"""What a federation says when it says it, in full words, and what it does not say."""

import pytest

pytest.importorskip("flwr")
from flwr.app import MetricRecord

import fadas
from fadas.algorithms.privacy import Private
from fadas.algorithms.robust import Median
from fadas.core.update_checks import Checks
from helpers.flower import AMOUNT, ONE, THREE, TWO, Node, answer_trained, find_lines, stay_silent, stop_server_after

FOUR = 14
MEDIAN = {"algorithm": fadas.Algorithm(Median()), "check": False, "steps": 3, "buffer": 2}


@pytest.fixture(autouse=True)
def add_fourth_node(monkeypatch):
    monkeypatch.setitem(AMOUNT, FOUR, 0.5)


@pytest.mark.parametrize(
    ("nodes", "notices"),
    [
        (1, ["1 nodes with per_client = 1 cannot fill a buffer of 2: waiting for more nodes"]),
        (2, ["2 nodes with per_client = 1 just fill a buffer of 2: one that fails stops the run"]),
        (3, []),
        (4, []),
    ],
)
def test_notice_of_few_nodes_comes_once_and_in_these_words(play, nodes, notices):
    late = {} if nodes > 1 else {TWO: Node(spans=((6.0, 1e9),)), THREE: Node(spans=((6.0, 1e9),))}
    play({**{ONE + k: Node() for k in range(nodes)}, **late}, concurrency=4, **MEDIAN)
    assert find_lines(play.log, "nodes with per_client") == notices


def test_notice_of_few_nodes_comes_again_after_it_was_over(play):
    nodes = {ONE: Node(), TWO: Node(), THREE: Node(spans=((3.0, 8.0), (12.0, 1e9)))}
    play(nodes, concurrency=3, **{**MEDIAN, "steps": 10})
    assert len(find_lines(play.log, "2 nodes with per_client = 1 just fill")) == 2


def test_step_without_evaluation_is_logged_on_a_line_that_ends_with_its_loss(play):
    play({ONE: Node()}, concurrency=1, steps=2)
    assert find_lines(play.log, "step 1:") == ["step 1: tau [0], train loss 0.5000 "]
    assert find_lines(play.log, "joins") == ["node 11 joins as client 0"]


def test_step_with_privacy_is_logged_with_its_cost_at_the_end(play):
    pytest.importorskip("dp_accounting")
    play({ONE: Node()}, algorithm=fadas.Algorithm(Private(10.0, 0.5)), concurrency=1, steps=1, check=False)
    (line,) = find_lines(play.log, "step 1:")
    assert line.endswith(" at delta 1e-05")


def test_words_of_a_failed_job_are_cut(play):
    def answer_wrong_shape(message):
        (reply,) = answer_trained(message)
        reply.content["arrays"].clear()
        return [reply]

    play({ONE: Node(), TWO: Node(answer_wrong_shape)}, concurrency=2, steps=6)
    (line, *_) = find_lines(play.log, "ended without an update")
    words = "malformed ValueError array 'w' is missing; a reply must hold all trained arrays"
    assert line == f"Job(id=1, client=1, version=0) of node 12 ended without an update: {words}"


def test_late_reply_is_logged_with_its_node(play):
    play({ONE: Node(latency=0.5), TWO: Node(latency=9.0)}, deadline=5.0, steps=40)
    assert set(find_lines(play.log, "a reply of node")) == {"a reply of node 12 is refused: expired"}


def test_published_step_is_not_published_again(play):
    """The server dies while it evaluates a step, and again before the next update."""
    pytest.importorskip("dp_accounting")
    evaluated = []

    def evaluate(step, arrays):
        evaluated.append(step)
        if evaluated == [0, 1, 2]:
            raise KeyboardInterrupt
        return MetricRecord({"accuracy": 0.5})

    options = {"algorithm": fadas.Algorithm(Private(10.0, 0.5)), "concurrency": 1, "steps": 4, "check": False}
    for answer in (answer_trained, stop_server_after(0)):
        with pytest.raises(KeyboardInterrupt):
            play({ONE: Node(answer)}, evaluate=evaluate, **options)
    play({ONE: Node()}, evaluate=evaluate, **options)
    assert evaluated == [0, 1, 2, 2, 3, 4]
    assert [record["step"] for record in play.records] == [1, 2, 3, 4]


def test_look_at_the_nodes_comes_once_a_second(play):
    nodes = {ONE: Node(), TWO: Node(spans=((5.5, 1e9),))}
    play(nodes, concurrency=2, steps=40, poll=0.25)
    assert min(play.grid.times(TWO)) == 6.25, "the first poll more than a second after the last look, at 5.0"


def test_update_taken_out_of_the_buffer_is_named(play):
    def answer_huge(message):
        replies = answer_trained(message)
        for reply in replies:
            reply.content["arrays"]["w"] = type(reply.content["arrays"]["w"])(
                reply.content["arrays"]["w"].numpy() * 1e30
            )
        return replies

    nodes = {ONE: Node(answer_huge, latency=0.2), TWO: Node(latency=1.0), THREE: Node(latency=1.1)}
    play(
        nodes, algorithm=fadas.FADAS(), concurrency=3, buffer=3, steps=2, check=False, checks=Checks(norm_factor=0),
        deadline=9.0,
    )  # fmt: skip
    assert find_lines(play.log, "the update of Job(id=0, client=0, version=0) of node 11 is taken out of the buffer")
    assert play.last["refused"]["step not finite"] > 0


def test_timeout_is_told_from_silence(play):
    with pytest.raises(RuntimeError, match=r"^no server step in 5 s: giving up$"):
        play({ONE: Node(stay_silent)}, concurrency=1, timeout=5.0, poll=0.5)


def test_message_that_was_not_taken_is_logged_without_more_words(play):
    short = Node(latency=0.2, spans=((0.0, 1.5),), farewell=answer_trained)
    play({ONE: short, TWO: Node(latency=0.3)}, poll=0.1, steps=20)
    lines = find_lines(play.log, "not sent")
    assert lines
    assert all(line.endswith(" of node 11 ended without an update: not sent ") for line in lines)


def test_every_reply_of_a_wrong_node_is_counted_once(play):
    def answer_for_other(message):
        replies = answer_trained(message)
        for reply in replies:
            reply.metadata.__dict__["_src_node_id"] = 99
        return replies

    play({ONE: Node(), TWO: Node(answer_for_other)}, steps=6, deadline=4.0)
    assert play.last["refused"] == {"wrong node": len(find_lines(play.log, "a reply of node 99"))}
