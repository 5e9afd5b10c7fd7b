"""Checks that compare an update with recent ones, and claims that count only up to a cap."""

import json

import pytest
import torch

from fadas.algorithms.algorithm import Algorithm
from fadas.algorithms.combine import ExampleWeighted
from fadas.algorithms.presets import FedBuff
from fadas.core.ledger import Ledger, Schedule
from fadas.core.model import Model
from fadas.core.recent_updates import RecentUpdates
from fadas.core.records import LATEST
from fadas.core.saved_state import load_server, save_server
from fadas.core.server import Server
from fadas.core.update_checks import Checks
from helpers.updates import make_server, make_update

ONES = torch.ones(5)


def make_open_server(checks, clients=8, buffer=2, algorithm=None):
    model = Model(torch.zeros(5), torch.zeros(0))
    server = Server(algorithm or FedBuff(), Ledger(Schedule(clients, buffer), clients), model, checks)
    return server, server.start()


def send(server, jobs, *sizes):
    """Let the next jobs report deltas of ones times a size. Return what the server says."""
    said = []
    for size in sizes:
        said.append(server.receive(make_update(jobs.pop(0), server.model, delta=ONES * size)))
        jobs += said[-1].jobs
    return said


def test_delta_longer_than_multiple_of_median_is_refused():
    server, jobs = make_open_server(Checks(norm_factor=3.0))
    assert [one.refused for one in send(server, jobs, 1.0, 2.0, 1.5)] == [None, "too early to judge", None]
    assert [one.refused for one in send(server, jobs, 4.0, 6.1)] == [None, "norm above bound"]
    assert server.refused == {"norm above bound": 1, "too early to judge": 1}


def test_delta_longer_than_multiple_of_median_is_clipped():
    server, jobs = make_open_server(Checks(norm_factor=3.0, excess="clip"), buffer=4)
    send(server, jobs, 1.0, 2.0, 1.5)
    _, received = [None, *send(server, jobs, 100.0)]
    torch.testing.assert_close(received.updates[-1].delta, ONES * 4.5)  # 3 times the median of 1, 1.5, 2 and 100


def test_first_huge_update_is_retracted_as_soon_as_it_can_be_compared():
    server, jobs = make_open_server(Checks(norm_factor=3.0), buffer=4)
    bad = jobs[0]
    *_, last = send(server, jobs, 1e15, 1.0, 1.0, 1.0)
    assert (last.step, last.retracted, last.refused) == (None, [bad], None)
    (last,) = send(server, jobs, 1.0)
    assert last.step
    torch.testing.assert_close(server.model.params, ONES)


def test_median_follows_where_most_clients_send_longer_updates():
    server, jobs = make_open_server(Checks(norm_factor=3.0), clients=4)
    send(server, jobs, 1.0, 1.0, 1.0, 1.0)
    refused = [one.refused for one in send(server, jobs, *[10.0] * 12)]
    assert refused[0] == "norm above bound"
    assert refused[-1] is None


def test_each_client_has_one_vote():
    recent = RecentUpdates()
    for _ in range(50):
        recent.add(0, 1000.0, 1)
    recent.add(1, 1.0, 1)
    assert recent.length is None, "two clients are too few"
    recent.add(2, 2.0, 1)
    assert recent.length == 2.0
    for client in range(3, 400):
        recent.add(client, 7.0, 1)
    assert len(recent.state()["votes"]) == 100
    assert recent.length == 7.0


def test_zero_deltas_are_no_reference():
    server, jobs = make_open_server(Checks(norm_factor=3.0))
    send(server, jobs, 0.0, 0.0)
    assert not any(one.refused for one in send(server, jobs, 0.0, 0.0, 5.0))


def test_reference_survives_where_most_updates_become_zero():
    server, jobs = make_open_server(Checks(norm_factor=3.0), clients=4)
    send(server, jobs, 1.0, 1.0, 1.0, 1.0)
    send(server, jobs, *[0.0] * 8)
    assert send(server, jobs, 1e15)[0].refused == "norm above bound"


@pytest.mark.parametrize("buffer", [1, 2, 3])
def test_no_step_is_taken_before_three_clients_have_reported(buffer):
    """A fast client alone may not move the model to where honest updates no longer count."""
    server, jobs = make_open_server(Checks(norm_factor=3.0), clients=4, buffer=buffer)
    bad = jobs.pop(0)
    for _ in range(10):
        received = server.receive(make_update(bad, server.model, delta=ONES * 1e18))
        (bad,) = received.jobs  # the only idle client
        assert received.step is None
    send(server, jobs, 1.0, 1.0, 1.0)
    send(server, jobs, 1.0, 1.0, 1.0)
    assert server.state.version > 0
    assert float(server.model.params.max()) < 6


