"""What comes beside a delta is checked as the delta is."""

import math
from dataclasses import replace

import pytest
import torch

from fadas.algorithms.presets import SCAFFOLD, FedNova
from fadas.core.ledger import Job, Ledger, Schedule
from fadas.core.model import NOTHING, Exchange, Model
from fadas.core.recent_updates import RecentUpdates
from fadas.core.server import Server
from fadas.core.update_checks import Checks, vector_lengths
from helpers.updates import make_update

EXCHANGE = Exchange(sends=("c",), returns=("dc", "sq"), numbers=("steps",), squares=("sq",))
MODEL = Model(torch.zeros(2), torch.zeros(1))
GOOD = {"dc": torch.tensor([3.0, 4.0]), "sq": torch.tensor([9.0, 40.0]), "steps": torch.tensor(4.0)}


def update_with(**vectors):
    given = {name: vector for name, vector in {**GOOD, **vectors}.items() if vector is not None}
    return replace(make_update(Job(0, 0, 0), MODEL), vectors=given)


@pytest.mark.parametrize(
    ("name", "vector", "problem"),
    [
        ("dc", None, "vector missing"),
        ("sq", None, "vector missing"),
        ("steps", None, "vector missing"),
        ("dc", [1.0, 2.0], "not a dense tensor"),
        ("dc", GOOD["dc"].to_sparse(), "not a dense tensor"),
        ("sq", GOOD["sq"].to("meta"), "not a dense tensor"),
        ("steps", 4.0, "not a dense tensor"),
        ("dc", torch.ones(3), "wrong shape"),
        ("sq", torch.ones(2, 1), "wrong shape"),
        ("steps", torch.ones(1), "wrong shape"),
        ("dc", torch.ones(2).double(), "wrong dtype"),
        ("steps", torch.tensor(4), "wrong dtype"),
        ("dc", torch.tensor([1.0, math.nan]), "not finite"),
        ("sq", torch.tensor([math.inf, 1.0]), "not finite"),
        ("steps", torch.tensor(math.inf), "not finite"),
        ("steps", torch.tensor(math.nan), "not finite"),
        ("steps", torch.tensor(0.0), "not positive"),
        ("steps", torch.tensor(-1.0), "not positive"),
    ],
)
def test_bad_vector_is_refused(name, vector, problem):
    given = update_with(**{name: vector})
    update, found = Checks()(given, MODEL, EXCHANGE)
    assert found == problem
    assert update is given


def test_good_vectors_are_accepted_and_others_are_removed():
    tracked = torch.ones(2, requires_grad=True) * 2
    update, problem = Checks()(update_with(dc=tracked, more=torch.ones(5)), MODEL, EXCHANGE)
    assert problem is None
    assert list(update.vectors) == ["dc", "sq", "steps"]
    assert not update.vectors["dc"].requires_grad, "the client's graph is not kept"
    assert torch.equal(update.vectors["sq"], GOOD["sq"])
    assert Checks()(update_with(), MODEL, NOTHING)[0].vectors == {}
    plain = make_update(Job(0, 0, 0), MODEL)
    assert Checks()(plain, MODEL)[0] is plain


def test_lengths_are_norms_roots_and_numbers_both_ways():
    lengths = vector_lengths(update_with(), EXCHANGE)
    assert lengths == pytest.approx({"dc": 5.0, "sq": 41**0.5, "steps": 4.0, "1 / steps": 0.25})


def recent_of(length=1.0, clients=3):
    """Recent vectors of this length, from so many clients."""
    recent = {name: RecentUpdates() for name in ("dc", "sq", "steps", "1 / steps")}
    for one in recent.values():
        for client in range(clients):
            one.add(client, length, 1)
    return recent


def limit(update, excess="refuse", **recent):
    checks = Checks(norm_factor=5.0, excess=excess)
    return checks.limit_vectors(update, EXCHANGE, recent_of(**recent))


