"""Deadlines and patience."""

import math

import pytest

pytest.importorskip("flwr")
from helpers.flower import ONE, THREE, TWO, Node, find_clients


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
