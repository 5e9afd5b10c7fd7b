"""Clients that leave and return while they have a job."""

import pytest

from fadas.core.ledger import Job, Ledger, Schedule


def make_open_ledger(concurrency=1, buffer=1, refill="arrival"):
    ledger = Ledger(Schedule(concurrency, buffer, refill), 0, open=True)
    assert ledger.start() == []
    return ledger


def end_job(ledger, job, end):
    return ledger.arrive(job)[0] if end == "arrive" else ledger.drop(job)


@pytest.mark.parametrize("end", ["arrive", "drop"])
def test_client_that_returned_during_its_job_works_again(end):
    ledger = make_open_ledger()
    (job,) = ledger.join(0)
    ledger.leave(0)
    assert ledger.join(0) == [], "its job is still running"
    (again,) = end_job(ledger, job, end)
    assert (again.client, again.id) == (0, 1)


@pytest.mark.parametrize("end", ["arrive", "drop"])
def test_client_that_left_during_its_job_works_again_after_its_return(end):
    ledger = make_open_ledger()
    (job,) = ledger.join(0)
    ledger.leave(0)
    assert end_job(ledger, job, end) == [], "it has left"
    (again,) = ledger.join(0)
    assert again.client == 0
    (third,) = end_job(ledger, again, end)
    assert third.client == 0, "it has left only once"


def test_client_that_left_while_idle_gets_no_job():
    ledger = make_open_ledger()
    (job,) = ledger.join(0)
    assert ledger.join(1) == []
    ledger.leave(1)
    for _ in range(10):
        ((job,), _) = ledger.arrive(job)
        assert job.client == 0
    ledger.join(1)
    clients = set()
    for _ in range(20):
        ((job,), _) = ledger.arrive(job)
        clients.add(job.client)
    assert clients == {0, 1}


def test_join_counts_clients_and_numbers_need_not_come_in_order():
    ledger = make_open_ledger(concurrency=2)
    assert ledger.clients == 0
    ledger.join(2)
    assert ledger.clients == 3
    ledger.join(0)
    assert ledger.clients == 3


def test_resumed_ledger_continues_numbers_and_version():
    ledger = Ledger(Schedule(2, 3), 3, open=True)
    waiting = [Job(7, 0, 2)]
    first, second = ledger.resume(4, waiting, 9)
    assert [(job.id, job.version) for job in (first, second)] == [(9, 4), (10, 4)]
    assert ledger.next_id == 11
    ledger.arrive(first)
    assert waiting == [Job(7, 0, 2)], "the caller's list is its own"
    _, step = ledger.arrive(second)
    assert step.index == 4
    assert step.delays == [2, 0, 0]


def test_copied_ledger_is_independent():
    ledger = Ledger(Schedule(2, 2), 4, seed=1)
    first, second = ledger.start()
    ledger.arrive(first)
    copied = ledger.copy()
    before = (dict(ledger.running), list(ledger.buffer), ledger.version)
    jobs, step = copied.arrive(second)
    assert step
    assert (dict(ledger.running), list(ledger.buffer), ledger.version) == before
    assert ledger.arrive(second) == (jobs, step), "the same choices follow"


def test_number_of_clients_is_bounded(monkeypatch):
    with pytest.raises(ValueError, match="a ledger holds at most 100,000,000 clients, got 100,000,001"):
        Ledger(Schedule(1, 1), 100_000_001)
    monkeypatch.setattr("fadas.core.ledger._MOST", 5)  # the real bound takes gigabytes
    assert Ledger(Schedule(1, 1), 5).clients == 5
    with pytest.raises(ValueError, match="a ledger holds at most 5 clients, got 6"):
        Ledger(Schedule(1, 1), 6)


def test_membership_ends_when_client_leaves():
    ledger = make_open_ledger(concurrency=2)
    jobs = [*ledger.join(0), *ledger.join(1)]
    ledger.join(2)
    assert [ledger.is_member(client) for client in (0, 1, 2, 3)] == [True, True, True, False]
    ledger.leave(0)
    ledger.leave(2)
    assert [ledger.is_member(client) for client in (0, 1, 2)] == [False, True, False]
    ledger.drop(jobs[0])
    assert not ledger.is_member(0)
    ledger.join(0)
    assert ledger.is_member(0)


def test_members_are_those_that_have_not_left():
    ledger = make_open_ledger(concurrency=2)
    for client in range(4):
        ledger.join(client)
    assert ledger.members == 4
    busy, idle = ledger.running[0].client, 3
    ledger.leave(busy)
    assert ledger.members == 3, "it still has a job"
    ledger.leave(idle)
    assert ledger.members == 2
    ledger.drop(ledger.running[0])
    assert ledger.members == 2
    ledger.join(busy)
    ledger.join(idle)
    assert ledger.members == 4
