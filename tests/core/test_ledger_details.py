"""Rounds in which updates wait for the next one, and resumed rounds."""

import pytest

from fadas.core.ledger import Job, Ledger, Schedule

ROUND = Schedule(3, 3, "round", per_client=1)


def find_round(clients, again):
    """A round whose second job was dropped, so that its slot went to client number `again` of the first jobs."""
    for seed in range(50):
        ledger = Ledger(ROUND, clients, seed)
        one, two, three = ledger.start()
        ledger.arrive(one)
        (job,) = ledger.drop(two)
        if job.client == (one, two, three)[again].client:
            return ledger, (one, two, three), job
    return pytest.fail("no seed chose that client")


def test_round_with_running_jobs_lends_no_slot():
    ledger, (_, _, three), again = find_round(3, 0)
    assert ledger.arrive(again) == ([], None), "another job may still end the round"
    assert ledger.waiting == [again]
    jobs, step = ledger.arrive(three)
    assert step is None
    assert len(jobs) == 1, "one job is enough to end the round"


def test_round_that_lent_a_slot_has_one_slot_less_next_time():
    ledger, (one, _, three), again = find_round(5, 0)
    ledger.arrive(again)
    (lent,), _ = ledger.arrive(three)
    while lent.client in (one.client, three.client):  # its update would wait, too
        (lent,), step = ledger.arrive(lent)
        assert step is None
    jobs, step = ledger.arrive(lent)
    assert step.jobs == (one, three, lent)
    assert len(jobs) + len(ledger.buffer) == 3


@pytest.mark.parametrize(("buffer", "waiting", "free"), [(0, 0, 3), (1, 0, 2), (1, 1, 1), (2, 1, 0)])
def test_resumed_round_counts_updates_that_wait(buffer, waiting, free):
    ledger = Ledger(ROUND, 6, open=True)
    held = [Job(k, k, 0) for k in range(buffer + waiting)]
    jobs = ledger.resume(2, held[:buffer], 9, held[buffer:])
    assert [(job.id, job.version) for job in jobs] == [(9 + k, 2) for k in range(free)]


def test_limit_of_clients_per_step():
    assert [Schedule(8, 5, per_client=limit).clients_per_step for limit in (None, 0, 1, 2, 5, 9)] == [0, 0, 5, 3, 1, 1]
    assert Schedule(8, 5).can_step(0)
    assert [Schedule(8, 5, per_client=2).can_step(clients) for clients in (2, 3)] == [False, True]


def test_copied_ledger_shares_no_list():
    ledger = Ledger(Schedule(2, 2, per_client=1), 2, open=True)
    one, two = ledger.start()
    (again,), _ = ledger.arrive(one)
    ledger.leave(two.client)
    copied = ledger.copy()
    ledger.arrive(again)
    ledger.join(two.client)
    assert (copied.waiting, copied.buffer) == ([], [one])
    assert not copied.is_member(two.client)
    assert set(copied.running.values()) == {again, two}


@pytest.mark.parametrize(("concurrency", "patience"), [(1, 120), (2, 140), (25, 600)])
def test_patience_grows_with_the_slots(concurrency, patience):
    assert Schedule(concurrency, 1).patience == patience
