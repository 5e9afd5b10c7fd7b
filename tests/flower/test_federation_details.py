"""What a federation counts, keeps, logs and returns."""

import itertools

import pytest

pytest.importorskip("flwr")
from flwr.app import MetricRecord
from flwr.common.constant import ErrorCode

import fadas
from fadas.errors import ConfigError
from fadas.flower import strategy
from fadas.flower.federation import Federation
from helpers.flower import (
    NAN,
    ONE,
    THREE,
    TWO,
    Node,
    answer_error,
    answer_records,
    answer_trained,
    find_lines,
    stay_silent,
    stop_server_after,
)


def take_turns(*answers):
    turns = itertools.cycle(answers)
    return lambda message: next(turns)(message)


def test_result_holds_metrics_of_every_step(play):
    def evaluate(step, arrays):
        return MetricRecord({"accuracy": step / 10, "counts": [1, 2]})

    play({ONE: Node(), TWO: Node()}, steps=4, eval_every=2, evaluate=evaluate)
    trained = {step: dict(record) for step, record in play.result.train_metrics_clientapp.items()}
    assert trained == {record["step"]: {"train_loss": record["train_loss"]} for record in play.records}
    evaluated = play.result.evaluate_metrics_serverapp
    assert {step: record["accuracy"] for step, record in evaluated.items()} == {0: 0.0, 2: 0.2, 4: 0.4}
    assert [record["metrics"] for record in play.records] == [None, {"accuracy": 0.2}, None, {"accuracy": 0.4}]


def test_steps_and_lost_jobs_are_logged_on_one_line(play):
    nodes = {
        ONE: Node(),
        TWO: Node(take_turns(answer_error(2, "disk\n full"), answer_error(2), answer_records(arrays=NAN))),
    }
    play(nodes, steps=9, evaluate=lambda step, arrays: MetricRecord({"accuracy": 0.5}))
    assert "step 1: tau [0], train loss 0.5000 {'accuracy': 0.5}" in play.log
    assert len(find_lines(play.log, "step ", "tau ", "train loss")) == 9
    assert find_lines(play.log, "client=1", "ended without an update: error 2 disk full")
    assert [line for line in play.log if line.endswith("ended without an update: error 2 ")]
    assert find_lines(play.log, "the update of Job(", "client=1", "is refused: not finite")


def test_run_that_never_accepts_twice_in_a_row_does_not_give_up(play):
    """Patience is 120 jobs here. It is the number of failures in a row that counts, not their sum."""
    play({ONE: Node(take_turns(answer_error(2), answer_trained))}, concurrency=1, steps=150)
    assert play.last["dropped"] == 150
    play.folder = play.folder / "refused"
    play({ONE: Node(take_turns(answer_records(arrays=NAN), answer_trained))}, concurrency=1, steps=150)
    assert play.last["refused"] == {"not finite": 150}


def test_run_gives_up_after_one_failure_more_than_its_patience(play):
    with pytest.raises(RuntimeError, match="the last 120 jobs all failed: giving up"):
        play({ONE: Node(answer_error(2))}, concurrency=1)
    assert len(find_lines(play.log, "ended without an update")) == 121


def test_failures_that_began_during_a_job_wait_for_it(play):
    """The slow node has the second job. The failures of the others began before it or after it."""
    slow = Node(latency=120.0)
    play({ONE: Node(answer_error(2), latency=0.5), TWO: slow}, steps=1, deadline=600.0, poll=0.5)
    assert play.last["dropped"] > 140
    play.folder = play.folder / "late"
    late = Node(latency=120.0, spans=((60.0, float("inf")),))  # gets its job when 100 have failed already
    with pytest.raises(RuntimeError, match="the last 140 jobs all failed"):
        play({ONE: Node(answer_error(2), latency=0.5), TWO: late}, steps=1, deadline=600.0, poll=0.5)


def test_expired_jobs_are_not_counted_as_failures(play):
    """A silent node says nothing about training. Its slot is given away again and again."""
    nodes = {ONE: Node(stay_silent), TWO: Node(latency=0.5, spans=((200.0, 1e9),))}
    play(nodes, concurrency=1, steps=3, deadline=1.0, poll=0.5)
    assert play.last["expired"] > 120


