"""Bad nodes in a deployment: huge updates, huge claims, many updates, replies to what others were asked."""

import itertools
from collections import Counter

import numpy as np
import pytest

pytest.importorskip("flwr")
import torch
from flwr.app import Array, ArrayRecord, MetricRecord
from flwr.common.constant import ErrorCode

import fadas
from fadas.algorithms.combine import ExampleWeighted
from fadas.algorithms.robust import Median
from fadas.core.ledger import Schedule
from fadas.core.update_checks import Checks
from fadas.errors import ConfigError
from fadas.flower import AsyncStrategy
from fadas.flower.messages import job_seed
from fadas.rng import mix
from fadas.runs.checkpoint import read_checkpoint, write_checkpoint
from fadas.runs.folder import checkpoints
from fadas.runs.reader import read_run
from helpers.flower import (
    INITIAL,
    ONE,
    THREE,
    TWO,
    Node,
    answer_error,
    answer_records,
    answer_trained,
    find_lines,
    stop_server_after,
)

FOUR, FIVE = 14, 15


def answer_delta(value, examples=5):
    """Answer with this change of every weight."""

    def answer(message):
        weights = message.content["arrays"]["w"].numpy() + np.float32(value)
        metrics = MetricRecord({"num-examples": examples, "train_loss": 0.5})
        return answer_records(arrays=ArrayRecord({"w": Array(weights)}), metrics=metrics)(message)

    return answer


def honest(count, value=0.01):
    return {ONE + k: Node(answer_delta(value), latency=1.0 + k / 10) for k in range(count)}


@pytest.mark.parametrize("factor", [None, 0.0], ids=["default checks", "without norm_factor"])
def test_huge_updates_do_not_end_fadas(play, factor):
    nodes = {**honest(4), FIVE: Node(answer_delta(1e22), latency=0.3)}
    play(
        nodes,
        algorithm=fadas.FADAS(eta=0.01),
        concurrency=5,
        buffer=3,
        steps=15,
        checks=Checks(norm_factor=factor),
        check=False,
    )
    assert play.last["step"] == 15
    reason = "step not finite" if factor == 0 else "norm above bound"
    assert play.last["refused"][reason] > 3
    assert find_lines(play.log, "of node 15", reason), "the log names the node"
    levels = {record.levelname for record in play.caplog.records if f"is refused: {reason}" in record.getMessage()}
    assert levels == {"WARNING"}
    early = [record.levelname for record in play.caplog.records if "too early to judge" in record.getMessage()]
    assert set(early) <= {"INFO"}, "it is nobody's fault"
    assert 4 not in {job["client"] for record in play.records for job in record["jobs"]}


@pytest.mark.parametrize("stop", [6, 9, 12])
def test_run_with_huge_updates_resumes(play, stop):
    count = itertools.count()

    def answer(message):
        if next(count) == stop:
            raise KeyboardInterrupt
        return answer_delta(0.01)(message)

    huge = Node(answer_delta(1e22), latency=0.3)
    options = {"algorithm": fadas.FADAS(eta=0.01), "concurrency": 3, "buffer": 3, "steps": 15, "check": False}
    with pytest.raises(KeyboardInterrupt):
        play({ONE: Node(answer), TWO: Node(answer_delta(0.01)), THREE: huge}, **options)
    play({**honest(2), THREE: huge}, **options)
    assert play.last["step"] == 15


def one_fast(count):
    return {**honest(count - 1), ONE + count - 1: Node(answer_delta(-0.05), latency=0.05)}


def test_fast_bad_node_is_one_of_many_for_the_median(play):
    """With as many slots as nodes, only the node that has just reported is idle."""
    algorithm = fadas.Algorithm(Median())
    play(one_fast(8), algorithm=algorithm, concurrency=8, buffer=4, steps=20, check=False, poll=0.05)
    for record in play.records:
        assert max(Counter(job["client"] for job in record["jobs"]).values()) == 1
    assert (play.result.arrays["w"].numpy() > INITIAL).all(), "the median goes where the seven honest nodes go"


def test_per_client_zero_is_told_otherwise(play):
    algorithm = fadas.Algorithm(Median())
    assert AsyncStrategy(algorithm).options.schedule.per_client == 1
    assert AsyncStrategy().options.schedule.per_client is None
    assert AsyncStrategy(algorithm, Schedule(8, 4, per_client=0)).options.schedule.per_client == 0
    assert AsyncStrategy(algorithm, Schedule(8, 4, per_client=2)).options.schedule.per_client == 2


@pytest.mark.parametrize("excess", ["wait", "replace"])
def test_limited_run_is_interrupted_and_resumed(play, excess):
    options = {"algorithm": fadas.Algorithm(Median()), "steps": 12, "check": False, "poll": 0.05}
    strategy = {"concurrency": 5, "buffer": 4}
    nodes = one_fast(6)
    nodes[ONE] = Node(stop_server_after(3, answer_delta(0.01)), latency=1.0)
    with pytest.raises(KeyboardInterrupt):
        play(nodes, **options, **strategy, excess=excess, per_client=1)
    before = play.read()
    play(one_fast(6), **options, **strategy, excess=excess, per_client=1)
    assert play.records[: len(before)] == before
    ids = [job["id"] for record in play.records for job in record["jobs"]]
    assert len(set(ids)) == len(ids) == 48


def test_too_few_nodes_for_limit_wait_and_say_so(play):
    late = Node(answer_delta(0.01), spans=((30.0, float("inf")),))
    play({**honest(2), THREE: late}, algorithm=fadas.Algorithm(Median()), concurrency=3, buffer=3, steps=4, check=False)
    assert find_lines(play.log, "2 nodes with per_client = 1 cannot fill a buffer of 3: waiting for more nodes")
    assert play.records[0]["time"] > 30


