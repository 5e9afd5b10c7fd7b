"""Nodes that vanish, stay silent, join late or come back."""

import itertools

import pytest

pytest.importorskip("flwr")

from flwr.common.constant import ErrorCode

import fadas
from helpers.flower import AMOUNT, ONE, THREE, TWO, Node, Nodes, answer_error, answer_trained, find_lines, stay_silent


def test_silent_node_frees_slot_at_deadline(play):
    play({ONE: Node(), TWO: Node(stay_silent)}, concurrency=1, deadline=7.0)
    waits = [end - begin for (begin, node), (end, _) in itertools.pairwise(play.grid.pushed) if node == TWO]
    assert len(waits) > 0
    assert all(7.0 < seconds < 7.5 for seconds in waits)
    assert (play.last["dropped"], play.last["expired"]) == (0, len(waits))
    assert len(find_lines(play.log, "ended without an update", "expired after 7 s")) == len(waits)


def test_node_lost_during_job_is_dropped_on_flower_error(play):
    gone = Node(latency=3.0, spans=((0.0, 2.0),), farewell=answer_error(ErrorCode.NODE_UNAVAILABLE, "no heartbeat"))
    play({ONE: Node(latency=9.0), TWO: gone, THREE: Node(latency=9.0)})
    assert play.grid.times(TWO) == [0.0]
    assert (play.last["dropped"], play.last["expired"]) == (1, 0)
    assert len(find_lines(play.log, "node 12 (client 1) is gone")) == 1
    assert len(find_lines(play.log, "client=1", "error 5", "no heartbeat")) == 1


def test_node_lost_silently_during_job_expires_at_deadline(play):
    play({ONE: Node(), TWO: Node(latency=3.0, spans=((0.0, 2.0),))}, steps=40)
    assert play.grid.times(TWO) == [0.0]
    assert (play.last["dropped"], play.last["expired"]) == (0, 1)
    assert len(find_lines(play.log, "node 12 (client 1) is gone")) == 1


def test_unreachable_node_gets_no_work_until_seen_again(play):
    """Flower has given up on the node but still lists it. It must not be chosen in this moment."""
    unreachable = Node(answer_error(ErrorCode.NODE_UNAVAILABLE), latency=0.1)
    play({ONE: unreachable, TWO: Node(latency=0.1)}, concurrency=1, poll=0.1, steps=60)
    looks = 1 + play.clock.now  # one per second
    assert 1 < len(play.grid.times(ONE)) <= looks
    assert play.last["dropped"] > 1


def test_node_lost_while_idle_gets_no_work(play):
    play(
        {ONE: Node(), TWO: Node(spans=((0.0, 20.0),), farewell=answer_trained), THREE: Node()}, concurrency=1, steps=60
    )
    assert len(play.grid.times(TWO)) > 1
    assert max(play.grid.times(TWO)) < 20.0
    assert play.clock.now > 60.0
    assert len(find_lines(play.log, "node 12 (client 1) is gone")) == 1
    assert play.last["dropped"] == play.last["expired"] == 0


@pytest.mark.parametrize("untaken", [(), ("",)], ids=["as in memory", "as over HTTP"])
def test_messages_not_taken_by_grid_are_dropped_jobs(play, untaken):
    """Two nodes leave between two looks at the node list. Messages sent to them get no id."""
    short = Node(latency=0.2, spans=((0.0, 1.5), (20.0, float("inf"))), farewell=answer_trained)
    play({ONE: short, TWO: short, THREE: Node(latency=0.3)}, untaken=untaken, poll=0.1, steps=150)
    assert play.last["dropped"] >= 2
    assert len(find_lines(play.log, "not sent")) == play.last["dropped"]
    assert play.grid.most == 2
    for id in (ONE, TWO):
        assert not [t for t in play.grid.times(id) if 1.5 < t < 20.0]
        assert [t for t in play.grid.times(id) if t > 20.0]


def test_late_node_gets_work_after_joining(play):
    play({ONE: Node(), TWO: Node(spans=((6.0, float("inf")),))}, steps=20)
    assert 6.0 <= min(play.grid.times(TWO)) < 7.5
    assert play.grid.most == 2
    assert {job["client"] for record in play.records for job in record["jobs"]} == {0, 1}
    assert len(find_lines(play.log, "node 12 joins as client 1")) == 1


def test_returning_node_keeps_client_number(play):
    play({ONE: Node(), TWO: Node(spans=((0.0, 4.0), (10.0, float("inf"))))}, steps=30, deadline=5.0)
    assert len(find_lines(play.log, "node 12 joins as client 1")) == 2
    assert [t for t in play.grid.times(TWO) if t > 10.0]


@pytest.mark.parametrize("algorithm", [fadas.FedBuff(), fadas.FedAvg()], ids=["asynchronous", "in rounds"])
def test_fewer_nodes_than_slots_are_enough(play, algorithm):
    play({ONE: Node(), TWO: Node(latency=2.0)}, concurrency=5, buffer=4, algorithm=algorithm, steps=6)
    assert play.grid.most == 2
    assert play.last["dropped"] == play.last["expired"] == 0


def test_round_ends_when_node_is_lost_and_others_are_busy(play):
    gone = Node(latency=1.0, spans=((0.0, 0.5),), farewell=answer_error(ErrorCode.NODE_UNAVAILABLE))
    nodes = {ONE: Node(latency=5.0), TWO: gone, THREE: Node(latency=5.0)}
    play(nodes, concurrency=3, buffer=3, algorithm=fadas.FedAvg(), steps=4, timeout=100)
    assert play.last["dropped"] == 1


def test_thousand_messages_not_taken_are_waited_out(play, monkeypatch):
    many = {1000 + k: Node() for k in range(1000)}
    for node in many:
        monkeypatch.setitem(AMOUNT, node, 0.5)
    push = Nodes.push_messages

    def push_or_lose(grid, messages):
        return [] if 5.0 <= grid.clock.now < 7.5 else push(grid, messages)

    monkeypatch.setattr(Nodes, "push_messages", push_or_lose)
    play(many, concurrency=20, buffer=10, steps=20, check=False)
    assert play.last["dropped"] > 2000
