"""Differential privacy: clipping, noise and the accountant."""

import itertools
import math

import pytest
import torch

from fadas.algorithms.algorithm import Algorithm
from fadas.algorithms.optimizers import AMSGrad
from fadas.algorithms.privacy import Private, Spending, epsilon
from fadas.algorithms.step_sizes import Constant
from fadas.simulation.delays import Delays, Large
from fadas.simulation.planner import plan
from fadas.simulation.simulator import simulate
from fadas.training.sgd import LocalSGD
from helpers.training import make_task
from helpers.updates import combine_deltas

pytest.importorskip("dp_accounting")


def test_clip_shortens_deltas():
    """With almost no noise, the result is the mean of the deltas, each at most `clip` long."""
    deltas = [torch.tensor([3.0, 4.0]), torch.tensor([0.3, 0.4]), torch.zeros(2)]
    result = combine_deltas(Private(clip=1.0, noise=1e-9), deltas)
    torch.testing.assert_close(result, torch.tensor([0.6 + 0.3, 0.8 + 0.4]) / 3)


@pytest.mark.parametrize(("clip", "noise", "count"), [(1.0, 1.0, 1), (0.5, 2.0, 10), (3.0, 0.7, 4)])
def test_noise_has_stated_scale_and_is_seeded(clip, noise, count):
    deltas = [torch.zeros(100_000)] * count
    rule = Private(clip, noise)
    one = combine_deltas(rule, deltas, index=3, seed=7)
    assert float(one.std()) == pytest.approx(noise * clip / count, rel=0.02)
    assert float(one.mean()) == pytest.approx(0.0, abs=5 * noise * clip / count / math.sqrt(100_000))
    assert torch.equal(one, combine_deltas(rule, deltas, index=3, seed=7))
    for index, seed in ((4, 7), (3, 8)):
        other = combine_deltas(rule, deltas, index, seed)
        assert abs(float((one * other).mean())) < 0.02 * float(one.square().mean())


def test_epsilon_bounds_analytic_gaussian_mechanism():
    """The accountant's bound lies slightly above the exact epsilon of the composed mechanism."""

    def find_exact_epsilon(noise, delta, steps):
        mu = math.sqrt(steps) / noise

        def find_delta(eps):
            def phi(x):
                return 0.5 * math.erfc(-x / math.sqrt(2))

            return phi(-eps / mu + mu / 2) - math.exp(eps) * phi(-eps / mu - mu / 2)

        low, high = 0.0, 200.0
        for _ in range(100):
            middle = (low + high) / 2
            low, high = (middle, high) if find_delta(middle) > delta else (low, middle)
        return high

    for noise, steps, expected in ((1.0, 1, 4.7285), (2.0, 10, 8.0794), (4.0, 100, 14.1322)):
        truth = find_exact_epsilon(noise, 1e-5, steps)
        assert truth < epsilon(noise, 1e-5, steps) < 1.09 * truth
        assert epsilon(noise, 1e-5, steps) == pytest.approx(expected, rel=0.002), "one step in 100 is noticed"


def test_spending_follows_most_frequent_client():
    spending = Spending(Private(1.0, 2.0))
    spending.add([1, 2, 3])
    assert spending.spent == {"epsilon": epsilon(2.0, 1e-5, 1), "delta": 1e-5}
    spending.add([1, 1, 4])  # two updates in one buffer count four times
    assert spending.spent["epsilon"] == epsilon(2.0, 1e-5, 5)
    spending.add([7, 8, 9])
    assert spending.spent["epsilon"] == epsilon(2.0, 1e-5, 5)


def test_newcomer_is_charged_like_any_known_client():
    """A newcomer may be any earlier client. It must be charged no less than that client would be."""
    for size, before, after in itertools.product((1, 2, 4), range(3), range(3)):
        if before + after <= size:
            one, renamed = Spending(Private()), Spending(Private())
            for step in ([1, 2], [1, 1], [1] * (before + after)):
                one.add(step)
            for step in ([1, 2], [1, 1]):
                renamed.add(step)
            renamed.admit(3, [1] * before, size)  # client 1 has this many updates in the buffer
            renamed.add([1] * before + [3] * after)
            assert max(renamed.counts.values()) >= max(one.counts.values())
    spending = Spending(Private())
    spending.admit(0, [], 4)
    assert spending.counts[0] == 0, "nobody has spent anything at first"


def test_private_run_logs_spending_and_repeats():
    task = make_task()
    algorithm = Algorithm(Private(1.0, 0.5), AMSGrad(), Constant(0.01))
    p = plan(algorithm.schedule(4, 3), 8, Delays(Large()), steps=10, seed=1)

    def run_private():
        simulation = simulate(p, task, algorithm, LocalSGD(batch_size=8), executor="inline")
        return [r.as_dict() for r in simulation], simulation.server.model.params

    records, params = run_private()
    again, same = run_private()
    assert torch.equal(params, same)
    assert records == again
    spent = [r["privacy"]["epsilon"] for r in records]
    assert spent == sorted(spent)
    counts = {}
    for record in records:
        clients = [job["client"] for job in record["jobs"]]
        for client in set(clients):
            counts[client] = counts.get(client, 0) + clients.count(client) ** 2
    assert spent[-1] == epsilon(0.5, 1e-5, max(counts.values()))


def test_bad_privacy_settings_are_refused():
    for bad, message in (
        ({"clip": 0.0}, "clip must be a positive number, got 0.0"),
        ({"noise": -1.0}, "noise must be a positive number, got -1.0"),
        ({"delta": 1.0}, "delta must be above 0 and below 1, got 1.0"),
    ):
        with pytest.raises(ValueError, match=message):
            Private(**bad)
    with pytest.raises(ValueError, match="BatchNorm"):
        combine_deltas(Private(), [torch.zeros(3)], buffers=2)
