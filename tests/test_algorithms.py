"""Combine rules, step sizes and presets against values worked out by hand."""

import math
from dataclasses import replace
from itertools import pairwise

import pytest
import torch

from fadas.algorithms.algorithm import Algorithm
from fadas.algorithms.combine import COMBINES, Calibrated, ExampleWeighted, Mean, Mixing, StalenessWeighted
from fadas.algorithms.optimizers import SGD
from fadas.algorithms.presets import ALGORITHMS, CA2FL, FADAS, FADAS_DA, FedAMS, FedAsync, FedAvg, FedBuff
from fadas.algorithms.step_sizes import STEP_SIZES, Constant, DelayAdaptive, Hinge, Polynomial
from fadas.core.ledger import Job, Schedule, Step
from fadas.core.model import Model, ServerState, Update
from fadas.simulation.planner import plan
from fadas.simulation.simulator import simulate
from fadas.training.sgd import LocalSGD
from helpers.training import make_task
from helpers.updates import STEP, TWO_UPDATES, make_state, make_updates


def test_means():
    x = make_state(1.0, 1.0)
    assert Mean()(x, STEP, TWO_UPDATES, 9)[0].tolist() == [2.0, 0.0]
    assert ExampleWeighted()(x, STEP, TWO_UPDATES, 9)[0].tolist() == [2.5, -1.0]
    # delays 0 and 3: weights 1 and 1/2
    assert StalenessWeighted()(x, STEP, TWO_UPDATES, 9)[0].tolist() == [1.25, 0.5]
    assert StalenessWeighted(normalize=True)(x, STEP, TWO_UPDATES, 9)[0].tolist() == pytest.approx([2.5 / 1.5, 1 / 1.5])


def test_mixing_goes_to_the_clients_models():
    # trained models [1, 2] and [8, 3]; their mean [4.5, 2.5]; from x = [1, 1]
    assert Mixing()(make_state(1.0, 1.0), STEP, TWO_UPDATES, 9)[0].tolist() == [3.5, 1.5]


def test_ca2fl_over_three_steps():
    """N = 4. h_i starts at zero; v_t = h + mean(delta_i - h_i); then h_i = delta_i and h = mean over all N."""
    calibrated, slots = Calibrated(), {}

    def play(*rows):
        step, ups = make_updates(*((client, 0, delta, 1, [0.0]) for client, delta in rows))
        combined, new = calibrated(make_state(0.0, **slots), step, ups, 4)
        slots.update(new)
        return combined.item()

    assert play((0, [4.0]), (1, [8.0])) == 6.0  # 0 + (4 + 8) / 2;           then h = (4 + 8) / 4 = 3
    assert play((0, [2.0]), (2, [4.0])) == 3.0 + ((2 - 4) + (4 - 0)) / 2  # then h = (2 + 8 + 4) / 4 = 3.5
    assert slots["h.sum"].item() == 14
    # client 1 reports twice: both compared to h_1 = 8, the later one remembered
    before = slots["h.sum"]
    assert play((1, [6.0]), (1, [12.0])) == 3.5 + ((6 - 8) + (12 - 8)) / 2  # then h = (2 + 12 + 4) / 4 = 4.5
    assert slots["h.sum"].item() == 18
    assert before.item() == 14, "the old sum was written to"
    assert slots["h.1"].item() == 12.0


def test_ca2fl_while_clients_join():
    """What a client reported when there were few of them weighs no more than what it reports later."""
    calibrated, slots = Calibrated(), {}
    for clients, delta in ((1, 1.0), (10, 0.0), (10, 0.0)):
        step, ups = make_updates((0, 0, [delta], 1, [0.0]))
        combined, new = calibrated(make_state(0.0, **slots), step, ups, clients)
        slots.update(new)
    assert combined.item() == 0


def test_delay_adaptive_forms():
    scaled, capped = DelayAdaptive(0.5, 4), DelayAdaptive(0.5, 4, "capped")
    for size in (scaled, capped):
        assert size([0, 4, 1]) == 0.5, "at the threshold the step is whole"
    assert scaled([0, 5]) == pytest.approx(0.1)
    assert capped([0, 5]) == pytest.approx(0.2)
    assert DelayAdaptive(0.01, 4, "capped")([5]) == 0.01, "1/tau does not cut a small eta"
    assert DelayAdaptive(0.01, 0)([1]) == 0.01


