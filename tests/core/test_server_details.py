"""What a server counts and forgets, and which error ends a run whose updates are all refused."""

import pytest
import torch

from fadas.algorithms.algorithm import Algorithm
from fadas.algorithms.presets import FADAS, FedBuff
from fadas.core.ledger import Ledger, Schedule
from fadas.core.model import Model
from fadas.core.server import Server
from fadas.core.update_checks import Checks
from fadas.errors import Diverged, NoUsableUpdates
from helpers.updates import NOT_FINITE, make_update

HUGE = torch.tensor([1e25, 1, 1, 1, 1])  # its square is not finite
NO_NORM = Checks(norm_factor=None)


def make_server(concurrency=4, buffer=4, clients=8, checks=NO_NORM, algorithm=None, **schedule):
    ledger = Ledger(Schedule(concurrency, buffer, **schedule), clients)
    server = Server(algorithm or FADAS(), ledger, Model(torch.zeros(5), torch.zeros(2)), checks)
    return server, server.start()


def send(server, job, size=1.0):
    return server.receive(make_update(job, server.model, delta=torch.ones(5) * size))


def test_half_of_the_clients_at_fault_do_not_end_the_run():
    server, jobs = make_server()
    for job in jobs[:2]:
        server.receive(make_update(job, server.model, delta=HUGE))
    send(server, jobs[2])
    received = send(server, jobs[3])
    assert (received.step, received.retracted, received.refused) == (None, jobs[:2], None)
    assert server.refused == {"step not finite": 2}
    assert server.updates.keys() == {job.id for job in server.ledger.buffer} == {job.id for job in jobs[2:]}


def test_step_that_was_taken_renews_the_patience():
    server, (job,) = make_server(1, 1, clients=6)
    for _ in range(2):
        for _ in range(120):  # 100 + 20 * M_c
            received = server.receive(make_update(job, server.model, delta=HUGE))
            (job,) = received.jobs
        (job,) = send(server, job).jobs
    assert server.state.version == 2


def test_refusals_since_last_accepted_update_are_counted_by_reason():
    server, jobs = make_server()
    for job in jobs[:2]:
        server.receive(make_update(job, server.model, delta=NOT_FINITE))
    server.receive(make_update(jobs[2], server.model, examples=0))
    assert server.streak == {"not finite": 2, "no examples": 1}
    assert server.streak_clients == {job.client for job in jobs[:3]}
    assert str(server.gave_up(3)) == (
        "the last 3 updates were all refused (refused so far: not finite: 2, no examples: 1)"
    )
    send(server, jobs[3])
    assert (server.streak, server.streak_clients) == ({}, set())
    assert server.refused == {"not finite": 2, "no examples": 1}


@pytest.mark.parametrize(
    ("reasons", "error"),
    [
        ([], Diverged),
        (["not finite"], Diverged),
        (["step not finite"], Diverged),
        (["norm above bound"], Diverged),
        (["no examples", "norm above bound"], Diverged),
        (["no examples"], NoUsableUpdates),
        (["wrong shape", "wrong dtype"], NoUsableUpdates),
    ],
)
def test_run_diverges_if_numbers_were_refused(reasons, error):
    server, _ = make_server()
    server.streak.update(reasons)
    server.streak_clients = {1, 2}
    found = server.gave_up(9)
    assert type(found) is error
    assert str(found).endswith(": check the clients' data and code") is (error is NoUsableUpdates)


@pytest.mark.parametrize(("clients", "blamed"), [(1, False), (2, True), (3, True)])
def test_single_client_is_blamed_if_there_are_others(clients, blamed):
    server, _ = make_server(1, 1, clients=clients)
    server.streak.update(["not finite"])
    server.streak_clients = {0}
    assert ("all of client 0, and a step needs more clients" in str(server.gave_up(9))) is blamed


def test_short_updates_are_judged_by_their_own_lengths():
    """The third update is compared on arrival, the first two when the step is taken. None is too long."""
    server, jobs = make_server(8, 4, checks=Checks(norm_factor=3.0))
    said = [send(server, job, 1e-3) for job in jobs[:4]]
    assert [one.refused for one in said] == [None] * 4
    assert said[-1].step


def test_nothing_is_kept_of_lengths_that_are_no_longer_needed():
    checks = Checks(norm_factor=3.0)
    server, jobs = make_server(2, 2, clients=2, checks=checks)  # too few clients to compare any lengths
    send(server, jobs[0])
    assert server.unjudged.keys() == server.updates.keys() == {jobs[0].id}
    assert send(server, jobs[1]).step
    assert server.unjudged == {}
    server, jobs = make_server(2, 1, clients=2, checks=checks)
    assert server.receive(make_update(jobs[0], server.model, delta=HUGE)).refused == "step not finite"
    assert server.unjudged == {}
    server, jobs = make_server(2, 2, clients=2, checks=checks, per_client=1, excess="replace")
    (again,) = send(server, jobs[0]).jobs
    assert send(server, again).removed[0].job == jobs[0]
    assert server.unjudged.keys() == server.updates.keys() == {again.id}


def test_failed_clients_are_remembered_only_where_lengths_are_compared():
    for checks, remembered in ((NO_NORM, 0), (Checks(norm_factor=3.0), 1)):
        server, jobs = make_server(checks=checks)
        server.drop(jobs[0])
        assert len(server.failed_early) == remembered


def test_lengths_are_not_computed_for_the_examples_alone():
    server, jobs = make_server(checks=Checks(examples_factor=2.0))
    send(server, jobs[0])
    assert server.recent.state()["votes"] == [[jobs[0].client, 0.0, 3]]


def test_number_of_examples_is_bounded():
    server, jobs = make_server(algorithm=FedBuff())
    assert server.receive(make_update(jobs[0], server.model, examples=int(1e100))).refused == "not finite"
    assert server.receive(make_update(jobs[1], server.model, examples=1e100)).refused == "not finite"
    assert server.receive(make_update(jobs[2], server.model, examples=10**99)).refused is None


class Watching:
    """A combine rule that remembers the numbers of examples."""

    def __init__(self):
        self.seen = []

    def __call__(self, state, step, updates, clients):
        self.seen.append([update.examples for update in updates])
        return updates[0].delta, {}


def test_claims_above_the_cap_are_reduced_and_others_stay():
    watching = Watching()
    server, jobs = make_server(3, 3, checks=Checks(examples=5), algorithm=Algorithm(watching))
    for job, examples in zip(jobs, (4, 5, 6), strict=True):
        server.receive(make_update(job, server.model, examples=examples))
    assert watching.seen == [[4, 5, 5]]
