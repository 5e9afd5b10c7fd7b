"""Which client a node is, when it comes back or under another id; and what must not count against a node."""

import datetime
import math

import numpy as np
import pytest

pytest.importorskip("flwr")

import flwr.app.message.message as flower
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.server.utils.validator import validate_message

import fadas
from fadas.algorithms.privacy import Private, epsilon
from fadas.core.ledger import Job
from fadas.flower import messages
from fadas.flower.arrays import ArrayLayout, trainable
from fadas.flower.roster import Roster
from helpers.flower import AMOUNT, INITIAL, ONE, THREE, TWO, Node, Nodes, find_clients, find_lines, stop_server_after

AGAIN = (21, 22, 23)  # the same machines under ids that they have drawn anew


@pytest.fixture(autouse=True)
def amounts(monkeypatch):
    for node, known in zip((*AGAIN, 14), (ONE, TWO, THREE, None)):
        monkeypatch.setitem(AMOUNT, node, AMOUNT[known] if known else 0.0625)


def optimum(message):
    """Goes half of the way to its own optimum; that of all three is 2."""
    w, own = message.content["arrays"]["w"].numpy(), 2.0 * (message.metadata.dst_node_id % 10 - 1)
    arrays = ArrayRecord({"w": Array((w + 0.5 * (own - w)).astype(np.float32))})
    return [Message(RecordDict({"arrays": arrays}), reply_to=message)]


def test_nodes_with_other_ids_after_a_restart_take_the_places_of_those_that_are_gone(play):
    with pytest.raises(KeyboardInterrupt):
        play({ONE: Node(stop_server_after(2)), TWO: Node(), THREE: Node()}, concurrency=3)
    play(dict.fromkeys(AGAIN, Node()), concurrency=3, steps=30)
    assert find_clients(play.records) == {0, 1, 2}
    assert find_lines(play.log, "node 22 takes the place of node 12")


def test_a_cache_of_updates_is_not_kept_for_nodes_that_never_come_back(play):
    # `check` expects other answers than these clients give
    far = {"check": False, "concurrency": 3, "buffer": 3, "algorithm": fadas.CA2FL(eta=0.3), "steps": 100}
    with pytest.raises(KeyboardInterrupt):
        play({ONE: Node(stop_server_after(2, optimum)), TWO: Node(optimum), THREE: Node(optimum)}, **far)
    seen = {}
    play(dict.fromkeys(AGAIN, Node(optimum)), evaluate=lambda step, a: seen.update({step: a["w"].numpy()}), **far)
    assert seen[100] == pytest.approx(2.0, abs=0.01)


def test_a_node_that_is_known_gets_its_own_place_before_others_take_what_is_left(play):
    with pytest.raises(KeyboardInterrupt):
        play({ONE: Node(stop_server_after(2)), TWO: Node(), THREE: Node()}, concurrency=3)
    play({THREE: Node(), 21: Node(), 22: Node()}, concurrency=3, steps=30)
    assert [find_lines(play.log, f"node {node} joins as client {c}") != [] for node, c in ((13, 2), (21, 0), (22, 1))]
    assert not find_lines(play.log, "as client 3")


def test_a_newcomer_takes_the_place_of_the_one_that_has_been_away_longest():
    roster = Roster()

    def meet(*ids, busy=()):
        for client in sorted(roster.present):
            if roster.nodes[client] not in ids:
                roster.leave(client)
        admitted = roster.admit(set(ids), busy)
        for client in [c for c in roster.absent if roster.nodes[c] in ids]:
            roster.join(client)
        return admitted

    assert meet(1, 2, 3) == [0, 1, 2]
    assert meet(1, 2) == meet(1) == []
    assert meet(1, 7, busy=[2]) == [1], "client 2 still has a job"
    assert roster.nodes == [1, 7, 3]
    assert meet(1, 3, 7) == [], "it has kept its place"
    assert meet(1) == []
    again = Roster()
    again.restore(roster.nodes, roster.absent)
    assert again.absent == [1, 2, 0], "those that were away before the restart have been away longer"
    roster = again
    assert meet(1, 7, 9) == [2]
    assert meet(1, 7, 9, 3) == [3], "its place is taken, and nobody is away"


def test_a_node_under_another_id_has_spent_no_less_privacy_than_any_before_it(play):
    private = {"algorithm": fadas.Algorithm(Private(1.0, 5.0)), "steps": 60, "check": False}  # the noise is random
    with pytest.raises(KeyboardInterrupt):
        play({ONE: Node(latency=20.0), TWO: Node(stop_server_after(28))}, **private)
    rare, frequent = (sum(job["client"] == c for line in play.read() for job in line["jobs"]) for c in (0, 1))
    assert frequent > 20 > rare
    play({21: Node()}, **private)  # in the place of the one that took part rarely
    assert find_lines(play.log, "node 21 takes the place of node 11")
    assert epsilon(5.0, 1e-5, 60 - rare) <= play.last["privacy"]["epsilon"] <= epsilon(5.0, 1e-5, 62)