def test_fedasync_step_sizes():
    assert Constant(0.6)([50]) == 0.6
    hinge = Hinge(0.6, a=10, b=4)
    assert hinge([4]) == 0.6
    assert hinge([6]) == pytest.approx(0.6 / 21)
    polynomial = Polynomial(0.6, a=0.5)
    assert polynomial([0]) == 0.6
    assert polynomial([0, 3, 1]) == pytest.approx(0.3)
    assert hinge([0, 6]) == pytest.approx(0.6 / 21)
    assert FedAsync(staleness="hinge").step_size == Hinge(0.6, 10.0, 4)
    assert FedAsync().step_size == Polynomial(0.6, 0.5)


@pytest.mark.parametrize(
    ("staleness", "alpha"), [("constant", 0.5), ("hinge", 0.5 / (0.5 * 2 + 1)), ("polynomial", 0.5 / math.sqrt(4))]
)
def test_fedasync_mixes_the_model_in(staleness, alpha):
    algorithm = FedAsync(0.5, staleness, a=0.5, b=1)
    step, one = make_updates((7, 0, [2.0, 4.0], 1, [1.0, -1.0]))
    after = algorithm.apply(make_state(10.0, 20.0), step, one, 9)
    expected = [(1 - alpha) * 10 + alpha * 3, (1 - alpha) * 20 + alpha * 3]
    assert after.model.params.tolist() == pytest.approx(expected)
    assert algorithm.schedule(25, 5) == Schedule(25, 1, "update")
    with pytest.raises(ValueError, match="staleness"):
        FedAsync(staleness="linear")


def test_fadas_is_amsgrad_on_the_mean():
    after = FADAS(eta=0.1).apply(make_state(1.0, 1.0), STEP, TWO_UPDATES, 9)
    # mean [2, 0]: m = 0.1 * 2, vhat = 0.01 * 4, step 0.1 * 0.2 / 0.2
    assert after.model.params.tolist() == pytest.approx([1.1, 1.0])
    assert after.version == 4
    late = FADAS_DA(eta=0.1, tau_c=2).apply(make_state(1.0, 1.0), STEP, TWO_UPDATES, 9)  # tau_max = 3
    assert late.model.params.tolist() == pytest.approx([1 + 0.1 / 3, 1.0])


def test_buffers_are_averaged_and_never_pass_through_the_optimizer():
    model = Model(torch.zeros(1), torch.tensor([100.0]))
    ups = [Update(Job(k, k, 0), torch.ones(1), torch.tensor([b]), torch.zeros(1), 1) for k, b in enumerate((2.0, 6.0))]
    step = Step(0, tuple(u.job for u in ups))
    for make in (FADAS, FedBuff, FedAsync, CA2FL, FedAvg):
        assert make().apply(ServerState(0, model), step, ups, 2).model.buffers.tolist() == [4.0]


def test_the_mean_of_equal_buffers_is_what_they_are():
    """Frozen weights, in a deployment: they must not creep away by rounding."""
    frozen = torch.randn(1000, generator=torch.Generator().manual_seed(0))
    for many in (3, 7, 8, 10):
        ups = [Update(Job(k, k, 0), torch.ones(1), frozen, torch.zeros(1), 1) for k in range(many)]
        after = FADAS().apply(ServerState(0, Model(torch.zeros(1), frozen)), Step(0, tuple(u.job for u in ups)), ups, 9)
        assert torch.equal(after.model.buffers, frozen)


def test_presets_schedules():
    for make in (FADAS, FADAS_DA, FedBuff, CA2FL):
        assert make().schedule(25, 5) == Schedule(25, 5, "arrival")
    assert FedAvg().schedule(25, 5) == Schedule(25, 25, "round")
    assert FedAMS().schedule(5, 10) == Schedule(5, 5, "round")
    with pytest.raises(ValueError, match="exceeds concurrency"):
        Schedule(5, 10, "round")


