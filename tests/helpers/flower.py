"""A Flower grid in this process, whose nodes fail, vanish, come late, stay silent or repeat themselves on cue."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from logging import INFO

import numpy as np
from flwr.app import Array, ArrayRecord, Error, Message, MetricRecord, RecordDict
from flwr.common.constant import SUPERLINK_NODE_ID, ErrorCode
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

import fadas
from fadas.core.ledger import Schedule
from fadas.flower import AsyncStrategy
from helpers.folders import read_records

INITIAL = np.array([1.0, -2.0], np.float32)
ONE, TWO, THREE = 11, 12, 13  # nodes; their clients are 0, 1 and 2
AMOUNT = {ONE: 0.5, TWO: 0.25, THREE: 0.125}  # what each node adds to every weight: sums of these are exact
NAN = ArrayRecord({"w": Array(INITIAL * np.nan)})


class Clock:
    """Replaces `time` in the federation: only sleeping makes it pass."""

    def __init__(self):
        self.now = 0.0

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


def patch_flower(monkeypatch) -> None:
    """Set what Flower tells a process about itself."""
    for name in ("_run_id", "_task_id", "_node_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)


def patch_clock(monkeypatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("fadas.flower.federation.time", clock)
    return clock


# What nodes answer: each takes a message and returns replies.


def answer_trained(message):
    """Answer as an ordinary client does."""
    amount = AMOUNT[message.metadata.dst_node_id]
    weights, metrics = message.content["arrays"]["w"].numpy() + amount, {"num-examples": 5, "train_loss": amount}
    content = {"arrays": ArrayRecord({"w": Array(weights)}), "metrics": MetricRecord(metrics)}
    return [Message(RecordDict(content), reply_to=message)]


def stay_silent(message):
    return []


def answer_error(code, reason=""):
    """Answer with an error. Where a node is gone, the SuperLink answers under its own number."""

    def answer(message):
        reply = Message(Error(code, reason), reply_to=message)
        if code in (ErrorCode.NODE_UNAVAILABLE, ErrorCode.REPLY_MESSAGE_UNAVAILABLE, ErrorCode.MESSAGE_UNAVAILABLE):
            reply.metadata.__dict__["_src_node_id"] = SUPERLINK_NODE_ID
        return [reply]

    return answer


def answer_records(**records):
    return lambda message: [Message(RecordDict(records), reply_to=message)]


def stop_server_after(jobs, answer=answer_trained):
    """Answer this many jobs, then end the server: its nodes live in its process here."""
    count = itertools.count()

    def answer_or_stop(message):
        if next(count) == jobs:
            raise KeyboardInterrupt
        return answer(message)

    return answer_or_stop


@dataclass
class Node:
    """Connected during `spans`. Without a connection it does not answer: the grid says `farewell` for it."""

    answer: Callable[[Message], list[Message]] = answer_trained
    latency: float = 1.0
    spans: tuple[tuple[float, float], ...] = ((0.0, float("inf")),)
    farewell: Callable[[Message], list[Message]] = stay_silent

    def is_connected(self, now):
        return any(begin <= now < end for begin, end in self.spans)


class Nodes(Grid):
    """Nodes in this process. Whatever comes due is delivered, asked for or not: this makes duplicates."""

    def __init__(self, clock, nodes, untaken=()):
        self.clock, self.nodes, self.untaken = clock, nodes, untaken
        self.pushed = []  # (time, node) of every message that was taken
        self.mail = []  # (due, node, reply)
        self.heard = []  # the node of every reply that was delivered
        self.most = 0  # messages under way at once

    def set_run(self, run): ...

    @property
    def run(self):
        raise NotImplementedError

    def create_message(self, content, message_type, dst_node_id, group_id, ttl=None):
        raise NotImplementedError

    def send_and_receive(self, messages, *, timeout=None):
        raise NotImplementedError("this would wait")

    def get_node_ids(self):
        return [id for id, node in self.nodes.items() if node.is_connected(self.clock.now)]

    def push_messages(self, messages):
        ids = []
        for message in messages:
            now, id = self.clock.now, message.metadata.dst_node_id
            node = self.nodes[id]
            if not node.is_connected(now):
                ids += self.untaken
                continue
            self.pushed.append((now, id))
            ids.append(f"message {len(self.pushed)}")
            message.metadata.__dict__["_message_id"] = ids[-1]
            due = now + node.latency
            stays = all(node.is_connected(t) for t in np.arange(now, due, 0.1))
            replies = node.answer(message) if stays else node.farewell(message)
            self.mail += [(due + getattr(reply, "delay", 0.0), id, reply) for reply in replies]
        return ids

    def pull_messages(self, message_ids):
        self.most = max(self.most, len(list(message_ids)))
        due = [(node, reply) for when, node, reply in self.mail if when <= self.clock.now]
        self.mail = [mail for mail in self.mail if mail[0] > self.clock.now]
        self.heard += [node for node, _ in due]
        return [reply for _, reply in due]

    def times(self, id):
        """When messages to this node were taken."""
        return [time for time, node in self.pushed if node == id]


class Play:
    """Runs a strategy against nodes. Then `result` is its result, `last` its last record, `log` what it logged."""

    def __init__(self, folder, monkeypatch, caplog):
        self.folder, self.monkeypatch, self.caplog = folder, monkeypatch, caplog
        caplog.set_level(INFO, "flwr")
        patch_flower(monkeypatch)

    def __call__(
        self,
        nodes,
        steps=12,
        concurrency=2,
        buffer=1,
        untaken=(),
        algorithm=None,
        timeout=None,
        evaluate=None,
        array="w",
        initial=INITIAL,
        check=True,
        per_client=None,
        excess="wait",
        **options,
    ):
        """`check` compares the result with the recorded updates, as far as clients answer `answer_trained`."""
        self.clock = patch_clock(self.monkeypatch)
        algorithm = algorithm or fadas.FedBuff()
        schedule = Schedule(concurrency, buffer, algorithm.refill, per_client, excess)
        strategy = AsyncStrategy(algorithm, schedule, **{"folder": self.folder, "deadline": 30.0, **options})
        self.grid = Nodes(self.clock, nodes, untaken)
        try:
            arrays = ArrayRecord({array: Array(initial)})
            limit = {} if timeout is None else {"timeout": timeout}
            self.result = result = strategy.start(self.grid, arrays, steps, evaluate_fn=evaluate, **limit)
        finally:
            self.log = [record.getMessage() for record in self.caplog.records]
        self.records = self.read()
        self.last = self.records[-1]
        if check:
            check_records(self.records, result, steps, buffer)

    def read(self):
        return read_records(self.folder / "fadas-0")


def check_records(records, result, steps, buffer):
    """The parameters are those of the recorded updates, each applied once."""
    expected = INITIAL.copy()
    ids = [job["id"] for record in records for job in record["jobs"]]
    assert [record["step"] for record in records] == list(range(1, steps + 1))
    assert len(set(ids)) == len(ids) == steps * buffer == records[-1]["updates"]
    for record in records:
        amount = sum(AMOUNT[ONE + job["client"]] for job in record["jobs"]) / buffer
        assert record["train_loss"] == amount
        expected += np.float32(amount)
    assert result.arrays["w"].numpy().tolist() == expected.tolist()


def find_lines(log, *words):
    return [line for line in log if all(word in line for word in words)]


def find_clients(records):
    return {job["client"] for record in records for job in record["jobs"]}
