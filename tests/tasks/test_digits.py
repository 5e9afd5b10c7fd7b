"""Digits of scikit-learn."""

from importlib import import_module

import numpy as np
import pytest
import torch

from fadas.tasks import TASKS


def test_digits_are_same_with_or_without_scikit_learn_import(monkeypatch):
    digits = import_module("fadas.tasks.digits")  # fadas.tasks has a function of this name
    own = digits._load_digits()
    monkeypatch.setattr(digits, "find_spec", lambda name: None)
    theirs = digits._load_digits()
    assert [(one.dtype.kind, one.shape) for one in own] == [("f", (1797, 64)), ("i", (1797,))]
    assert all(np.array_equal(one, other) for one, other in zip(own, theirs, strict=True))


def test_digits_have_fixed_test_set():
    task = TASKS["digits"](clients=50, seed=1)
    assert sum(task.sizes) + len(task.test[1]) == 1797
    assert len(task.test[1]) == 359
    other = TASKS["digits"](clients=50, seed=2)
    assert other.sizes != task.sizes
    assert torch.equal(other.test[0], task.test[0]), "the test set does not depend on the seed"
    assert float(task.clients[0][0].max()) <= 1.0


def test_validation_data_come_from_training_data():
    full, held = TASKS["digits"](seed=1), TASKS["digits"](seed=1, validation=0.25)

    def collect_rows(*parts):
        return {tuple(row) for part in parts for row in part[0].tolist()}

    assert len(held.test[1]) == round(0.25 * 1438)
    assert sum(held.sizes) + len(held.test[1]) == sum(full.sizes)
    assert collect_rows(held.test, *held.clients) == collect_rows(*full.clients)
    assert not collect_rows(held.test) & collect_rows(full.test)
    with pytest.raises(ValueError, match=r"validation must be above 0 and below 1, got 1\.5"):
        TASKS["digits"](validation=1.5)