@pytest.mark.parametrize("factor", [None, 0.0], ids=["default", "off"])
def test_claim_of_many_examples_counts_up_to_cap(play, factor):
    nodes = {**honest(3, 0.0), FOUR: Node(answer_delta(1.0, 10**18), latency=1.3)}
    play(
        nodes,
        algorithm=fadas.Algorithm(ExampleWeighted()),
        concurrency=4,
        buffer=4,
        steps=1,
        check=False,
        checks=Checks(examples_factor=factor),
    )
    moved = (play.result.arrays["w"].numpy() - INITIAL)[0]
    assert moved == pytest.approx(1.0 if factor == 0 else 50 / 65)


def test_default_checks_depend_on_algorithm():
    def checks(algorithm, **options):
        return AsyncStrategy(algorithm, **options).options.checks

    assert (checks(fadas.FADAS()).norm_factor, checks(fadas.FADAS()).examples_factor) == (20.0, 0.0)
    assert checks(fadas.Algorithm(ExampleWeighted())).examples_factor == 10.0
    assert checks(fadas.FADAS(), checks=Checks(norm_factor=0)).norm_factor == 0
    assert checks(fadas.FADAS(), checks=Checks(norm=3.0)).norm == 3.0


def test_reply_of_node_that_was_not_asked_is_refused(play):
    def answer_for_other(message):
        replies = answer_trained(message)
        for reply in replies:
            reply.metadata.__dict__["_src_node_id"] = 99
        return replies

    play({ONE: Node(), TWO: Node(answer_for_other)}, steps=6, deadline=4.0)
    assert play.last["refused"]["wrong node"] > 0
    assert find_lines(play.log, "a reply of node 99 is refused: node 12 was asked")
    assert {job["client"] for record in play.records for job in record["jobs"]} == {0}


def test_error_of_node_that_was_not_asked_is_refused(play):
    """Only the SuperLink may say that another node has failed."""

    def fail_for_other(message):
        (reply,) = answer_error(ErrorCode.UNKNOWN)(message)
        reply.metadata.__dict__["_src_node_id"] = 99
        return [reply]

    play({ONE: Node(), TWO: Node(fail_for_other)}, steps=6, deadline=4.0)
    assert play.last["refused"]["wrong node"] > 0
    assert play.last["dropped"] == 0


def collect_seeds(play, folder, jobs=6, seed=0):
    """The seeds of the jobs of one node, in a new deployment."""
    seeds = []

    def answer(message):
        seeds.append(message.content["config"]["fadas-seed"])
        return answer_trained(message)

    play.folder = folder
    play({ONE: Node(answer)}, concurrency=1, steps=jobs, seed=seed, folder=folder, check=False)
    return seeds


def test_job_seeds_tell_nothing_of_run_seed(play, tmp_path, monkeypatch):
    monkeypatch.setattr(type(play), "read", lambda self: [{}])
    one, two = (collect_seeds(play, tmp_path / name) for name in ("one", "two"))
    assert len(set(one + two)) == len(one) + len(two) > 10, (
        "each job has its own, and each deployment others, whatever its seed is"
    )
    assert all(0 <= seed < 2**62 for seed in one)
    guesses = {mix(0, purpose, job) >> shift for purpose in range(20) for job in range(20) for shift in (0, 1, 2)}
    assert not guesses & set(one)


def test_resumed_deployment_keeps_key_of_job_seeds(play, tmp_path):
    seen = []

    def answer(message):
        seen.append((message.content["config"]["fadas-job"], message.content["config"]["fadas-seed"]))
        return answer_trained(message)

    with pytest.raises(KeyboardInterrupt):
        play({ONE: Node(stop_server_after(4, answer))}, concurrency=1)
    play({ONE: Node(answer)}, concurrency=1)
    key = bytes.fromhex(read_run(tmp_path / "fadas-0").summary.key)
    assert seen == [(job, job_seed(key, job)) for job, _ in seen]


DAMAGE = {
    "a buffered update is not finite": lambda t, v: t.update(
        {f"buffer.{v['buffer'][0][0][0]}.delta": torch.tensor([0, float("nan")])}
    ),
    "a moment has another type": lambda t, v: t.update({"slot.m": t["slot.m"].double()}),
    "a moment is not finite": lambda t, v: t.update({"slot.vhat": t["slot.vhat"] * float("inf")}),
    "a negative counter": lambda t, v: v.update(updates=-1),
    "no list of nodes": lambda t, v: v.update(nodes=None),
    "a job from the future": lambda t, v: v["buffer"][0][0].__setitem__(2, 99),
    "a table is a list": lambda t, v: v.update(refused=[]),
    "a clock that ran backwards": lambda t, v: v.update(now=-5.0),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_checkpoint_with_wrong_contents_is_passed_over(play, tmp_path, damage):
    options = {"algorithm": fadas.FADAS(), "buffer": 2, "check": False}
    with pytest.raises(KeyboardInterrupt):
        play({ONE: Node(stop_server_after(9)), TWO: Node()}, **options)
    newest, *_ = checkpoints(tmp_path / "fadas-0")
    tensors, values = read_checkpoint(newest)
    if not values["buffer"]:
        newest.unlink()
        newest, *_ = checkpoints(tmp_path / "fadas-0")
        tensors, values = read_checkpoint(newest)
    DAMAGE[damage](tensors, values)
    for path in checkpoints(tmp_path / "fadas-0"):
        number = int(path.stem.removeprefix("checkpoint-"))
        write_checkpoint(tmp_path / "fadas-0", number, tensors, values)  # its checksum is right
    with pytest.raises(ConfigError, match="none of its checkpoints can be used"):
        play({ONE: Node(), TWO: Node()}, **options)
