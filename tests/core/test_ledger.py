"""The bookkeeping of jobs, for every schedule and every order of arrival."""

import pytest
from hypothesis import given, settings, strategies as st

from fadas.core.ledger import Job, Ledger, Schedule, Step


@st.composite
def draw_ledger(draw):
    clients = draw(st.integers(1, 12))
    concurrency = draw(st.integers(1, clients))
    refill = draw(st.sampled_from(["arrival", "update", "round", "released"]))
    buffer = draw(st.integers(1, concurrency if refill in ("round", "released") else 2 * concurrency))
    return Ledger(Schedule(concurrency, buffer, refill), clients, draw(st.integers(0, 1000)))


@settings(max_examples=200)
@given(draw_ledger(), st.data())
def test_ledger_properties_hold_for_any_order(ledger: Ledger, data):
    schedule = ledger.schedule
    dispatched: list[Job] = ledger.start()
    ended: list[Job] = []
    assert len(dispatched) == schedule.concurrency
    for _ in range(data.draw(st.integers(0, 60))):
        assert ledger.running, "a live ledger always waits for a job"
        job = data.draw(st.sampled_from(sorted(ledger.running.values())))
        version = ledger.version
        if data.draw(st.booleans()) and data.draw(st.booleans()):
            jobs, step = ledger.drop(job), None
            assert [j.version for j in jobs] == [version]
        else:
            jobs, step = ledger.arrive(job)
        ended.append(job)
        dispatched += jobs
        assert len(ledger.running) <= schedule.concurrency
        if schedule.refill in ("arrival", "update"):
            assert len(ledger.running) == schedule.concurrency
        running = [j.client for j in ledger.running.values()]
        assert len(running) == len(set(running)), "a client has two jobs at once"
        if step:
            assert len(step.jobs) == schedule.buffer
            assert step.index == version
            assert ledger.version == version + 1
            assert min(step.delays) >= 0
            assert step.delays == [step.index - j.version for j in step.jobs]
    assert [j.id for j in dispatched] == list(range(len(dispatched)))
    assert len(ended) == len(set(ended)), "a job ended twice"
    assert set(ended) | set(ledger.running.values()) == set(dispatched)


@pytest.mark.parametrize(("refill", "filled"), [("arrival", 4), ("update", 4), ("round", 3), ("released", 3)])
def test_resume_fills_free_slots(refill, filled):
    ledger = Ledger(Schedule(4, 2, refill), 6, open=True)
    assert len(ledger.resume(3, [Job(7, 0, 2)], 8)) == filled, "slots that wait for their round stay empty"


@pytest.mark.parametrize(("refill", "successor"), [("arrival", 0), ("update", 1), ("round", 1)])
def test_refill_decides_start_version_of_successor(refill, successor):
    ledger = Ledger(Schedule(2, 2, refill), clients=6)
    first, second = ledger.start()
    jobs, step = ledger.arrive(first)
    assert step is None
    assert [j.version for j in jobs] == ([] if refill == "round" else [0])
    jobs, step = ledger.arrive(second)
    assert step == Step(0, (first, second))
    assert [j.version for j in jobs] == [successor] * (2 if refill == "round" else 1)


def test_dropped_job_of_round_is_replaced():
    ledger = Ledger(Schedule(2, 2, "round"), clients=3)
    first, second = ledger.start()
    (third,) = ledger.drop(first)
    assert ledger.arrive(third) == ([], None)
    assert ledger.arrive(second)[1] is not None


def test_round_with_more_slots_than_clients_ends():
    ledger = Ledger(Schedule(3, 3, "round"), 0, open=True)
    ledger.start()
    (first,), (second,) = ledger.join(0), ledger.join(1)
    ((third,), step) = ledger.arrive(first)
    assert (third.client, third.version, step) == (0, 0, None)
    assert ledger.arrive(second) == ([], None), "the round has its three jobs"
    jobs, step = ledger.arrive(third)
    assert step == Step(0, (first, second, third))
    assert [job.version for job in jobs] == [1, 1]


def test_job_ends_once():
    ledger = Ledger(Schedule(2, 5), clients=4)
    job, _ = ledger.start()
    ledger.arrive(job)
    for end in (ledger.arrive, ledger.drop):
        with pytest.raises(ValueError, match="not running"):
            end(job)
    with pytest.raises(ValueError, match="not running"):
        ledger.arrive(Job(1, 99, 0))
    with pytest.raises(ValueError, match="already started"):
        ledger.start()


def test_choice_is_uniform_over_idle_clients():
    counts = [0] * 6
    for seed in range(3000):
        ledger = Ledger(Schedule(1, 1), clients=6, seed=seed)
        (job,) = ledger.start()
        (job,), _ = ledger.arrive(job)
        counts[job.client] += 1
    # chi-square with 5 degrees of freedom: 20.5 is the 0.1 % point
    assert sum((c - 500) ** 2 / 500 for c in counts) < 20.5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, 1), "at least 1"),
        ((1, 0), "at least 1"),
        ((4, 5, "round"), "exceeds concurrency"),
        ((4, 5, "released"), "exceeds concurrency"),
        ((4, 4, "sometimes"), "refill must be one of"),
    ],
)
def test_bad_schedules_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        Schedule(*arguments)


def test_more_slots_than_clients_are_refused():
    with pytest.raises(ValueError, match="exceeds the number of clients"):
        Ledger(Schedule(5, 1), clients=4)


def test_open_ledger_follows_joining_and_leaving_clients():
    """Newcomers fill vacant slots. Clients that left get no more jobs, but may still report the one they have."""
    ledger = Ledger(Schedule(3, 2), 0, open=True)
    assert ledger.start() == []
    (first,) = ledger.join(0)
    (second,) = ledger.join(1)
    assert (first.client, second.client) == (0, 1)
    jobs, step = ledger.arrive(first)
    assert [job.client for job in jobs] == [0], "the only idle client"
    assert step is None
    ledger.leave(1)
    assert ledger.join(1) == [], "it has a job"
    ledger.leave(1)
    jobs, step = ledger.arrive(second)
    assert jobs == [], "the client that reported has left"
    assert step
    assert len(ledger.running) == 1
    assert [job.client for job in ledger.join(2)] == [2]
    assert len(ledger.join(1)) == 1, "two slots were vacant"
    assert ledger.join(3) == [], "all slots are taken"
    ledger.leave(3)
    (running, *_) = ledger.running.values()
    assert ledger.drop(running)[0].client == running.client
    other = Ledger(Schedule(3, 2), 2, open=True)
    (again, *more) = other.resume(5, [Job(9, 0, 4)], 12)
    assert (again.id, again.version, len(more)) == (12, 5, 1)
    assert other.arrive(again)[1].jobs == (Job(9, 0, 4), again)
