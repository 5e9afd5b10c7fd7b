"""When a job expires, and when a federation gives up because no step is taken."""

from itertools import pairwise

import pytest

pytest.importorskip("flwr")

from helpers.flower import ONE, THREE, TWO, Node, find_clients, find_lines, stay_silent


def test_silent_node_expires_after_deadline_and_evaluations(play):
    """An evaluation takes three seconds. Nobody listens to the nodes meanwhile, so the deadline moves by as much."""

    def evaluate(step, arrays):
        play.clock.now += 3.0

    nodes = {ONE: Node(latency=1.0), TWO: Node(stay_silent)}
    play(nodes, steps=30, deadline=10.0, evaluate=evaluate)
    steps = [record["time"] for record in play.records]
    sent = play.grid.times(TWO)
    assert play.last["expired"] == len(find_lines(play.log, "expired after 10 s")) >= 2
    waited = [later - earlier for earlier, later in pairwise(sent)]
    evaluated = [sum(earlier < time <= later for time in steps) for earlier, later in pairwise(sent)]
    for seconds, count in zip(waited, evaluated, strict=True):
        assert seconds == pytest.approx(10.0 + 3.0 * count, abs=1.5 + 3.0), "counted from its own message"
        assert seconds > 10.0 + 3.0 * (count - 1)


def test_node_that_returns_during_its_lost_job_works_again(play):
    """The node is gone for a while, and its job with it. When that has expired, the node gets the next ones."""
    gone = Node(latency=5.0, spans=((0.0, 2.5), (6.0, float("inf"))))
    play({ONE: Node(latency=2.0), TWO: gone}, steps=60, deadline=20.0)
    assert len(find_lines(play.log, "node 12 joins as client 1")) == 2
    assert play.last["expired"] == 1
    sent = play.grid.times(TWO)
    assert not [time for time in sent if 0.0 < time <= 20.0], "it has a job"
    assert len([time for time in sent if time > 20.0]) > 3


def test_job_expires_exactly_after_its_deadline(play):
    play({ONE: Node(latency=0.5), TWO: Node(stay_silent)}, steps=60, deadline=7.0, poll=0.5)
    sent = play.grid.times(TWO)
    assert len(sent) > 2
    assert all(7.0 < later - earlier <= 8.0 for earlier, later in pairwise(sent))


@pytest.mark.parametrize(("latency", "expired"), [(6.9, False), (7.7, True)])
def test_answer_within_deadline_is_accepted(play, latency, expired):
    play({ONE: Node(latency=0.5), TWO: Node(latency=latency)}, steps=40, deadline=7.0, poll=0.1)
    assert (play.last["expired"] > 0) == expired
    assert (1 in find_clients(play.records)) == (not expired)


def test_run_without_step_for_timeout_gives_up(play):
    with pytest.raises(RuntimeError, match="no server step in 20 s: giving up"):
        play({ONE: Node(stay_silent), TWO: Node(stay_silent)}, timeout=20.0, deadline=1000.0)
    assert 20.0 < play.clock.now < 21.0


def test_timeout_counts_from_last_step(play):
    """The nodes answer twice and then fall silent."""
    short = Node(latency=8.0, spans=((0.0, 17.0),))
    with pytest.raises(RuntimeError, match="no server step in 20 s: giving up"):
        play({ONE: short}, concurrency=1, timeout=20.0, deadline=1000.0)
    assert [record["time"] for record in play.read()] == pytest.approx([8.0, 16.0], abs=0.5)
    assert 36.0 < play.clock.now < 37.5


def test_run_with_slow_steps_does_not_time_out(play):
    play({ONE: Node(latency=9.0)}, concurrency=1, steps=6, timeout=10.0)
    assert play.clock.now > 50.0


def test_timeout_counts_steps_and_not_updates(play):
    """Updates come all the time, but the buffer of 30 is not full in time."""
    nodes = {ONE: Node(), TWO: Node(), THREE: Node()}
    with pytest.raises(RuntimeError, match="no server step in 5 s: giving up"):
        play(nodes, buffer=30, timeout=5.0)
    assert play.read() == []


SLOW_AND_FAST = {ONE: Node(latency=30.0), TWO: Node(latency=0.2)}


def test_reply_is_refused_with_reason_until_its_message_is_forgotten(play, monkeypatch):
    """Only the last messages are kept, so that a long deployment needs no more memory."""
    options = {"deadline": 5.0, "steps": 200, "poll": 0.1}
    play(SLOW_AND_FAST, **options)
    assert set(play.last["refused"]) == {"expired"}
    monkeypatch.setattr("fadas.flower.mailbox._REMEMBERED", 10)
    play.folder = play.folder / "again"
    play(SLOW_AND_FAST, **options)
    assert set(play.last["refused"]) == {"unknown job"}


def test_message_under_way_is_never_forgotten(play, monkeypatch):
    monkeypatch.setattr("fadas.flower.mailbox._REMEMBERED", 10)
    play(SLOW_AND_FAST, deadline=60.0, steps=200, poll=0.1)
    assert play.last["refused"] == {}
    assert find_clients(play.records) == {0, 1}
