"""Which rows a client trains on: exact batches, and what is gathered."""

import pytest
import torch
from torch import nn

from fadas.algorithms.companions import ControlVariates, StepCount
from fadas.core.ledger import Job
from fadas.rng import BATCHES, mix
from fadas.tasks.task import Subsets, Task
from fadas.training.flat_module import FlatModule
from fadas.training.one_job import train_job
from fadas.training.schedules import Cosine
from fadas.training.sgd import LocalSGD, epoch_rows, job_seed
from helpers.training import make_task


@pytest.mark.parametrize(
    ("examples", "batch", "steps", "short"),
    [
        (12, 5, None, 2),
        (10, 5, None, 0),
        (3, 5, None, 3),
        (12, 5, 1, 0),
        (12, 5, 2, 0),  # the second full batch is the last one
        (12, 5, 3, 2),
        (12, 5, 9, 2),
        (10, 5, 9, 0),
        (3, 5, 1, 3),
    ],
)
def test_short_batch_is_what_remains_if_it_is_trained(examples, batch, steps, short):
    assert LocalSGD(batch_size=batch, steps=steps).short_batch(examples) == short


@pytest.mark.parametrize(
    ("local", "lengths"),
    [
        (LocalSGD(epochs=1, batch_size=5), [12]),
        (LocalSGD(epochs=3, batch_size=5), [12, 12, 12]),
        (LocalSGD(batch_size=5, steps=1), [5]),
        (LocalSGD(batch_size=5, steps=2), [10]),
        (LocalSGD(batch_size=5, steps=3), [12]),
        (LocalSGD(batch_size=5, steps=4), [12, 5]),
        (LocalSGD(batch_size=5, steps=7), [12, 12, 5]),
        (LocalSGD(batch_size=12, steps=2), [12, 12]),
        (LocalSGD(batch_size=50, epochs=2), [12, 12]),
    ],
)
def test_epochs_are_orders_of_the_examples(local, lengths):
    epochs = list(local.epochs_of(12, torch.Generator().manual_seed(1)))
    assert [len(order) for order in epochs] == lengths
    for order in epochs:
        assert len(set(order.tolist())) == len(order)


def test_job_seed_has_63_bits():
    assert job_seed(3, Job(5, 1, 0)) == mix(3, BATCHES, 5) >> 1 < 2**63
    assert max(job_seed(3, Job(id, 1, 0)) for id in range(50)) > 2**62


DATA = (torch.arange(20.0)[:, None], torch.arange(20) % 2)
PARTS = [torch.tensor([1, 3, 5]), torch.tensor([0, 2, 4, 6])]


def shift(inputs, generator):
    """Add 100, and in training something random beyond."""
    return [inputs[0] + 100 + (torch.rand(1, generator=generator) if generator else 0)]


def test_shared_data_are_not_gathered():
    task = Task(nn.Linear(1, 2), Subsets(DATA, PARTS))
    data, epochs = epoch_rows(task, LocalSGD(epochs=2), 0, Job(0, 1, 0), "cpu")
    assert data is task.clients.data
    assert [sorted(rows.tolist()) for rows in epochs] == [[0, 2, 4, 6]] * 2
    own = Task(nn.Linear(1, 2), [[column[part] for column in DATA] for part in PARTS])
    (inputs, targets), rows = epoch_rows(own, LocalSGD(epochs=2), 0, Job(0, 1, 0), "cpu")
    for shared, one in zip(epochs, rows, strict=True):
        assert torch.equal(DATA[0][shared], inputs[one])
        assert torch.equal(DATA[1][shared], targets[one])


@pytest.mark.parametrize("epochs", [1, 3])
def test_every_epoch_has_an_augmented_copy_of_its_own(epochs):
    task = Task(nn.Linear(1, 2), Subsets(DATA, PARTS), transform=shift)
    (inputs, targets), rows = epoch_rows(task, LocalSGD(epochs=epochs), 0, Job(0, 1, 0), "cpu")
    assert len(inputs) == len(targets) == 4 * epochs
    assert [sorted(order.tolist()) for order in rows] == [list(range(4 * k, 4 * k + 4)) for k in range(epochs)]
    noises = {round(float(inputs[4 * k, 0]), 6) for k in range(epochs)}
    assert len(noises) == epochs
    for k in range(epochs):
        shifted = inputs[4 * k : 4 * k + 4] - inputs[4 * k]
        assert shifted.flatten().tolist() == pytest.approx([0.0, 2.0, 4.0, 6.0], abs=1e-4)
        assert targets[4 * k : 4 * k + 4].tolist() == [0, 0, 0, 0]


