"""Which client a node is when it comes back, or comes back under another id."""

import numpy as np
import pytest

pytest.importorskip("flwr")
from flwr.app import Array, ArrayRecord, Message, RecordDict

import fadas
from fadas.algorithms.privacy import Private, epsilon
from helpers.flower import AMOUNT, ONE, THREE, TWO, Node, Nodes, find_clients, find_lines, stop_server_after

NEW_IDS = (21, 22, 23)  # the same machines under new ids


@pytest.fixture(autouse=True)
def set_amounts(monkeypatch):
    for node, known in zip((*NEW_IDS, 14), (ONE, TWO, THREE, None)):
        monkeypatch.setitem(AMOUNT, node, AMOUNT[known] if known else 0.0625)


def answer_optimum(message):
    """Go half of the way to the node's optimum. The common optimum of the three nodes is 2."""
    w, own = message.content["arrays"]["w"].numpy(), 2.0 * (message.metadata.dst_node_id % 10 - 1)
    arrays = ArrayRecord({"w": Array((w + 0.5 * (own - w)).astype(np.float32))})
    return [Message(RecordDict({"arrays": arrays}), reply_to=message)]


def test_new_ids_after_restart_take_places_of_lost_nodes(play):
    with pytest.raises(KeyboardInterrupt):
        play({ONE: Node(stop_server_after(2)), TWO: Node(), THREE: Node()}, concurrency=3)
    play(dict.fromkeys(NEW_IDS, Node()), concurrency=3, steps=30)
    assert find_clients(play.records) == {0, 1, 2}
    assert find_lines(play.log, "node 22 takes the place of node 12")


def test_cached_updates_of_lost_nodes_are_replaced(play):
    # `check` expects other answers than these clients give
    far = {"check": False, "concurrency": 3, "buffer": 3, "algorithm": fadas.CA2FL(eta=0.3), "steps": 100}
    with pytest.raises(KeyboardInterrupt):
        play(
            {ONE: Node(stop_server_after(2, answer_optimum)), TWO: Node(answer_optimum), THREE: Node(answer_optimum)},
            **far,
        )
    seen = {}
    play(
        dict.fromkeys(NEW_IDS, Node(answer_optimum)),
        evaluate=lambda step, a: seen.update({step: a["w"].numpy()}),
        **far,
    )
    assert seen[100] == pytest.approx(2.0, abs=0.01)


def test_known_node_keeps_place_before_newcomers(play):
    with pytest.raises(KeyboardInterrupt):
        play({ONE: Node(stop_server_after(2)), TWO: Node(), THREE: Node()}, concurrency=3)
    play({THREE: Node(), 21: Node(), 22: Node()}, concurrency=3, steps=30)
    assert [find_lines(play.log, f"node {node} joins as client {c}") != [] for node, c in ((13, 2), (21, 0), (22, 1))]
    assert not find_lines(play.log, "as client 3")


def test_node_under_new_id_inherits_privacy_spending(play):
    private = {"algorithm": fadas.Algorithm(Private(1.0, 5.0)), "steps": 60, "check": False}  # the noise is random
    with pytest.raises(KeyboardInterrupt):
        play({ONE: Node(latency=20.0), TWO: Node(stop_server_after(28))}, **private)
    rare, frequent = (sum(job["client"] == c for line in play.read() for job in line["jobs"]) for c in (0, 1))
    assert frequent > 20 > rare
    play({21: Node()}, **private)  # takes the place of the node with few jobs
    assert find_lines(play.log, "node 21 takes the place of node 11")
    assert epsilon(5.0, 1e-5, 60 - rare) <= play.last["privacy"]["epsilon"] <= epsilon(5.0, 1e-5, 62)


def test_interrupted_round_ends_with_remaining_nodes(play, monkeypatch):
    four = {ONE: 1.0, TWO: 2.0, THREE: 3.0, 14: 4.0}
    options = {"concurrency": 4, "buffer": 4, "algorithm": fadas.FedAvg(), "steps": 1}

    nodes = {node: Node(latency=latency) for node, latency in four.items()}
    pull = Nodes.pull_messages

    def pull_or_stop(grid, ids):
        if grid.clock.now > 2.5:  # two have reported
            raise KeyboardInterrupt
        return pull(grid, ids)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Nodes, "pull_messages", pull_or_stop)
        play(nodes, **options)
    play(nodes, **options)
    assert sorted(job["client"] for job in play.last["jobs"]) == [0, 1, 2, 3]
