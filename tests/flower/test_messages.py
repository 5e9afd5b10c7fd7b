"""Messages to nodes and what their replies are read as."""

import datetime

import numpy as np
import pytest

pytest.importorskip("flwr")
import flwr.app.message.message as flower
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.server.utils.validator import validate_message

import fadas
from fadas.core.ledger import Job
from fadas.flower import messages
from fadas.flower.arrays import ArrayLayout, is_trainable
from helpers.flower import INITIAL, ONE


@pytest.mark.parametrize("hours", [-2, 0, 2])
def test_wrong_clock_loses_no_reply(play, monkeypatch, hours):
    arrays, right = ArrayRecord({"w": Array(INITIAL)}), flower.now
    message = messages.train_message(Job(0, 0, 0), ONE, arrays, ConfigRecord(), 0, 600.0)
    message.metadata.__dict__["_message_id"] = "asked"
    monkeypatch.setattr(flower, "now", lambda: right() + datetime.timedelta(hours=hours))
    reply = Message(RecordDict(), reply_to=message)
    assert not [error for error in validate_message(reply, True) if "TTL" in error or "ttl" in error]


@pytest.mark.parametrize("reply", ["arrays", "delta"])
def test_unchanged_half_precision_model_gives_zero_delta(reply):
    layout = ArrayLayout(ArrayRecord({"w": Array(np.array([1.0, -2.0, 0.3], np.float16))}), is_trainable)
    x = fadas.core.model.Model(
        layout.initial.params + 1e-4, layout.initial.buffers
    )  # the server's values are more exact than half precision
    sent = layout.to_record(x)["w"].numpy()
    answer = RecordDict({"arrays": ArrayRecord({"w": Array(sent if reply == "arrays" else np.zeros_like(sent))})})
    update = messages.parse_reply(Job(0, 0, 0), answer, x, layout, reply)
    assert update.delta.tolist() == [0.0] * 3
    assert update.base.tolist() == sent.astype(np.float32).tolist(), "base + delta must be the client's model"
    assert update.base.tolist() != x.params.tolist()
