"""The server: which updates it accepts, and what jobs start from."""

import pytest
import torch

from fadas.algorithms.algorithm import Algorithm
from fadas.algorithms.combine import Mixing
from fadas.algorithms.presets import FADAS, FedAdagrad, FedAdam, FedYogi
from fadas.algorithms.step_sizes import Constant
from fadas.core.ledger import Job, Ledger, Schedule
from fadas.core.model import Model, Update
from fadas.core.server import Server
from fadas.errors import Diverged
from fadas.training.flat_module import FlatModule
from helpers.training import make_task
from helpers.updates import NOT_FINITE, make_server, make_update


def test_update_of_job_not_running_is_refused():
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
def test_huge_update_raises_diverged_on_adaptive_optimizer(algorithm):
    """The square of the update is not finite, so every later step would be zero there."""
    server = Server(algorithm, Ledger(Schedule(1, 1), 3), Model(torch.zeros(5), torch.zeros(2)))
    (job,) = server.start()
    received = server.receive(make_update(job, server.model))
    with pytest.raises(Diverged, match="step 2 gave an optimizer's memory that is not finite"):
        server.receive(make_update(received.jobs[0], server.model, delta=torch.tensor([1e25, 1, 1, 1, 1])))


def test_mixing_uses_late_client_models_under_released_schedule():
    """Mixing takes the mean of the trained models. The last client of a round is up to date, even after a drop."""
    task, algorithm = make_task(), Algorithm(Mixing(), step_size=Constant(0.5))
    schedule = Schedule(5, 3, "released")
    server = Server(algorithm, Ledger(schedule, 8, seed=1), FlatModule(task.module(1)).read())
    jobs = server.start()
    server.drop(jobs.pop(0))
    for version in range(3):
        before = server.model
        jobs = sorted(server.ledger.running.values())[:3]
        trained = [torch.full_like(before.params, float(job.id)) for job in jobs]
        for job, params in zip(jobs, trained, strict=True):
            base = server.base[job.id]
            received = server.receive(Update(job, params - base.params, base.buffers, base.params, 1, {"loss": 0.0}))
        expected = before.params + 0.5 * (torch.stack(trained).mean(0) - before.params)
        torch.testing.assert_close(server.model.params, expected)
        assert server.state.version == version + 1
        assert [server.base[job.id] is before for job in received.jobs] == [True, True, False]
        assert [job.version for job in received.jobs] == [version + 1] * 3
