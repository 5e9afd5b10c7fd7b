"""Which client a node is when it comes back, or comes back under another id."""

import numpy as np
import pytest

pytest.importorskip("flwr")
from flwr.app import Array, ArrayRecord, Message, RecordDict

import fadas
from fadas.algorithms.privacy import Private, epsilon
from helpers.flower import AMOUNT, ONE, THREE, TWO, Node, Nodes, find_clients, find_lines, stop_server_after

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