SHORT = {"dc": torch.tensor([3.0, 4.0]), "sq": torch.tensor([7.0, 24.0]), "steps": torch.tensor(5.0)}


@pytest.mark.parametrize("excess", ["refuse", "clip"])
def test_vectors_exactly_at_their_bounds_are_accepted(excess):
    """Five times the median is 5. Of squares the root counts."""
    given = update_with(**SHORT)
    update, problem = limit(given, excess)
    assert problem is None
    assert all(torch.equal(update.vectors[name], vector) for name, vector in SHORT.items())
    low = update_with(**{**SHORT, "steps": torch.tensor(0.2)})
    assert limit(low, excess)[1] is None


@pytest.mark.parametrize(
    ("name", "vector", "clipped"),
    [
        ("dc", torch.tensor([30.0, 40.0]), [3.0, 4.0]),
        ("sq", torch.tensor([70.0, 240.0]), [7.0, 24.0]),
        ("steps", torch.tensor(6.0), None),
        ("steps", torch.tensor(0.15), None),
    ],
)
def test_vector_beyond_its_bound_is_refused_or_clipped(name, vector, clipped):
    given = update_with(**{**SHORT, name: vector})
    assert limit(given)[1] == "norm above bound"
    update, problem = limit(given, "clip")
    if clipped is None:
        assert problem == "norm above bound", "numbers are never clipped"
    else:
        assert problem is None
        assert update.vectors[name].tolist() == pytest.approx(clipped)
        assert all(torch.equal(update.vectors[other], SHORT[other]) for other in SHORT if other != name)
        assert torch.equal(given.vectors[name], vector), "the client's own is not written to"


def test_vectors_are_not_compared_with_too_few_others():
    long = update_with(dc=torch.tensor([3e10, 4e10]))
    assert limit(long, clients=2)[1] is None
    assert Checks(norm_factor=5.0).limit_vectors(long, EXCHANGE, {})[1] is None
    assert Checks().limit_vectors(long, EXCHANGE, recent_of())[1] is None


def make_server(algorithm, **options):
    model = Model(torch.zeros(2), torch.zeros(0))
    server = Server(algorithm, Ledger(Schedule(4, 2), 4), model, Checks(norm_factor=5.0, **options))
    return server, server.start()


def send(server, job, **vectors):
    update = make_update(job, server.model)
    return server.receive(replace(update, vectors={name: torch.as_tensor(v) for name, v in vectors.items()}))


def test_server_compares_vectors_with_those_of_other_clients():
    """A client with an ordinary delta sends a control variate that would spoil all later jobs."""
    server, jobs = make_server(SCAFFOLD())
    for job in jobs[:2]:
        send(server, job, dc=[1.0, 0.0])
    job = next(job for job in jobs if job.client not in {one.client for one in jobs[:2]})
    send(server, job, dc=[1.0, 0.0])
    last = next(one for one in server.ledger.running.values())
    assert send(server, last, dc=[1e6, 0.0]).refused == "norm above bound"
    assert float(server.model.vectors["c"].abs().max()) <= 1.0
    assert set(server.recent_vectors) == {"dc"}


@pytest.mark.parametrize("steps", [1e6, 1e-6])
def test_server_compares_numbers_in_both_directions(steps):
    server, jobs = make_server(FedNova(), excess="clip")
    for job in jobs[:3]:
        send(server, job, steps=10.0)
    last = next(iter(server.ledger.running.values()))
    assert send(server, last, steps=steps).refused == "norm above bound"
    assert set(server.recent_vectors) == {"steps", "1 / steps"}


def test_vectors_of_others_are_not_remembered_where_nothing_is_compared():
    model = Model(torch.zeros(2), torch.zeros(0))
    server = Server(FedNova(), Ledger(Schedule(4, 2), 4), model)
    (job, *_) = server.start()
    assert send(server, job, steps=10.0).refused is None
    assert server.recent_vectors == {}
