"""The global BatchNorm statistics: averaged over a step, or mixed like the parameters."""

import pytest
import torch

import fadas
from fadas.algorithms import Constant, Mean, Mixing
from fadas.core.ledger import Job, Step
from fadas.core.model import Model, ServerState, Update
from helpers.training import LOCAL, make_plan, make_task


def mix_once(algorithm, eta=0.25):
    x, buffers = torch.zeros(2), torch.tensor([1.0, 4.0])
    update = Update(Job(0, 0, 0), torch.ones(2), torch.tensor([3.0, 0.0]), x, 5)
    return algorithm.apply(ServerState(0, Model(x, buffers)), Step(0, (update.job,)), [update], 4, eta).model


def test_fedasync_mixes_statistics_with_weight_of_parameters():
    model = mix_once(fadas.FedAsync())
    assert model.params.tolist() == [0.25, 0.25]
    assert model.buffers.tolist() == [1.5, 3.0]  # 3/4 of the old statistics, 1/4 of the client's


def test_other_rules_replace_statistics_by_mean():
    assert mix_once(fadas.FedBuff()).buffers.tolist() == [3.0, 0.0]
    assert mix_once(fadas.Algorithm(Mean(), step_size=Constant(0.5))).buffers.tolist() == [3.0, 0.0]


def test_explicit_statistics_take_precedence():
    assert mix_once(fadas.Algorithm(Mixing(), statistics=1.0)).buffers.tolist() == [3.0, 0.0]
    assert mix_once(fadas.Algorithm(Mixing(), statistics=0.5)).buffers.tolist() == [2.0, 2.0]


def test_step_size_above_one_does_not_extrapolate_statistics():
    assert mix_once(fadas.Algorithm(Mixing()), eta=1.5).buffers.tolist() == [3.0, 0.0]


def test_fedasync_run_follows_mixing_by_hand():
    """An independent loop over the records of a run: the statistics after each step."""
    task = make_task(batchnorm=True)
    algorithm = fadas.FedAsync(alpha=0.6)
    plan = make_plan(algorithm, dropout=0.0, steps=10)
    simulation = fadas.simulate(plan, task, algorithm, LOCAL, executor="inline")
    expected = simulation.server.model.buffers.double()
    received, receive = [], simulation.server.receive

    def remember(update):
        received.append(update.buffers.double())
        return receive(update)

    simulation.server.receive = remember
    for record in simulation:
        tau = max(job.tau for job in record.jobs)
        weight = 0.6 * (1 + tau) ** -0.5
        assert record.eta == pytest.approx(weight)
        expected = (1 - weight) * expected + weight * received[-1]
    assert torch.allclose(simulation.server.model.buffers.double(), expected, rtol=1e-5)