def test_training_mode_and_loss_are_those_of_training():
    """Dropout of nearly everything would leave the loss of an untrained module in evaluation mode."""
    task = make_task(sizes=(17,))
    task.model = lambda: nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.999), nn.Linear(8, 3))
    from fadas.training.flat_module import FlatModule

    flat = FlatModule(task.module())
    flat.module.eval()
    start = flat.read()
    update = train_job(flat, task, LocalSGD(lr=1e-6, epochs=1, batch_size=17), 0, Job(0, 0, 0), start)
    assert flat.module.training
    flat.load(start)
    flat.module.eval()
    plain = float(nn.functional.cross_entropy(flat.module(task.clients[0][0]), task.clients[0][1]))
    assert abs(update.metrics["loss"] - plain) > 1e-3
    assert update.metrics.keys() == {"loss"}


class Mine(LocalSGD):
    """A trainer of the user's own."""


@pytest.mark.parametrize(
    ("local", "plain"),
    [
        (LocalSGD(), True),
        (LocalSGD(steps=3, weight_decay=0.0), True),
        (LocalSGD(mu=0.1), False),
        (LocalSGD(clip=1.0), False),
        (LocalSGD(schedule=Cosine(5)), False),
        (LocalSGD(warmup=1), False),
        (LocalSGD(decoupled=True), False),
        (LocalSGD(companion=ControlVariates()), False),
        (LocalSGD(companion=StepCount()), True),
        (LocalSGD(mu=0.1, clip=1.0, schedule=Cosine(5)), False),
        (Mine(), False),
    ],
)
def test_only_sgd_itself_is_plain(local, plain):
    assert local.is_plain is plain


@pytest.mark.parametrize("factor", [1e-300, 0.5, 1.0, 3.0])
def test_rate_follows_its_schedule(factor):
    local = LocalSGD(lr=0.5, schedule=lambda version: factor * version)
    assert local.for_job(Job(0, 0, 1), 5, 0) == LocalSGD(lr=0.5 * factor)
    plain = LocalSGD(lr=0.5)
    assert plain.for_job(Job(0, 0, 7), 5, 0) is plain


def test_steps_follow_their_law():
    def law(job, examples, seed):
        return job.id + 10 * job.client + 100 * examples + 1000 * seed

    assert LocalSGD(steps=law).for_job(Job(1, 2, 9), 3, 4) == LocalSGD(steps=4321)
    both = LocalSGD(lr=0.5, steps=law, schedule=lambda version: version / 2).for_job(Job(1, 2, 9), 3, 4)
    assert both == LocalSGD(lr=2.25, steps=4321)
    with pytest.raises(ValueError, match="the number of local steps depends on the job"):
        LocalSGD(steps=law).batches(5)
    assert LocalSGD(steps=law, batch_size=4).short_batch(10) == 2


@pytest.mark.parametrize("factor", [0.0, -1.0, float("inf"), float("nan")])
def test_schedule_that_is_not_positive_is_refused(factor):
    with pytest.raises(ValueError, match=f"the schedule of the local rate must be positive, got {factor} at version 4"):
        LocalSGD(schedule=lambda version: factor).for_job(Job(0, 0, 4), 5, 0)


def test_gradients_are_shortened_and_never_lengthened():
    local = LocalSGD(clip=2.0)
    assert local.shorten(torch.tensor([0.0, 0.5, 2.0, 8.0])).tolist() == [1.0, 1.0, 1.0, 0.25]
    assert LocalSGD().shorten(torch.tensor([8.0])).tolist() == [1.0]
    grads = torch.tensor([0.6, 0.8])
    local.prepare(torch.zeros(2), grads, torch.zeros(2))
    assert grads.tolist() == pytest.approx([0.6, 0.8])
    grads = torch.tensor([3.0, 4.0])
    local.prepare(torch.zeros(2), grads, torch.zeros(2))
    assert grads.tolist() == pytest.approx([1.2, 1.6])


def test_proximal_term_points_to_the_start():
    params, start = torch.tensor([1.0, 2.0]), torch.tensor([0.0, 4.0])
    grads = torch.zeros(2)
    LocalSGD(mu=0.5).prepare(params, grads, start)
    assert grads.tolist() == [0.5, -1.0]
    LocalSGD().attract(params, grads, start)
    assert grads.tolist() == [0.5, -1.0]


def test_job_on_the_cpu_seeds_no_other_device(monkeypatch):
    """Seeding all devices would cost more than a step of a small network."""
    task, seeded = make_task(), []
    flat = FlatModule(task.module(0))
    start = flat.read()
    monkeypatch.setattr(torch, "manual_seed", seeded.append)
    train_job(flat, task, LocalSGD(epochs=1), 0, Job(0, 0, 0), start)
    assert seeded == []


def test_steps_of_a_job_are_numbered_from_one():
    class Numbering(LocalSGD):
        seen = []

        def step(self, params, grads, state, t):
            self.seen.append(t)

    task = make_task()
    flat = FlatModule(task.module(0))
    train_job(flat, task, Numbering(steps=3), 0, Job(0, 0, 0), flat.read())
    assert Numbering.seen == [1, 2, 3]
    assert LocalSGD.elementwise is True
