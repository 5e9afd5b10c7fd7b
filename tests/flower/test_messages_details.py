"""What a train message holds, and what is read from a reply."""

import math

import pytest
import torch

pytest.importorskip("flwr")
import numpy as np
from flwr.app import DEFAULT_TTL, Array, ArrayRecord, ConfigRecord, MessageType, MetricRecord, RecordDict
from flwr.common.constant import ErrorCode

from fadas.core.ledger import Job
from fadas.core.model import Model
from fadas.flower.arrays import ArrayLayout, is_trainable
from fadas.flower.messages import error_reason, job_seed, parse_reply, train_message
from helpers.flower import patch_flower

ARRAYS = ArrayRecord({"w": Array(np.array([1.0, 2.0], np.float32))})
LAYOUT = ArrayLayout(ARRAYS, is_trainable)


def test_train_message_names_its_job_and_leaves_the_users_config_alone(monkeypatch):
    patch_flower(monkeypatch)
    config = ConfigRecord({"lr": 0.1, "server-round": -1})
    message = train_message(Job(id=7, client=3, version=4), 12, ARRAYS, config, 5, 600.0)
    assert dict(config) == {"lr": 0.1, "server-round": -1}
    sent = message.content["config"]
    assert {key: sent[key] for key in ("lr", "server-round", "fadas-job", "fadas-client")} == {
        "lr": 0.1, "server-round": 5, "fadas-job": 7, "fadas-client": 3,
    }  # fmt: skip
    assert "fadas-seed" in sent
    assert message.content["arrays"]["w"].numpy().tolist() == [1.0, 2.0]
    metadata = message.metadata
    assert (metadata.dst_node_id, metadata.message_type, metadata.group_id) == (12, MessageType.TRAIN, "5")
    assert metadata.ttl == 600.0 + DEFAULT_TTL


def parse(metrics=None, reply="arrays", arrays=ARRAYS, base=(0.5, 0.5)):
    content = {"any name": arrays} | ({} if metrics is None else {"metrics": MetricRecord(metrics)})
    model = Model(torch.tensor(base), torch.zeros(0))
    return parse_reply(Job(1, 2, 0), RecordDict(content), model, LAYOUT, reply)


def test_reply_is_a_model_or_a_difference():
    assert parse().delta.tolist() == [0.5, 1.5]
    assert parse(reply="delta").delta.tolist() == [1.0, 2.0]
    for reply in ("arrays", "delta"):
        update = parse(reply=reply)
        assert update.base.tolist() == [0.5, 0.5]
        assert update.job == Job(1, 2, 0)


@pytest.mark.parametrize(
    ("metrics", "examples", "loss"),
    [
        (None, 1, math.nan),
        ({"num-examples": 40, "train_loss": 0.25}, 40, 0.25),
        ({"train-loss": 0.5}, 1, 0.5),
        ({"loss": 0.75}, 1, 0.75),
        ({"loss": 0.75, "train-loss": 0.5}, 1, 0.5),
        ({"loss": 0.75, "train-loss": 0.5, "train_loss": 0.25}, 1, 0.25),
        ({"loss": [0.75, 1.0], "num-examples": 12.0}, 12, math.nan),
        ({"loss": 2, "num-examples": 3}, 3, 2.0),
    ],
)
def test_examples_and_loss_are_read_from_metrics(metrics, examples, loss):
    update = parse(metrics)
    assert update.examples == examples
    assert update.metrics["loss"] == pytest.approx(loss, nan_ok=True)


def test_reply_needs_exactly_one_record_of_arrays():
    for records in ({}, {"a": ARRAYS, "b": ARRAYS}):
        with pytest.raises(ValueError, match="values to unpack"):
            parse_reply(Job(1, 2, 0), RecordDict(records), LAYOUT.initial, LAYOUT, "arrays")


def test_job_seed_stays_what_it_was():
    """A resumed deployment sends the same seeds."""
    assert job_seed(bytes(32), 5) == 2892055950812129626


@pytest.mark.parametrize(("loss", "kept"), [(9.9e99, True), (-9.9e99, True), (1e100, False), (-1e100, False)])
def test_loss_that_no_file_may_hold_is_unknown(loss, kept):
    assert parse({"loss": loss}).metrics == {"loss": pytest.approx(loss if kept else math.nan, nan_ok=True)}


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (ErrorCode.MESSAGE_UNAVAILABLE, "expired"),
        (ErrorCode.REPLY_MESSAGE_UNAVAILABLE, "expired"),
        (ErrorCode.UNKNOWN, "error 0"),
        (ErrorCode.NODE_UNAVAILABLE, "error 5"),
        (10**9, "error"),
        (-1, "error"),
    ],
)
def test_error_is_told_by_a_known_code(code, reason):
    assert error_reason(code) == reason
