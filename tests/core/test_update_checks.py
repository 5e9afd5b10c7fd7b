"""Each reason to refuse an update. A refusal changes nothing but a counter and frees the slot."""

from dataclasses import replace

import pytest
import torch

from fadas.algorithms.presets import FADAS
from fadas.core.ledger import Ledger, Schedule
from fadas.core.model import Model
from fadas.core.server import Server
from fadas.core.update_checks import Checks
from helpers.updates import NOT_FINITE, make_server, make_update


def read_state(server):
    return (
        server.state,
        [u.job for u in server.buffer],
        server.ledger.version,
        list(server.ledger.buffer),
    )


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"delta": torch.ones(4)}, "wrong shape"),
        ({"delta": torch.ones(5, 1)}, "wrong shape"),
        ({"buffers": torch.ones(3)}, "wrong shape"),
        ({"delta": torch.ones(5).double()}, "wrong dtype"),
        ({"delta": torch.ones(5, dtype=torch.int32)}, "wrong dtype"),
        ({"buffers": torch.ones(2).half()}, "wrong dtype"),
        ({"delta": NOT_FINITE}, "not finite"),
        ({"delta": torch.full((5,), float("inf"))}, "not finite"),
        ({"delta": torch.tensor([float("inf"), -float("inf"), 0, 0, 0])}, "not finite"),
        ({"buffers": torch.tensor([0.0, float("nan")])}, "not finite"),
        ({"delta": torch.full((5,), 10.0)}, "norm above bound"),
        ({"delta": torch.full((5,), 1e30)}, "norm above bound"),
        ({"examples": 0}, "no examples"),
        ({"examples": -4}, "no examples"),
    ],
)
def test_refused_update_frees_slot_and_only_counts(changes, reason):
    server, jobs = make_server(Checks(norm=5.0))
    server.receive(make_update(jobs[0], server.model))
    before = read_state(server)
    received = server.receive(make_update(jobs[1], server.model, **changes))
    assert received.refused == reason
    assert received.step is None
    assert read_state(server) == before
    assert server.refused == {reason: 1}
    assert jobs[1].id not in server.ledger.running
    assert jobs[1].id not in server.base
    (new,) = received.jobs
    assert server.base[new.id] is server.model
    assert len(server.ledger.running) == 4


def test_excess_clip_shortens_long_updates():
    server, jobs = make_server(Checks(norm=5.0, excess="clip"), buffer=1)
    delta = torch.tensor([3.0, 4, 0, 0, 12])
    received = server.receive(make_update(jobs[0], server.model, delta=delta))
    assert received.step
    assert not received.refused
    server, jobs = make_server(Checks(norm=5.0, excess="clip"))
    server.receive(make_update(jobs[0], server.model, delta=delta))
    torch.testing.assert_close(server.buffer[0].delta, delta * 5 / 13)
    server.receive(make_update(jobs[1], server.model, delta=delta / 100))
    assert torch.equal(server.buffer[1].delta, delta / 100)
    assert server.receive(make_update(jobs[2], server.model, delta=torch.full((5,), 3e38))).refused


def test_clip_handles_norm_overflow():
    server, jobs = make_server(Checks(norm=5.0, excess="clip"))
    server.receive(make_update(jobs[0], server.model, delta=torch.tensor([3e20, 4e20, 0, 0, 0])))
    torch.testing.assert_close(server.buffer[0].delta, torch.tensor([3.0, 4, 0, 0, 0]))


@pytest.mark.parametrize("statistics", [1.0, 0.2])
@pytest.mark.parametrize("mask", [float("-inf"), torch.finfo().min])
def test_infinite_mask_buffers_are_accepted(mask, statistics):
    buffers = torch.tensor([mask, mask, mask, 1.0])
    algorithm = replace(FADAS(), statistics=statistics)
    server = Server(algorithm, Ledger(Schedule(2, 2), 3), Model(torch.zeros(5), buffers))
    for job in server.start():
        assert not server.receive(
            make_update(job, server.model, buffers=buffers + torch.tensor([0, 0, 0, 1.0]))
        ).refused
    assert server.model.buffers.tolist()[:3] == buffers.tolist()[:3]
    assert server.model.buffers[3] == pytest.approx(1 + statistics)
    for wrong in (float("inf"), float("nan")):
        (job, *_) = server.ledger.running.values()
        assert server.receive(
            make_update(job, server.model, buffers=buffers.new_tensor([mask, wrong, mask, 1.0]))
        ).refused


@pytest.mark.parametrize("bad", [{"norm": 0}, {"norm": -1.0}, {"norm": float("nan")}, {"excess": "hide"}])
def test_bad_check_settings_are_refused(bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        Checks(**bad)


def test_clients_graph_is_not_kept():
    server, jobs = make_server(buffer=1)
    delta = torch.ones(5, requires_grad=True) * 2
    received = server.receive(make_update(jobs[0], server.model, delta=delta))
    assert not received.updates[0].delta.requires_grad
    assert not server.model.params.requires_grad
    plain = torch.ones(5)
    again = server.receive(make_update(received.jobs[0], server.model, delta=plain))
    assert again.updates[0].delta is plain, "nothing is copied without need"
