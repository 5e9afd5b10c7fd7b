"""The server: which updates it accepts, and what jobs start from."""

from dataclasses import replace

import pytest
import torch

from fadas.algorithms.algorithm import Algorithm
from fadas.algorithms.combine import Mixing
from fadas.algorithms.optimizers import Torch
from fadas.algorithms.presets import CA2FL, FADAS, FedAdagrad, FedAdam, FedYogi
from fadas.algorithms.step_sizes import Constant
from fadas.core.ledger import Job, Ledger, Schedule
from fadas.core.model import Model, Update
from fadas.core.server import Server
from fadas.errors import Diverged, NoUsableUpdates
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


ADAPTIVE = [FADAS(), FedAdam(), FedYogi(), FedAdagrad()]
HUGE = torch.tensor([1e25, 1, 1, 1, 1])  # its square is not finite, so every later step would be zero there


@pytest.mark.parametrize("algorithm", ADAPTIVE, ids=repr)
@pytest.mark.parametrize("buffer", [1, 3])
def test_huge_update_that_fills_buffer_is_refused(algorithm, buffer):
    server = Server(algorithm, Ledger(Schedule(3, buffer), 5), Model(torch.zeros(5), torch.zeros(2)))
    jobs = server.start()
    for _ in range(buffer):
        jobs += server.receive(make_update(jobs.pop(0), server.model)).jobs
    for _ in range(buffer - 1):
        jobs += server.receive(make_update(jobs.pop(0), server.model)).jobs
    before, buffered = server.state, server.buffer
    received = server.receive(make_update(jobs.pop(0), server.model, delta=HUGE))
    assert (received.refused, received.step, received.removed) == ("step not finite", None, [])
    assert server.state is before
    assert server.buffer == buffered
    assert server.refused == {"step not finite": 1}
    (job,) = received.jobs
    assert server.receive(make_update(job, server.model)).step.index == 1


@pytest.mark.parametrize("algorithm", ADAPTIVE, ids=repr)
def test_huge_update_in_buffer_is_retracted_and_run_goes_on(algorithm):
    server = Server(algorithm, Ledger(Schedule(4, 3), 6), Model(torch.zeros(5), torch.zeros(2)))
    jobs = server.start()
    bad = jobs[0]
    jobs += server.receive(make_update(jobs.pop(0), server.model, delta=HUGE)).jobs
    jobs += server.receive(make_update(jobs.pop(0), server.model)).jobs
    before = server.state
    received = server.receive(make_update(jobs.pop(0), server.model))
    assert (received.refused, received.step, received.retracted) == (None, None, [bad])
    assert server.state is before
    assert bad not in server.ledger.buffer
    assert len(server.buffer) == 2
    jobs += received.jobs
    assert server.receive(make_update(jobs.pop(0), server.model)).step
    assert server.model.params.isfinite().all()


def test_step_with_mostly_huge_updates_raises_diverged():
    server, jobs = make_server(buffer=3)
    server.receive(make_update(jobs[0], server.model, delta=HUGE))
    server.receive(make_update(jobs[1], server.model, delta=HUGE))
    with pytest.raises(Diverged, match="step 1 gave an optimizer's memory that is not finite"):
        server.receive(make_update(jobs[2], server.model))


def test_longest_update_is_refused_if_only_all_together_overflow():
    server = Server(CA2FL(), Ledger(Schedule(3, 3), 6), Model(torch.zeros(5), torch.zeros(2)))
    one = torch.tensor([1.0, 0, 0, 0, 0])
    server.state = before = replace(server.state, slots={"h.sum": 3e38 * one})
    jobs = server.start()
    server.receive(make_update(jobs[0], server.model, delta=0.15e38 * one))
    server.receive(make_update(jobs[1], server.model, delta=0.2e38 * one))
    received = server.receive(make_update(jobs[2], server.model, delta=0.1e38 * one))
    assert received.retracted == [jobs[1]]
    assert server.state is before
    (job, *_) = received.jobs
    assert server.receive(make_update(job, server.model, delta=0.0 * one)).step


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


def test_accepted_update_ends_streak_of_refusals():
    """A run that gives up says which client its last updates came from, not which clients it ever refused."""
    server, jobs = make_server()
    assert server.receive(make_update(jobs[1], server.model, delta=NOT_FINITE)).refused
    server.receive(make_update(jobs[0], server.model))
    assert server.receive(make_update(jobs[2], server.model, examples=0)).refused
    error = server.gave_up(1)
    assert isinstance(error, NoUsableUpdates)
    assert f"all of client {jobs[2].client}, and a step needs more clients" in str(error)


def test_step_is_undone_as_often_as_patience_allows():
    model = Model(torch.zeros(5), torch.zeros(2))
    server = Server(FADAS(), Ledger(Schedule(1, 1), 6), model)
    (job,) = server.start()
    for _ in range(120):  # 100 + 20 * M_c
        received = server.receive(make_update(job, model, delta=HUGE))
        assert received.refused == "step not finite"
        (job,) = received.jobs
    with pytest.raises(Diverged, match="step 1 gave an optimizer's memory that is not finite"):
        server.receive(make_update(job, model, delta=HUGE))


def test_step_that_spoils_memory_of_a_torch_optimizer_is_undone():
    server = Server(
        Algorithm(optimizer=Torch("Adam")), Ledger(Schedule(4, 1), 6), Model(torch.zeros(5), torch.zeros(0))
    )
    (job, *_) = server.start()
    received = server.receive(make_update(job, server.model, delta=HUGE))
    assert received.refused == "step not finite"
    assert server.receive(make_update(received.jobs[0], server.model)).step