def test_a_round_that_was_interrupted_is_ended_by_those_that_have_not_reported(play, monkeypatch):
    four = {ONE: 1.0, TWO: 2.0, THREE: 3.0, 14: 4.0}
    options = {"concurrency": 4, "buffer": 4, "algorithm": fadas.FedAvg(), "steps": 1}

    nodes = {node: Node(latency=latency) for node, latency in four.items()}
    pull = Nodes.pull_messages

    def until(grid, ids):
        if grid.clock.now > 2.5:  # two have reported
            raise KeyboardInterrupt
        return pull(grid, ids)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Nodes, "pull_messages", until)
        play(nodes, **options)
    play(nodes, **options)
    assert sorted(job["client"] for job in play.last["jobs"]) == [0, 1, 2, 3]


def test_an_evaluation_takes_no_time_of_the_nodes(play):
    def evaluate(step, arrays):
        play.clock.now += 12.0

    nodes = {ONE: Node(latency=3.0), TWO: Node(latency=3.5), THREE: Node(latency=4.0)}
    play(nodes, concurrency=3, steps=20, deadline=10.0, evaluate=evaluate)
    assert (play.last["expired"], play.last["refused"]) == (0, {})
    assert find_clients(play.records) == {0, 1, 2}


def test_an_evaluation_takes_none_of_the_patience_either(play):
    def evaluate(step, arrays):
        play.clock.now += 400.0

    nodes = {ONE: Node(latency=1.0, spans=((0.0, 402.5), (1050.0, math.inf)))}
    play(nodes, concurrency=1, steps=3, evaluate=evaluate)


def test_a_job_may_take_as_long_as_its_deadline_and_nodes_as_long_as_the_patience(play):
    slow = Node(latency=5400.0, spans=((4200.0, math.inf),))
    play({ONE: slow}, concurrency=1, steps=2, deadline=7200.0, patience=86400.0, poll=5.0)
    assert play.clock.now >= 15000


@pytest.mark.parametrize("hours", [-2, 0, 2])
def test_a_clock_that_is_wrong_loses_no_reply(play, monkeypatch, hours):
    arrays, right = ArrayRecord({"w": Array(INITIAL)}), flower.now
    message = messages.train_message(Job(0, 0, 0), ONE, arrays, ConfigRecord(), 0, 600.0)
    message.metadata.__dict__["_message_id"] = "asked"
    monkeypatch.setattr(flower, "now", lambda: right() + datetime.timedelta(hours=hours))
    reply = Message(RecordDict(), reply_to=message)
    assert not [error for error in validate_message(reply, True) if "TTL" in error or "ttl" in error]


def test_a_thousand_messages_that_the_grid_does_not_take_are_waited_out(play, monkeypatch):
    many = {1000 + k: Node() for k in range(1000)}
    for node in many:
        monkeypatch.setitem(AMOUNT, node, 0.5)
    push = Nodes.push_messages

    def away(grid, messages):
        return [] if 5.0 <= grid.clock.now < 7.5 else push(grid, messages)

    monkeypatch.setattr(Nodes, "push_messages", away)
    play(many, concurrency=20, buffer=10, steps=20, check=False)
    assert play.last["dropped"] > 2000


def test_a_number_of_numpys_is_a_number(play, tmp_path):
    options = {"concurrency": np.int64(2), "buffer": np.int64(1), "steps": np.int64(12)}
    with pytest.raises(KeyboardInterrupt):
        play({ONE: Node(stop_server_after(8))}, **options)
    play({ONE: Node()}, **options)
    strategy = fadas.flower.AsyncStrategy(seed=np.int64(3))
    assert type(strategy.seed) is int
    with pytest.raises(ValueError, match="seed must be a whole number"):
        fadas.flower.AsyncStrategy(seed=0.5)


def test_an_accuracy_that_is_no_number_does_not_keep_a_run_from_its_end(play):
    def evaluate(step, arrays):
        return MetricRecord({"accuracy": math.nan if step == 4 else 0.5})

    with pytest.raises(KeyboardInterrupt):
        play({ONE: Node(stop_server_after(5))}, concurrency=1, steps=6, evaluate=evaluate)
    play({ONE: Node()}, concurrency=1, steps=6, evaluate=evaluate)


@pytest.mark.parametrize("dtype", ["complex64", "U4", "datetime64[D]"])
def test_arrays_that_no_server_can_keep_are_refused_by_name(dtype):
    arrays = ArrayRecord({"w": Array(INITIAL), "odd.one": Array(np.zeros(2, dtype))})
    with pytest.raises(ValueError, match=r"'odd\.one' holds .*: neither floating-point nor whole numbers"):
        ArrayLayout(arrays, trainable)


@pytest.mark.parametrize("reply", ["arrays", "delta"])
def test_a_client_that_changes_nothing_of_a_model_in_half_precision_has_a_delta_of_nothing(reply):
    layout = ArrayLayout(ArrayRecord({"w": Array(np.array([1.0, -2.0, 0.3], np.float16))}), trainable)
    x = fadas.core.model.Model(
        layout.initial.params + 1e-4, layout.initial.buffers
    )  # of the server's, more exact than that
    sent = layout.write(x)["w"].numpy()
    answer = RecordDict({"arrays": ArrayRecord({"w": Array(sent if reply == "arrays" else np.zeros_like(sent))})})
    news, _ = messages.parse_reply(Job(0, 0, 0), answer, x, layout, reply)
    assert news.delta.tolist() == [0.0] * 3
    assert news.base.tolist() == sent.astype(np.float32).tolist(), "what the client has trained is base + delta"
    assert news.base.tolist() != x.params.tolist()