@pytest.fixture
def made(monkeypatch):
    """The federations of this test."""
    made = []

    class Kept(Federation):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            made.append(self)

    monkeypatch.setattr(strategy, "Federation", Kept)
    return made


def test_nothing_is_kept_of_jobs_that_have_ended(play, made):
    faulty = Node(take_turns(answer_error(2), answer_records(arrays=NAN), stay_silent, answer_trained))
    play({ONE: Node(), TWO: faulty, THREE: Node()}, steps=60, buffer=2, concurrency=3, deadline=5.0)
    (federation,) = made
    running = set(federation.server.ledger.running)
    assert running
    assert set(federation.sent) <= running | {job.id for job in federation.server.ledger.buffer}
    assert len(federation.mailbox.under_way) <= len(running)
    assert federation.ends == {}


def test_resumed_federation_counts_clients_that_are_away(play, made):
    """CA2FL divides by the number of clients, whether they are connected or not."""
    with pytest.raises(KeyboardInterrupt):
        play({ONE: Node(stop_server_after(3)), TWO: Node(), THREE: Node()}, concurrency=3)
    assert made[0].server.ledger.clients == 3
    play({ONE: Node()}, concurrency=3)
    assert made[1].server.ledger.clients == 3


class DividingByOthers:
    """Divides by the number of clients outside the buffer."""

    def __repr__(self):
        return "DividingByOthers()"

    def __call__(self, state, step, updates, clients):
        return updates[0].delta / (clients - len(updates)), {}


class Complaining:
    def __call__(self, state, step, updates, clients):
        raise ValueError("the first line\nthe second line")


def test_trial_step_has_more_clients_than_updates(play):
    play({ONE: Node(), TWO: Node(), THREE: Node()}, algorithm=fadas.Algorithm(DividingByOthers()), check=False)
    assert play.last["step"] == 12


def test_trial_step_reports_first_line_of_error(play):
    with pytest.raises(ConfigError, match=r"cannot take a step of 1 updates: ValueError: the first line$"):
        play({ONE: Node()}, algorithm=fadas.Algorithm(Complaining()))


def test_waiting_is_logged_every_ten_seconds(play):
    with pytest.raises(RuntimeError, match="no node was connected for 30 s"):
        play({}, patience=30.0, poll=0.5)
    waits = find_lines(play.log, "no node is connected: waiting")
    assert [line.partition("(")[2] for line in waits] == ["0 of 30 s)", "10 of 30 s)", "20 of 30 s)", "30 of 30 s)"]


def test_patience_and_timeout_are_over_after_the_bound_and_not_at_it(play):
    with pytest.raises(RuntimeError, match="no node was connected for 5 s"):
        play({}, patience=5.0, poll=0.5)
    assert play.clock.now == 5.5
    with pytest.raises(RuntimeError, match="no server step in 5 s"):
        play({ONE: Node(stay_silent)}, timeout=5.0, poll=0.5)
    assert play.clock.now == 5.5


def test_first_start_is_evaluated_and_restart_is_not(play):
    seen = []

    def evaluate(step, arrays):
        seen.append(step)

    with pytest.raises(KeyboardInterrupt):
        play({ONE: Node(stop_server_after(2))}, concurrency=1, steps=4, evaluate=evaluate)
    play({ONE: Node()}, concurrency=1, steps=4, evaluate=evaluate)
    assert seen == [0, 1, 2, 3, 4]


def test_unavailable_node_is_lost_and_failing_node_is_not(play):
    """A node whose app fails is still there, and gets the next job at once."""
    play(
        {ONE: Node(take_turns(answer_error(ErrorCode.UNKNOWN), answer_trained), latency=0.25)}, concurrency=1, poll=0.25
    )
    assert not find_lines(play.log, "is gone")
    assert play.clock.now < 12 * 2 * 0.6
    play.folder = play.folder / "unavailable"
    unavailable = take_turns(answer_error(ErrorCode.NODE_UNAVAILABLE), answer_trained)
    play({ONE: Node(unavailable, latency=0.25)}, concurrency=1, poll=0.25)
    assert len(find_lines(play.log, "node 11 (client 0) is gone")) == 12
