"""Robust combining against attackers, up to the number each rule withstands."""

import pytest
import torch
from hypothesis import given, settings, strategies as st

from fadas.algorithms.algorithm import Algorithm
from fadas.algorithms.combine import COMBINES, Mean
from fadas.algorithms.robust import Clipped, Median, Trimmed
from fadas.algorithms.step_sizes import Constant
from fadas.simulation.delays import Delays, Uniform
from fadas.simulation.faults import Fault
from fadas.simulation.planner import plan
from fadas.simulation.simulator import simulate
from fadas.training.sgd import LocalSGD
from helpers.training import make_task
from helpers.updates import combine_deltas


def test_rules_match_hand_calculation():
    deltas = [torch.tensor(v) for v in ([1.0, 9.0], [2.0, 0.0], [30.0, 3.0])]
    assert combine_deltas(Median(), deltas).tolist() == [2.0, 3.0]
    assert combine_deltas(Median(), deltas[:2]).tolist() == [1.5, 4.5]
    assert combine_deltas(Trimmed(1), deltas).tolist() == [2.0, 3.0]
    assert combine_deltas(Trimmed(0), deltas).tolist() == [11.0, 4.0]
    lengths = [d.norm() for d in deltas]  # 9.06, 2, 30.1: the median is the first
    expected = (deltas[0] + deltas[1] + deltas[2] * lengths[0] / lengths[2]) / 3
    torch.testing.assert_close(combine_deltas(Clipped(), deltas), expected)
    expected = (deltas[1] + deltas[2] * lengths[1] / lengths[2]) / 2  # the median of two lengths is the smaller one
    torch.testing.assert_close(combine_deltas(Clipped(), deltas[1:]), expected)
    torch.testing.assert_close(combine_deltas(Clipped(1.0), deltas), sum(d / d.norm() for d in deltas) / 3)


@settings(max_examples=150)
@given(st.integers(1, 12), st.integers(0, 10**6), st.sampled_from(["flip", "noise", "huge", "same"]), st.data())
def test_rules_withstand_stated_number_of_bad_updates(count, seed, attack, data):
    generator = torch.Generator().manual_seed(seed)
    honest_all = torch.randn(count, 6, generator=generator)
    for rule in (Median(), Trimmed(data.draw(st.integers(0, (count - 1) // 2))), Clipped()):
        bad = data.draw(st.integers(0, rule.withstands(count)))
        deltas = honest_all.clone()
        deltas[:bad] = {
            "flip": -1e4 * honest_all[:bad],
            "noise": 1e4 * torch.randn(bad, 6, generator=generator),
            "huge": torch.full((bad, 6), 1e18),
            "same": honest_all[-1:].expand(bad, 6) * 1e3,
        }[attack]
        honest = deltas[bad:]
        result = combine_deltas(rule, list(deltas))
        if isinstance(rule, Clipped):
            assert result.norm() <= honest.norm(dim=1).max() * (1 + 1e-5)
        else:
            assert (result >= honest.min(0).values - 1e-5).all()
            assert (result <= honest.max(0).values + 1e-5).all()


def test_withstands_and_bad_settings():
    assert [Median().withstands(m) for m in (1, 2, 3, 10)] == [0, 0, 1, 4]
    assert Trimmed(2).withstands(10) == 2
    assert [Clipped().withstands(m) for m in (1, 2, 3, 10)] == [0, 1, 1, 5]
    with pytest.raises(ValueError, match=r"trim must be below half of the buffer \(4 updates\), got 2"):
        combine_deltas(Trimmed(2), [torch.ones(2)] * 4)
    for bad in ({"trim": -1},):
        with pytest.raises(ValueError, match="trim"):
            Trimmed(**bad)
    with pytest.raises(ValueError, match="norm"):
        Clipped(0.0)


@pytest.mark.parametrize("attack", [Fault("flip", (0, 1), scale=30.0), Fault("noise", (0, 1), scale=5.0)])
def test_training_survives_attack_only_with_robust_rules(attack):
    """Two of twenty clients attack. Of the ten updates of a step, rarely more than two are bad."""
    task, local = make_task(clients=20, sizes=(30,)), LocalSGD(lr=0.2, epochs=2, batch_size=10)

    def measure_accuracy(rule):
        algorithm = Algorithm(rule, step_size=Constant(1.0))
        p = plan(algorithm.schedule(15, 10), 20, Delays(Uniform(1, 2), faults=(attack,)), steps=40, seed=1)
        *_, last = simulate(p, task, algorithm, local, executor="batched", eval_every=40)
        return last.metrics["accuracy"]

    assert measure_accuracy(Mean()) < 0.6
    for name in ("median", "trimmed", "clipped"):
        rule = COMBINES[name](**({"trim": 3} if name == "trimmed" else {}))
        assert measure_accuracy(rule) > 0.75, name
