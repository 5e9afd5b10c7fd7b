"""When a federation waits, gives up or diverges."""

import itertools

import numpy as np
import pytest

from fadas.runs.reader import read_run

pytest.importorskip("flwr")
from flwr.app import Array, ArrayRecord
from flwr.common.constant import ErrorCode

import fadas
from fadas.core.ledger import Schedule
from fadas.errors import ConfigError
from helpers.flower import NAN, ONE, TWO, Node, answer_error, answer_records, answer_trained, find_lines


def test_run_without_nodes_waits_then_gives_up(play):
    with pytest.raises(RuntimeError, match="no node was connected for 45 s: giving up"):
        play({}, patience=45.0)
    assert 45.0 < play.clock.now < 46.0
    waits = find_lines(play.log, "no node is connected: waiting")
    assert waits[0].endswith("(0 of 45 s)")
    assert len(waits) == 5


def test_patience_restarts_when_last_node_leaves(play):
    node = Node(spans=((40.0, 50.5), (90.0, float("inf"))))
    play({ONE: node}, patience=45.0, steps=20)
    assert play.clock.now > 95.0
    assert find_lines(play.log, "no node is connected")


def test_failing_node_does_not_end_run_with_slow_nodes(play):
    play({ONE: Node(latency=300.0), TWO: Node(answer_error(ErrorCode.UNKNOWN), latency=0.1)}, steps=3, deadline=600.0)
    assert play.last["dropped"] > Schedule(2, 1).patience


def test_run_with_only_failing_nodes_gives_up(play):
    with pytest.raises(RuntimeError, match="the last 140 jobs all failed: giving up"):
        play({ONE: Node(answer_error(ErrorCode.UNKNOWN)), TWO: Node(answer_error(ErrorCode.UNKNOWN))})


def test_run_without_accepted_updates_diverges_and_can_resume(play, tmp_path):
    replies = itertools.count()

    def answer(message):
        count = next(replies)
        if count % 10 == 9:  # a few failing nodes must not hide it
            return answer_error(ErrorCode.UNKNOWN)(message)
        return answer_trained(message) if count < 8 else answer_records(arrays=NAN)(message)

    with pytest.raises(
        fadas.Diverged, match=r"^the last 141 updates were all refused \(refused so far: not finite: 141\)$"
    ):
        play({ONE: Node(answer), TWO: Node(answer)})
    run = read_run(tmp_path / "fadas-0")
    assert run.diverged == "the last 141 updates were all refused (refused so far: not finite: 141)"
    assert (run.summary.step, len(run.records)) == (8, 8)
    assert "accuracy" not in run.summary.as_dict()
    assert not (run.folder / "model.safetensors").exists()
    assert find_lines(play.log, "To continue from its last checkpoint, delete its summary.json")
    before = {path: path.read_bytes() for path in run.folder.iterdir()}
    with pytest.raises(ConfigError, match="holds a run that diverged: choose another folder"):
        play({ONE: Node()})
    assert before == {path: path.read_bytes() for path in run.folder.iterdir()}
    (run.folder / "summary.json").unlink()
    play({ONE: Node()})
    again = read_run(run.folder)
    assert again.records[:8] == run.records
    assert again.diverged is None


def test_run_whose_steps_all_overflow_diverges(play, tmp_path):
    huge = ArrayRecord({"w": Array(np.full(2, 1.5e38, np.float32))})
    with pytest.raises(fadas.Diverged, match="step 2 gave a model that is not finite"):
        play({ONE: Node(answer_records(arrays=huge))}, reply="delta")
    run = read_run(tmp_path / "fadas-0")
    assert run.summary.step == 1
    assert run.diverged == "step 2 gave a model that is not finite"


def test_clients_without_examples_are_no_divergence(play, tmp_path):
    def answer(message):
        (reply,) = answer_trained(message)
        reply.content["metrics"]["num-examples"] = 0
        return [reply]

    with pytest.raises(ConfigError, match=r"no examples: 141\): check the clients' data and code"):
        play({ONE: Node(answer), TWO: Node(answer)})
    assert not (tmp_path / "fadas-0" / "summary.json").exists(), "it has not diverged, and can be continued"
    play({ONE: Node()})
