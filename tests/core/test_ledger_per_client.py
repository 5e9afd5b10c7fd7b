"""The limit of one client's updates per step: bookkeeping."""

from collections import Counter

import pytest
from hypothesis import given, settings, strategies as st

from fadas.core.ledger import Ledger, Schedule

REFILLS = ("arrival", "update", "round", "released")


@st.composite
def schedules(draw):
    """A schedule with a limit, and a number of clients that can fill its buffer."""
    concurrency = draw(st.integers(1, 6))
    buffer, limit = draw(st.integers(1, concurrency)), draw(st.integers(1, 3))
    clients = draw(st.integers(max(concurrency, -(-buffer // limit)), 9))
    excess, refill = draw(st.sampled_from(["wait", "replace"])), draw(st.sampled_from(REFILLS))
    return Schedule(concurrency, buffer, refill, limit, excess), clients


@settings(max_examples=300, deadline=None)
@given(schedules(), st.data())
def test_no_step_has_too_many_updates_of_a_client_and_none_is_lost(drawn, data):
    schedule, clients = drawn
    ledger = Ledger(schedule, clients)
    running, taken, arrived, replaced = ledger.start(), [], [], []
    for _ in range(60):
        assert running, "there is always a job to wait for"
        job = running.pop(data.draw(st.integers(0, len(running) - 1)))
        action = data.draw(st.sampled_from(["arrive", "arrive", "arrive", "drop", "retract"]))
        if action == "drop":
            running += ledger.drop(job)
            continue
        expected, old = ledger.closing_step(job), ledger.replaced_by(job)
        jobs, step = ledger.arrive(job)
        assert step == expected
        arrived.append(job)
        assert ledger.members == clients, "clients whose updates wait take part too"
        replaced += [old] if old else []
        running += jobs
        if step:
            assert max(Counter(job.client for job in step.jobs).values()) <= schedule.per_client
            assert len(step.jobs) == schedule.buffer
            taken += step.jobs
        if action == "retract" and ledger.buffer:
            victim = data.draw(st.sampled_from(ledger.buffer))
            running += ledger.retract(victim)
            replaced.append(victim)
        busy = [j.client for j in running] + [j.client for j in ledger.waiting]
        assert len(busy) == len(set(busy)), "a client does one thing at a time"
        assert sorted(busy + ledger._idle) == list(range(clients))
        slots = len(running) + ledger._vacant
        held = len(ledger.buffer) + len(ledger.waiting) if schedule.refills_together else 0
        assert slots + held == schedule.concurrency
    assert len(set(taken)) == len(taken)
    assert {*taken, *replaced, *ledger.buffer, *ledger.waiting} == set(arrived)


def test_excess_update_waits_for_next_step_and_holds_its_client():
    ledger = Ledger(Schedule(2, 2, per_client=1), 2)
    one, two = ledger.start()
    (again,), step = ledger.arrive(one)
    assert (again.client, step) == (one.client, None)
    assert ledger.arrive(again) == ([], None), "its client waits"
    assert (ledger.buffer, ledger.waiting) == ([one], [again])
    jobs, step = ledger.arrive(two)
    assert step.jobs == (one, two)
    assert (ledger.buffer, ledger.waiting) == ([again], [])
    assert sorted(job.client for job in jobs) == [0, 1]


def test_excess_update_replaces_older_one():
    ledger = Ledger(Schedule(2, 2, per_client=1, excess="replace"), 2)
    one, two = ledger.start()
    (again,), _ = ledger.arrive(one)
    assert ledger.replaced_by(again) == one
    (third,), step = ledger.arrive(again)
    assert (third.client, step, ledger.buffer) == (one.client, None, [again])
    _, step = ledger.arrive(two)
    assert step.jobs == (again, two)


def test_client_whose_update_waits_may_leave_and_come_back():
    ledger = Ledger(Schedule(2, 2, per_client=1), 2, open=True)
    one, two = ledger.start()
    (again,), _ = ledger.arrive(one)
    ledger.arrive(again)
    ledger.leave(one.client)
    jobs, step = ledger.arrive(two)
    assert step
    assert [job.client for job in jobs] == [two.client], "the other one is away"
    (job,) = ledger.join(one.client)
    assert job.client == one.client


def test_resumed_ledger_keeps_waiting_updates():
    ledger = Ledger(Schedule(2, 2, per_client=1), 2, open=True)
    one, two = ledger.start()
    (again,), _ = ledger.arrive(one)
    ledger.arrive(again)
    resumed = Ledger(Schedule(2, 2, per_client=1), 0, open=True)
    resumed.clients = 2
    assert resumed.resume(0, [one], ledger.next_id, [again]) == []
    assert resumed.join(one.client) == [], "its update waits"
    (job,) = resumed.join(two.client)
    _, step = resumed.arrive(job)
    assert step.jobs == (one, job)
    assert resumed.buffer == [again]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"per_client": -1}, "per_client must be at least 0, got -1"),
        ({"per_client": 1.5}, "per_client must be a whole number"),
        ({"excess": "drop"}, "excess must be one of wait, replace, got 'drop'"),
    ],
)
def test_bad_limits_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        Schedule(4, 4, **options)


def test_limit_that_clients_cannot_meet_is_refused():
    with pytest.raises(ValueError, match="3 clients with per_client = 1 never fill a buffer of 4"):
        Ledger(Schedule(3, 4, per_client=1), 3)
    Ledger(Schedule(3, 4, per_client=2), 3)
    Ledger(Schedule(3, 4, per_client=0), 3)


def test_schedule_table_omits_limit_that_is_off():
    """The settings of older runs stay the same."""
    assert Schedule(4, 2, per_client=0).as_table() == {"concurrency": 4, "buffer": 2, "refill": "arrival"}
    assert Schedule(4, 2, per_client=1).as_table()["excess"] == "wait"


def test_round_goes_on_where_retracted_update_left_all_others_waiting():
    """The place of a retracted update may go to a client that has one in the buffer. Its next one waits."""
    for seed in range(20):
        ledger = Ledger(Schedule(3, 3, "round", per_client=1), 3, seed)
        one, two, three = ledger.start()
        assert ledger.arrive(one) == ledger.arrive(two) == ([], None)
        (again,) = ledger.retract(one)
        ledger.arrive(three)
        jobs, step = ledger.arrive(again)
        if again.client == two.client:
            break
    else:
        pytest.fail("no seed chose that client")
    while not step:
        (job, *_) = jobs
        jobs, step = ledger.arrive(job)
    assert {job.client for job in step.jobs} == {0, 1, 2}
    assert len(ledger.running) + len(ledger.buffer) == 3, "the next round has no more slots than M_c"