def test_clients_that_fail_or_are_away_are_not_waited_for():
    server, jobs = make_open_server(Checks(norm_factor=3.0), clients=3, buffer=1)
    assert send(server, jobs, 1.0)[0].refused == "too early to judge"
    server.drop(jobs[1], "expired")
    assert send(server, jobs, 1.0)[0].step


def test_federation_of_two_takes_steps():
    server, jobs = make_open_server(Checks(norm_factor=3.0), clients=2, buffer=2)
    assert send(server, jobs, 1.0, 1.0)[1].step


def test_relative_checks_are_off_by_default():
    server, jobs = make_open_server(None)
    assert not any(one.refused for one in send(server, jobs, 1.0, 1.0, 1.0, 1e15))
    assert not server.recent.state()["votes"]


def test_saved_server_keeps_what_recent_updates_look_like():
    checks = Checks(norm_factor=3.0, examples_factor=2.0)
    server, jobs = make_open_server(checks, buffer=4)
    send(server, jobs, 1.0, 2.0)
    tensors, values = save_server(server)
    other, _ = make_open_server(checks, buffer=4)
    load_server(other, tensors, json.loads(json.dumps(values)))
    assert other.recent.state() == server.recent.state()
    assert other.unjudged == server.unjudged
    assert len(other.unjudged) == 2


@pytest.mark.parametrize(
    "checks", [Checks(examples=30), Checks(examples_factor=2.0), Checks(examples=500, examples_factor=2.0)]
)
def test_claimed_examples_count_up_to_cap(checks):
    """With a cap of 20 or 30, the client that claims 10^18 has no more than its share."""
    server, jobs = make_open_server(checks, buffer=4, algorithm=Algorithm(ExampleWeighted()))
    for job, claim in zip(jobs[:4], (10**18, 10, 10, 10), strict=True):
        delta = ONES * (claim > 10)
        received = server.receive(make_update(job, server.model, delta=delta, examples=claim))
    cap = checks.examples if not checks.examples_factor else 20
    assert [update.examples for update in received.updates] == [10**18, 10, 10, 10], "the record keeps the claim"
    torch.testing.assert_close(server.model.params, ONES * cap / (cap + 30))


@pytest.mark.parametrize(("claim", "reason"), [(float("inf"), "not finite"), (float("nan"), "no examples")])
def test_claims_that_are_no_numbers_are_refused(claim, reason):
    server, jobs = make_server()
    assert server.receive(make_update(jobs[0], server.model, examples=claim)).refused == reason


@pytest.mark.parametrize("make", [torch.Tensor.to_sparse, lambda tensor: tensor.to("meta")], ids=["sparse", "meta"])
@pytest.mark.parametrize("field", ["delta", "buffers"])
def test_tensors_without_dense_values_are_refused(make, field):
    server, jobs = make_server()
    changes = {field: make(torch.ones(5 if field == "delta" else 2))}
    assert server.receive(make_update(jobs[0], server.model, **changes)).refused == "not a dense tensor"


@pytest.mark.parametrize(
    "bad",
    [
        {"norm_factor": -1.0},
        {"norm_factor": float("inf")},
        {"examples": 0},
        {"examples": 1.5},
        {"examples_factor": -2.0},
    ],
)
def test_bad_relative_settings_are_refused(bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        Checks(**bad)


def test_cap_of_one_example_gives_every_client_the_same_weight():
    server, jobs = make_open_server(Checks(examples=1), buffer=2, algorithm=Algorithm(ExampleWeighted()))
    server.receive(make_update(jobs[0], server.model, delta=ONES, examples=1))
    server.receive(make_update(jobs[1], server.model, delta=0 * ONES, examples=9))
    torch.testing.assert_close(server.model.params, ONES / 2)


@pytest.mark.parametrize("vote", [[0, LATEST, 5], [0, 1.0, LATEST], [0, -1.0, 5], [0, 1.0, 0]])
def test_saved_votes_must_be_possible(vote):
    recent = RecentUpdates()
    with pytest.raises(ValueError, match="lengths and examples must be finite numbers"):
        recent.load_state({"votes": [vote], "length": None})
    for length in (LATEST, 0.0):
        with pytest.raises(ValueError, match="the reference must be a finite number"):
            recent.load_state({"votes": [], "length": length})
    recent.load_state({"votes": [[0, 0.0, 1], [3, 1e99, 1e99]], "length": 0.5})
    assert recent.knows(0)
    assert recent.state() == {"votes": [[0, 0.0, 1], [3, 1e99, 1e99]], "length": 0.5}
