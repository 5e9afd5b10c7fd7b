"""The rule for BatchNorm's statistics, as checkpoints keep it."""

from dataclasses import replace

import pytest

from fadas.algorithms.algorithm import Algorithm
from fadas.algorithms.presets import FADAS, FedAsync, FedAvg
from fadas.core.ledger import Schedule


def test_rules_of_checkpoint_hold_unless_user_has_set_others():
    assert FADAS().rules() == {"statistics": None}
    assert replace(FADAS(), statistics=0.5).rules() == {"statistics": 0.5}
    assert FADAS().with_rules({"statistics": 1.0}) == replace(FADAS(), statistics=1.0)
    assert FADAS().with_rules({"statistics": None}) == FADAS()
    mine = replace(FADAS(), statistics=0.5)
    assert mine.with_rules({"statistics": 1.0}) == mine


@pytest.mark.parametrize(
    ("algorithm", "weight"),
    [(FADAS(), 1.0), (FedAsync(), None), (replace(FedAsync(), statistics=1.0), 1.0), (Algorithm(statistics=0.5), 0.5)],
)
def test_effective_rule_depends_on_combine_rule(algorithm, weight):
    assert algorithm.effective_statistics == weight


def test_schedule_follows_algorithm_before_experiment():
    assert FedAvg().schedule(8, 4) == Schedule(8, 8, "round")
    assert replace(FedAvg(), buffer=3).schedule(8, 4) == Schedule(8, 3, "round")
    assert FedAsync().schedule(8, 4) == Schedule(8, 1, "update")
    assert Algorithm(refill="released").schedule(8, 4) == Schedule(8, 4, "released")
