"""The counters of a run, and the records made of them."""

from dataclasses import replace

import torch

from fadas.algorithms.presets import FADAS
from fadas.core.ledger import Job, Ledger, Schedule, Step
from fadas.core.model import Model
from fadas.core.progress import Progress, mean_loss
from fadas.core.records import JobRecord
from fadas.core.server import Server
from helpers.updates import make_update

MODEL = Model(torch.zeros(2), torch.zeros(0))


def test_counters_count_from_zero():
    progress = Progress()
    assert (progress.updates, progress.removed, progress.dropped, progress.expired) == (0, 0, 0, 0)
    for reason in ("dropped", "expired", "error 2", "not sent", "expired", "malformed"):
        progress.end_job(reason)
    assert (progress.updates, progress.dropped, progress.expired) == (0, 4, 2)
    for _ in range(3):
        progress.accept()
    assert progress.updates == 3


def test_loss_is_the_mean_of_the_updates():
    updates = [replace(make_update(Job(0, 0, 0), MODEL), metrics={"loss": loss}) for loss in (1.0, 2.0, 6.0)]
    assert mean_loss(updates) == 3.0
    assert mean_loss([replace(updates[0], metrics={"loss": torch.tensor(0.5)})]) == 0.5


def test_record_counts_no_removed_updates():
    server = Server(FADAS(), Ledger(Schedule(1, 1), 3), MODEL)
    numbers = {"time": 1.0, "wall": 1.0, "train_loss": 1.0, "metrics": None}
    record = Progress(updates=9, removed=2).record(server, Step(0, ()), 0.1, lambda job: (0.0, 1.0), **numbers)
    assert record.updates == 7


def test_record_describes_the_step():
    server = Server(FADAS(), Ledger(Schedule(1, 1), 3), MODEL)
    server.refused["not finite"] = 2
    progress = Progress(updates=9, dropped=3, expired=1)
    step = Step(4, (Job(7, 2, 1), Job(8, 0, 4)))
    record = progress.record(
        server, step, 0.25, lambda job: (job.id / 2, job.id * 2.0), time=30.0, wall=1.5, train_loss=0.75, metrics=None
    )
    assert (record.step, record.eta, record.time, record.wall, record.train_loss) == (5, 0.25, 30.0, 1.5, 0.75)
    assert (record.updates, record.dropped, record.expired, record.refused) == (9, 3, 1, {"not finite": 2})
    assert record.jobs == (JobRecord(7, 2, 3, 3.5, 14.0), JobRecord(8, 0, 0, 4.0, 16.0))
    assert (record.privacy, record.metrics) == (None, None)
    server.refused["not finite"] += 1
    assert record.refused == {"not finite": 2}, "a record does not change"
