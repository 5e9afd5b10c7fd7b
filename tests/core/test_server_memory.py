"""What a server keeps of jobs that have ended."""

import torch

from fadas.algorithms.presets import FedBuff
from fadas.core.ledger import Ledger, Schedule
from fadas.core.model import Model
from fadas.core.server import Server
from helpers.updates import make_update

REMEMBERED = 100_000


def test_server_remembers_why_the_last_100000_jobs_ended():
    server = Server(FedBuff(), Ledger(Schedule(1, 1), 2), Model(torch.zeros(1), torch.zeros(0)))
    (job,) = server.start()
    jobs = [job]
    for number in range(REMEMBERED):
        jobs += server.drop(jobs[-1], "expired" if number % 2 else "dropped")
    assert server.refuse_late(jobs[0]) == "dropped"
    assert server.refuse_late(jobs[1]) == "expired"
    server.drop(jobs[-1])
    assert server.refuse_late(jobs[0]) == "unknown job", "it was forgotten"
    assert server.refuse_late(jobs[1]) == "expired"
    assert server.receive(make_update(jobs[0], server.model)).refused == "unknown job"
    assert server.receive(make_update(jobs[2], server.model)).refused == "dropped"
    assert server.refused == {"dropped": 2, "expired": 2, "unknown job": 2}


def test_server_frees_start_model_of_ended_job():
    server = Server(FedBuff(), Ledger(Schedule(3, 2, "released"), 6), Model(torch.zeros(1), torch.zeros(0)))
    server.start()
    for _ in range(20):
        (job, *_) = server.ledger.running.values()
        server.receive(make_update(job, server.model))
        assert server.base.keys() == server.ledger.running.keys()
        assert server.delta_base.keys() < server.base.keys()
    server.drop(next(iter(server.ledger.running.values())))
    assert server.base.keys() == server.ledger.running.keys()
