"""Bad nodes in a deployment whose method exchanges vectors: none of them ends or spoils the run."""

import numpy as np
import pytest

pytest.importorskip("flwr")
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict

from fadas.algorithms import Algorithm, AsyncSCAFFOLD, FedNova, SharedMoments
from helpers.flower import ONE, Node, find_lines

BAD = ONE + 4
MOMENTS = ("fadas-local.m", "fadas-local.v", "fadas-local.vhat")


def answer(vectors=(), numbers=None, change=None):
    """Answer with a small delta, and vectors and numbers beside it. `change` may spoil the content."""

    def reply(message):
        weights = message.content["arrays"]["w"].numpy() + np.float32(0.01)
        metrics = {"num-examples": 5, "train_loss": 0.5, **(numbers or {})}
        content = {"arrays": ArrayRecord({"w": Array(weights)}), "metrics": MetricRecord(metrics)}
        content |= {name: ArrayRecord({"w": Array(np.full(2, 0.01, np.float32))}) for name in vectors}
        if change:
            change(content)
        return [Message(RecordDict(content), reply_to=message)]

    return reply


def spoil(name, values):
    return lambda content: content.update({name: ArrayRecord({"w": Array(np.asarray(values))})})


def metric(**numbers):
    return lambda content: content["metrics"].update({f"fadas-{name}": value for name, value in numbers.items()})


def drop(name):
    return lambda content: content.pop(name) if name in content else content["metrics"].pop(name)


CASES = {
    "missing": (AsyncSCAFFOLD(), drop("fadas-dc"), "malformed"),
    "extra": (AsyncSCAFFOLD(), spoil("fadas-more", np.ones(2, np.float32)), "malformed"),
    "nan": (AsyncSCAFFOLD(), spoil("fadas-dc", np.full(2, np.nan, np.float32)), "not finite"),
    "infinite": (AsyncSCAFFOLD(), spoil("fadas-dc", np.full(2, np.inf, np.float32)), "not finite"),
    "too long": (AsyncSCAFFOLD(), spoil("fadas-dc", np.full(2, 1e4, np.float32)), "norm above bound"),
    "overflows": (AsyncSCAFFOLD(), spoil("fadas-dc", np.full(2, 1e300, np.float64)), "not finite"),
    "shape": (AsyncSCAFFOLD(), spoil("fadas-dc", np.ones(3, np.float32)), "malformed"),
    "dtype": (AsyncSCAFFOLD(), spoil("fadas-dc", np.ones(2, np.int64)), "malformed"),
    "no steps": (FedNova(), drop("fadas-steps"), "malformed"),
    "zero steps": (FedNova(), metric(steps=0.0), "not positive"),
    "negative steps": (FedNova(), metric(steps=-5.0), "not positive"),
    "tiny steps": (FedNova(), metric(steps=1e-30), "norm above bound"),
    "many steps": (FedNova(), metric(steps=1e30), "norm above bound"),
    "nan steps": (FedNova(), metric(steps=float("nan")), "not finite"),
    "steps no float holds": (FedNova(), metric(steps=1e300), "not finite"),
    "list of steps": (FedNova(), metric(steps=[1.0, 2.0]), "malformed"),
    "negative square": (
        Algorithm(companion=SharedMoments()),
        spoil("fadas-local.v", np.full(2, -0.01, np.float32)),
        "negative square",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_bad_vectors_are_refused_and_the_run_goes_on(case, play):
    algorithm, change, reason = CASES[case]
    vectors = {"ControlVariates": ("fadas-dc",), "SharedMoments": MOMENTS}.get(type(algorithm.companion).__name__, ())
    numbers = {"fadas-steps": 4.0} if isinstance(algorithm, Algorithm) and algorithm.exchange.numbers else {}
    good = answer(vectors, numbers)
    nodes = {ONE + k: Node(good, latency=1.0 + k / 10) for k in range(4)}
    nodes[BAD] = Node(answer(vectors, numbers, change), latency=0.9)
    play(nodes, algorithm=algorithm, concurrency=5, buffer=3, steps=10, check=False)
    assert play.last["step"] == 10
    assert len(find_lines(play.log, "of node 15", reason)) > 1
    assert 4 not in {job["client"] for record in play.records for job in record["jobs"]}
    assert np.isfinite(play.result.arrays["w"].numpy()).all()
