"""What holds for every algorithm."""

from dataclasses import replace

import pytest
import torch

from fadas.algorithms.algorithm import Algorithm
from fadas.algorithms.optimizers import SGD
from fadas.algorithms.presets import ALGORITHMS, CA2FL, FADAS, FedAsync, FedAvg, FedBuff
from fadas.core.ledger import Job, Step
from fadas.core.model import Model, ServerState, Update
from fadas.simulation.planner import plan
from fadas.simulation.simulator import simulate
from fadas.training.sgd import LocalSGD
from helpers.training import make_task
from helpers.updates import STEP, TWO_UPDATES, delayed_step, make_state, with_vectors


def test_buffers_are_averaged_without_optimizer():
    model = Model(torch.zeros(1), torch.tensor([100.0]))
    ups = [Update(Job(k, k, 0), torch.ones(1), torch.tensor([b]), torch.zeros(1), 1) for k, b in enumerate((2.0, 6.0))]
    step = Step(0, tuple(u.job for u in ups))
    for algorithm in (FADAS(), FedBuff(), CA2FL(), FedAvg(), replace(FedAsync(), statistics=1.0)):
        assert algorithm.apply(ServerState(0, model), step, ups, 2).model.buffers.tolist() == [4.0]
    mixed = FedAsync(alpha=0.6).apply(ServerState(0, model), step, ups, 2).model.buffers
    assert mixed.item() == pytest.approx(0.4 * 100 + 0.6 * 4), "FedAsync mixes them, as it mixes models"


def test_mean_of_equal_buffers_is_exact():
    """Frozen weights of a deployment must not drift by rounding."""
    frozen = torch.randn(1000, generator=torch.Generator().manual_seed(0))
    for many in (3, 7, 8, 10):
        ups = [Update(Job(k, k, 0), torch.ones(1), frozen, torch.zeros(1), 1) for k in range(many)]
        after = FADAS().apply(ServerState(0, Model(torch.zeros(1), frozen)), Step(0, tuple(u.job for u in ups)), ups, 9)
        assert torch.equal(after.model.buffers, frozen)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_algorithm_keeps_contract(name):
    """Pure, one version further, moves the model, remembers tensors, repeats exactly."""
    algorithm = ALGORITHMS[name]()
    assert isinstance(algorithm, Algorithm)
    before, updates = with_vectors(algorithm, make_state(1.0, 1.0), TWO_UPDATES)
    kept = [u.delta.clone() for u in TWO_UPDATES]
    one, two = (algorithm.apply(before, STEP, updates, 9) for _ in range(2))
    assert one.version == 4
    assert torch.equal(one.model.params, two.model.params)
    assert not torch.equal(one.model.params, before.model.params)
    assert before.model.params.tolist() == [1.0, 1.0]
    assert all(torch.equal(u.delta, k) for u, k in zip(TWO_UPDATES, kept, strict=True))
    slots = {key: slot.clone() for key, slot in one.slots.items()}
    assert set(one.model.vectors) == set(algorithm.exchange.sends)
    algorithm.apply(one, STEP, updates, 9)
    assert all(torch.equal(slots[key], slot) for key, slot in one.slots.items())
    assert algorithm.step_size(delayed_step(STEP.delays, STEP.index)) > 0
    assert algorithm.schedule(8, 4).concurrency == (1 if name == "centralised" else 8)


def test_statistics_below_one_average_buffers_but_not_parameters():
    task = make_task(batchnorm=True, sizes=(4, 17, 30, 8))
    local = LocalSGD(lr=0.1, epochs=1, batch_size=6)
    p = plan(FADAS().schedule(4, 2), 8, steps=6, seed=1)
    plain, running = (
        simulate(p, task, replace(FADAS(), statistics=weight), local, executor="inline") for weight in (1.0, 0.25)
    )
    initial = plain.server.model.buffers
    for record, _ in zip(plain, running, strict=True):
        one, other = plain.server.model, running.server.model
        assert torch.equal(one.params, other.params)
        assert not torch.allclose(one.buffers, other.buffers)
        if record.step == 1:  # in later steps, clients start from other models too
            torch.testing.assert_close(other.buffers, initial + 0.25 * (one.buffers - initial))
    for weight in (0.0, -1.0, 1.5, float("nan")):
        with pytest.raises(ValueError, match="statistics"):
            Algorithm(statistics=weight)


def test_slot_name_used_twice_is_refused():
    class Hoarder:
        def __call__(self, state, step, updates, clients):
            return updates[0].delta, {"m": updates[0].delta}

    update = Update(Job(0, 0, 0), torch.ones(2), torch.zeros(0), torch.zeros(2), 1)
    state = ServerState(0, Model(torch.zeros(2), torch.zeros(0)))
    step = Step(0, (update.job,))
    Algorithm(Hoarder()).apply(state, step, [update], 1)
    with pytest.raises(ValueError, match="both use the slot 'm'"):
        Algorithm(Hoarder(), SGD(momentum=0.9)).apply(state, step, [update], 1)
