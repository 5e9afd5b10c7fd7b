"""What faults do to updates."""

import copy

import pytest
import torch

from fadas.algorithms.presets import FedBuff
from fadas.simulation.faults import Fault
from helpers.training import make_faulty_simulation, make_task


def test_noise_and_flips_are_seeded_and_scaled():
    task = make_task()
    flipped = make_faulty_simulation(task, FedBuff(), faults=(Fault("flip", scale=2.0),), steps=1)
    honest = make_faulty_simulation(task, FedBuff(), steps=1)
    start = copy.deepcopy(honest.server.model.params)
    list(flipped), list(honest)
    torch.testing.assert_close(flipped.server.model.params - start, -2 * (honest.server.model.params - start))
    runs = [make_faulty_simulation(task, FedBuff(), faults=(Fault("noise", scale=3.0),), steps=1) for _ in range(2)]
    for run in runs:
        list(run)
    assert torch.equal(runs[0].server.model.params, runs[1].server.model.params)
    noise = runs[0].server.model.params - honest.server.model.params  # the mean of three
    assert float(noise.std()) == pytest.approx(3 / 3**0.5, rel=0.25)
