"""Faults of clients."""

import pytest

from fadas.simulation.faults import Fault
from helpers.training import make_faulty_simulation, make_task


def test_faults_hold_between_start_and_end():
    task = make_task()
    only_early = list(make_faulty_simulation(task, faults=(Fault("fail", end=3.0),), steps=20))
    assert only_early[0].time > 3
    assert only_early[-1].dropped > 0
    assert list(make_faulty_simulation(task, faults=(Fault("nan", start=1e6),)))[-1].refused == {}


def test_run_continues_with_fewer_live_clients_than_slots():
    """Of eight clients, one is alive. The run continues with it on four slots."""
    records = list(make_faulty_simulation(make_task(), faults=(Fault("fail", tuple(range(1, 8))),)))
    assert {job.client for record in records for job in record.jobs} == {0}
    assert records[-1].dropped > 50


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"kind": "rot"}, "kind must be one of fail, nan, inf, flip, noise, got 'rot'"),
        ({"kind": "nan", "start": -1}, r"start and end must be a range 0 <= start < end, got \[-1, inf\]"),
        ({"kind": "nan", "start": 5, "end": 5}, r"start and end must be a range 0 <= start < end, got \[5, 5\]"),
        ({"kind": "noise", "scale": 0}, "scale must be a positive number, got 0"),
    ],
)
def test_bad_faults_are_refused(bad, message):
    with pytest.raises(ValueError, match=message):
        Fault(**bad)


def test_fault_of_unknown_client_is_refused():
    with pytest.raises(ValueError, match="the clients of a fault must be from 0 to 7, got 8"):
        make_faulty_simulation(make_task(), faults=(Fault("nan", (8,)),))
