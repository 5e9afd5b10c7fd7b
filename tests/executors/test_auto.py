"""Which executor `auto` chooses."""

from dataclasses import replace

import pytest
import torch

import fadas
from fadas.executors import EXECUTORS, Batched, Inline, Processes
from fadas.simulation import preflight
from fadas.training.batched import many_jobs
from fadas.training.sgd import LocalSGD
from helpers.training import LOCAL, make_plan, make_task

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.forks
def test_auto_does_not_fork_beside_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    with pytest.raises(ValueError, match="CUDA_VISIBLE_DEVICES"):
        Processes(make_task(), LOCAL, 0)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    task = make_task(batchnorm=True)
    assert isinstance(EXECUTORS["auto"](task, LOCAL, 0), Inline)
    monkeypatch.undo()
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    assert isinstance(EXECUTORS["auto"](task, LOCAL, 0), Processes)


def test_auto_tries_stacking_once_and_only_before_the_run(monkeypatch):
    trained = []
    for module in (many_jobs, preflight):
        count = lambda *arguments, train=module.train_job: trained.append(arguments[4]) or train(*arguments)  # noqa: E731
        monkeypatch.setattr(module, "train_job", count)
    Batched(make_task(), LOCAL, 0)
    assert not trained, "a constructor only builds"
    algorithm = fadas.FADAS()
    simulation = fadas.simulate(make_plan(algorithm), make_task(), algorithm, LOCAL)
    assert isinstance(simulation.executor, Batched)
    assert len(trained) == 4, "one local step for the checks, and three jobs to compare with"
    list(simulation)
    assert len(trained) == 4


@pytest.mark.forks
@pytest.mark.parametrize(
    ("wide", "batch", "cores", "kind"),
    [
        (30, 300, 2, Batched),
        (30, 300, 8, Batched),
        (1000, 300, 2, Batched),
        (1000, 300, 8, Processes),
        (6000, 300, 2, Processes),
        (60_000, 3, 2, Processes),  # too many parameters
    ],
)
def test_auto_stacks_small_chains_or_with_few_cores(monkeypatch, wide, batch, cores, kind):
    task = make_task()
    task.model = lambda: torch.nn.Sequential(torch.nn.Linear(6, wide), torch.nn.ReLU(), torch.nn.Linear(wide, 3))
    task.clients = [[column.repeat(100, *[1] * (column.dim() - 1)) for column in data] for data in task.clients]
    task = replace(task)
    monkeypatch.setattr(torch, "get_num_threads", lambda: cores)
    executor = EXECUTORS["auto"](task, LocalSGD(batch_size=batch), 0)
    assert isinstance(executor, kind)
    if isinstance(executor, Batched):
        assert executor._threads == (1 if wide == 30 else cores)