@pytest.mark.parametrize("name", ALGORITHMS)
def test_contract(name):
    """Every algorithm: pure, one version further, moves the model, remembers tensors, repeats itself exactly."""
    algorithm = ALGORITHMS[name]()
    assert isinstance(algorithm, Algorithm)
    before = make_state(1.0, 1.0)
    kept = [u.delta.clone() for u in TWO_UPDATES]
    one, two = (algorithm.apply(before, STEP, TWO_UPDATES, 9) for _ in range(2))
    assert one.version == 4
    assert torch.equal(one.model.params, two.model.params)
    assert not torch.equal(one.model.params, before.model.params)
    assert before.model.params.tolist() == [1.0, 1.0]
    assert all(torch.equal(u.delta, k) for u, k in zip(TWO_UPDATES, kept, strict=True))
    slots = {key: slot.clone() for key, slot in one.slots.items()}
    algorithm.apply(one, STEP, TWO_UPDATES, 9)
    assert all(torch.equal(slots[key], slot) for key, slot in one.slots.items())
    assert algorithm.step_size(STEP.delays) > 0
    assert algorithm.schedule(8, 4).concurrency == 8


@pytest.mark.parametrize("name", COMBINES)
def test_contract_of_combine_rules(name):
    """Every combine rule: pure, a vector as long as the parameters, remembers tensors only, repeats itself exactly."""
    if name == "private":
        pytest.importorskip("dp_accounting")
    combine, before = COMBINES[name](), make_state(1.0, 1.0)
    step, three = make_updates(*((k, k, [1.0 + k, -2.0], 10 + k, [0.0, 1.0]) for k in range(3)))
    kept = [u.delta.clone() for u in three]
    (one, slots), (two, _) = (combine(before, step, three, 9) for _ in range(2))
    assert one.shape == before.model.params.shape
    assert torch.equal(one, two)
    assert all(isinstance(slot, torch.Tensor) for slot in slots.values())
    assert before.model.params.tolist() == [1.0, 1.0]
    assert all(torch.equal(u.delta, k) for u, k in zip(three, kept, strict=True))
    remembered = {key: slot.clone() for key, slot in slots.items()}
    combine(replace(before, slots=slots), step, three, 9)
    assert all(torch.equal(remembered[key], slot) for key, slot in slots.items()), "a slot was written in place"


@pytest.mark.parametrize("name", STEP_SIZES)
def test_contract_of_step_sizes(name):
    """Every step size: positive, eta where there is no delay, and never larger for a longer one."""
    size = STEP_SIZES[name](**{"delay-adaptive": {"eta": 0.6, "tau_c": 4}}.get(name, {"eta": 0.6}))
    sizes = [size([0, tau]) for tau in range(50)]
    assert sizes[0] == 0.6
    assert all(0 < later <= earlier for earlier, later in pairwise(sizes))


@pytest.mark.parametrize(
    "make",
    [
        lambda: FADAS(eta=-1),
        lambda: FADAS(eta=0),
        lambda: FADAS_DA(tau_c=-1),
        lambda: FADAS_DA(form="both"),
        lambda: FedAsync(alpha=math.nan),
        lambda: Hinge(a=-1),
    ],
)
def test_bad_parameters(make):
    with pytest.raises(ValueError, match="must"):
        make()


def test_statistics_below_one_are_a_running_average_and_training_does_not_see_them():
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
        if record.step == 1:  # later ones differ in what clients start from, too
            torch.testing.assert_close(other.buffers, initial + 0.25 * (one.buffers - initial))
    for weight in (0.0, -1.0, 1.5, float("nan")):
        with pytest.raises(ValueError, match="statistics"):
            Algorithm(statistics=weight)


def test_a_combine_rule_and_an_optimizer_may_not_remember_under_one_name():
    class Hoarder:
        def __call__(self, state, step, updates, clients):
            return updates[0].delta, {"m": updates[0].delta}

    update = Update(Job(0, 0, 0), torch.ones(2), torch.zeros(0), torch.zeros(2), 1)
    state = ServerState(0, Model(torch.zeros(2), torch.zeros(0)))
    step = Step(0, (update.job,))
    Algorithm(Hoarder()).apply(state, step, [update], 1)
    with pytest.raises(ValueError, match="both remember something as 'm'"):
        Algorithm(Hoarder(), SGD(momentum=0.9)).apply(state, step, [update], 1)
