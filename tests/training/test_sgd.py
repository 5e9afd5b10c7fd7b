"""Which rows a client trains on."""

import pytest

from fadas.core.ledger import Job
from fadas.training.sgd import LocalSGD
from helpers.training import LOCAL_DECAY, list_batches, make_task


def list_rows(local, seed, job, size=12):
    return [b.tolist() for b in list_batches(make_task(sizes=(size,)), local, seed, job)]


def test_batches_cover_data_including_short_batch():
    job = Job(1, 0, 0)
    two = list_rows(LOCAL_DECAY, 0, job)
    assert [len(b) for b in two] == [5, 5, 2, 5, 5, 2]
    assert all(sorted(i for b in epoch for i in b) == list(range(12)) for epoch in (two[:3], two[3:]))
    assert two[:3] != two[3:]
    assert [len(b) for b in list_rows(LocalSGD(batch_size=5, steps=4), 0, job)] == [5, 5, 2, 5]
    assert len(list_rows(LocalSGD(batch_size=50, steps=4), 0, job)) == 4
    assert two == list_rows(LOCAL_DECAY, 0, job)
    assert two != list_rows(LOCAL_DECAY, 1, job)
    assert two != list_rows(LOCAL_DECAY, 0, Job(2, 0, 0))


@pytest.mark.parametrize(
    "bad", [{"lr": -0.1}, {"lr": 0}, {"epochs": 0}, {"batch_size": 0}, {"weight_decay": -1}, {"steps": 0}]
)
def test_bad_local_settings_are_refused(bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        LocalSGD(**bad)
