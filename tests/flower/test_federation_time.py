"""Deadlines and patience."""

import math

import pytest

pytest.importorskip("flwr")
from fadas.core.update_checks import Checks
from helpers.flower import ONE, THREE, TWO, Node, find_clients


def test_evaluation_does_not_count_against_deadline(play):
    def evaluate(step, arrays):
        play.clock.now += 12.0

    nodes = {ONE: Node(latency=3.0), TWO: Node(latency=3.5), THREE: Node(latency=4.0)}
    play(nodes, concurrency=3, steps=20, deadline=10.0, evaluate=evaluate, checks=Checks(norm_factor=0))
    assert (play.last["expired"], play.last["refused"]) == (0, {})
    assert find_clients(play.records) == {0, 1, 2}


def test_evaluation_does_not_count_against_patience(play):
    def evaluate(step, arrays):
        play.clock.now += 400.0

    nodes = {ONE: Node(latency=1.0, spans=((0.0, 402.5), (1050.0, math.inf)))}
    play(nodes, concurrency=1, steps=3, evaluate=evaluate)
    assert play.clock.now > 1050.0, "the last step was that of the node's return"
    assert len(play.records) == 3


def test_long_deadline_and_patience_are_honoured(play):
    slow = Node(latency=5400.0, spans=((4200.0, math.inf),))
    play({ONE: slow}, concurrency=1, steps=2, deadline=7200.0, patience=86400.0, poll=5.0)
    assert play.clock.now >= 15000
