"""What faults do to updates."""

import copy

import pytest
import torch

from fadas.algorithms.presets import FedBuff
from fadas.core.ledger import Schedule
from fadas.core.model import Update
from fadas.simulation.delays import Delays, Uniform
from fadas.simulation.faults import Fault
from fadas.simulation.faulty_updates import apply_faults
from fadas.simulation.planner import plan
from helpers.training import make_faulty_simulation, make_task


def test_noise_and_flips_are_seeded_and_scaled():
    task = make_task()
    flipped = make_faulty_simulation(task, FedBuff(), faults=(Fault("flip", scale=2.0),), steps=1)
    honest = make_faulty_simulation(task, FedBuff(), steps=1)
    start = copy.deepcopy(honest.server.model.params)
    list(flipped), list(honest)
    torch.testing.assert_close(flipped.server.model.params - start, -2 * (honest.server.model.params - start))
    noises = []
    for scale in (3.0, 3.0, 6.0):
        run = make_faulty_simulation(task, FedBuff(), faults=(Fault("noise", scale=scale),), steps=1)
        list(run)
        noises.append(run.server.model.params - honest.server.model.params)
    assert torch.equal(noises[0], noises[1])
    torch.testing.assert_close(noises[2], 2 * noises[0], rtol=1e-4, atol=1e-5)


def add_noise(job, seed=1, scale=3.0, size=100_000):
    """What a noisy client of a plan with this seed makes of an update of zeros."""
    p = plan(Schedule(2, 1), 4, Delays(Uniform(), faults=(Fault("noise", scale=scale),)), steps=5, seed=seed)
    update = Update(p.job(job), torch.zeros(size), torch.zeros(0), torch.zeros(size), 1)
    return apply_faults(update, p).delta


def test_noise_has_stated_deviation_and_differs_between_jobs_and_seeds():
    noise = add_noise(0)
    assert float(noise.std()) == pytest.approx(3.0, rel=0.01)
    assert float(noise.mean()) == pytest.approx(0.0, abs=5 * 3.0 / 100_000**0.5)
    assert torch.equal(noise, add_noise(0))
    for other in (add_noise(1), add_noise(0, seed=2)):
        assert abs(float((noise * other).mean())) < 0.2, "they are independent"


def test_update_of_sound_client_is_unchanged():
    p = plan(Schedule(2, 1), 4, Delays(Uniform(), faults=(Fault("nan", (3,)), Fault("flip", (2,)))), steps=5)
    for job in range(4):
        update = Update(p.job(job), torch.ones(2), torch.zeros(0), torch.zeros(2), 1)
        after = apply_faults(update, p)
        if update.job.client in (2, 3):
            assert str(after.delta.tolist()) == ("[nan, nan]" if update.job.client == 3 else "[-1.0, -1.0]")
        else:
            assert after is update
