"""The server: which updates it accepts, and what jobs start from."""

import pytest
import torch

from fadas.algorithms.presets import FADAS, FedAdagrad, FedAdam, FedYogi
from fadas.core.ledger import Job, Ledger, Schedule
from fadas.core.model import Model
from fadas.core.server import Server
from fadas.errors import Diverged
from helpers.updates import NOT_FINITE, make_server, make_update


def test_jobs_that_are_not_running():
    server, jobs = make_server()
    server.receive(make_update(jobs[0], server.model))
    server.drop(jobs[1])
    server.drop(jobs[2], "expired")
    server.receive(make_update(jobs[3], server.model, delta=NOT_FINITE))
    running = dict(server.ledger.running)
    impostor = Job(next(iter(running)), 9 - next(iter(running.values())).client, 0)
    for job, reason in (
        (Job(99, 0, 0), "unknown job"),
        (impostor, "unknown job"),
        (jobs[0], "already reported"),
        (jobs[1], "dropped"),
        (jobs[2], "expired"),
        (jobs[3], "not finite"),
    ):
        received = server.receive(make_update(job, server.model))
        assert (received.jobs, received.step, received.refused) == ([], None, reason)
    assert server.ledger.running == running
    assert len(server.buffer) == 1


@pytest.mark.parametrize("algorithm", [FADAS(), FedAdam(), FedYogi(), FedAdagrad()], ids=repr)
def test_a_huge_update_does_not_stop_an_adaptive_optimizer_without_a_word(algorithm):
    """Its square is not finite, so the step would be zero there ever after."""
    server = Server(algorithm, Ledger(Schedule(1, 1), 3), Model(torch.zeros(5), torch.zeros(2)))
    (job,) = server.start()
    received = server.receive(make_update(job, server.model))
    with pytest.raises(Diverged, match="step 2 gave an optimizer's memory that is not finite"):
        server.receive(make_update(received.jobs[0], server.model, delta=torch.tensor([1e25, 1, 1, 1, 1])))
