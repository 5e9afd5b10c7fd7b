"""When and whom a fault hits."""

import math

import pytest

from fadas.simulation.faults import Fault, check_clients, is_failing, last_outage_end


@pytest.mark.parametrize(
    ("client", "time", "hit"),
    [(1, 1.999, False), (1, 2.0, True), (1, 4.999, True), (1, 5.0, False), (2, 3.0, False), (3, 3.0, True)],
)
def test_fault_hits_jobs_from_start_to_before_end(client, time, hit):
    assert Fault("nan", (1, 3), 2.0, 5.0).hits(client, time) is hit
    assert Fault("nan", None, 2.0, 5.0).hits(client, time) is (2.0 <= time < 5.0)


def test_no_clients_are_not_all_clients():
    assert not Fault("nan", ()).hits(0, 1.0)
    assert Fault("nan").hits(0, 1.0)


@pytest.mark.parametrize(("client", "known"), [(-1, False), (0, True), (7, True), (8, False)])
def test_clients_of_faults_are_numbered_from_zero(client, known):
    faults = (Fault("nan"), Fault("flip", (3, client)))
    if known:
        assert check_clients(faults, 8) is None
    else:
        with pytest.raises(ValueError, match=f"the clients of a fault must be from 0 to 7, got {client}"):
            check_clients(faults, 8)


def test_last_outage_is_the_last_temporary_failure():
    assert last_outage_end(()) == 0.0
    assert last_outage_end((Fault("fail"),)) == 0.0, "it never ends"
    assert last_outage_end((Fault("nan", end=9.0),)) == 0.0, "its updates arrive"
    assert last_outage_end((Fault("fail", end=3.0), Fault("fail", end=7.0), Fault("fail", end=5.0))) == 7.0
    assert last_outage_end((Fault("fail", end=3.0), Fault("fail", end=math.inf), Fault("nan", end=9.0))) == 3.0


def test_only_failures_fail():
    faults = (Fault("nan", (0,)), Fault("fail", (1,), 2.0, 4.0), Fault("fail", (2,)))
    assert [is_failing(faults, client, 3.0) for client in range(4)] == [False, True, True, False]
    assert [is_failing(faults, client, 4.0) for client in range(4)] == [False, False, True, False]
    assert not is_failing((), 0, 0.0)
