"""Numbers that users give."""

from pathlib import Path

import numpy as np
import pytest

from fadas import validate
from fadas.algorithms.presets import FedBuff
from fadas.algorithms.robust import Trimmed
from fadas.algorithms.step_sizes import Warmup
from fadas.core.ledger import Schedule
from fadas.executors import Inline, Processes
from fadas.simulation.planner import plan
from fadas.simulation.simulator import simulate
from fadas.tasks.glue import glue
from fadas.training.sgd import LocalSGD
from fadas.validate import whole_number
from helpers.training import make_task


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("steps", lambda n: plan(Schedule(4, 2), 8, steps=n)),
        ("updates", lambda n: plan(Schedule(4, 2), 8, updates=n)),
        ("clients", lambda n: plan(Schedule(2, 2), n, steps=3)),
        ("seed", lambda n: plan(Schedule(4, 2), 8, steps=3, seed=n)),
        ("concurrency", lambda n: Schedule(n, 1)),
        ("buffer", lambda n: Schedule(4, n)),
        ("epochs", lambda n: LocalSGD(epochs=n)),
        ("batch_size", lambda n: LocalSGD(batch_size=n)),
        ("steps", lambda n: LocalSGD(steps=n)),
        ("trim", lambda n: Trimmed(n)),
        (
            "eval_every",
            lambda n: simulate(plan(Schedule(4, 2), 8, steps=3), make_task(8), FedBuff(), LocalSGD(), eval_every=n),
        ),
    ],
)
def test_counts_must_be_whole_numbers(name, make):
    make(np.int64(3))
    for number in (2.5, 3.0, "3"):
        with pytest.raises(ValueError, match=f"{name} must be a whole number, got {number!r}"):
            make(number)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda n: LocalSGD(steps=n),
            r"steps must be at most 1,000,000 \(one job would train for hours\), got 4,611,686,0",
        ),
        (lambda n: LocalSGD(epochs=n), "epochs must be at most 1,000,000"),
        (lambda n: LocalSGD(batch_size=n), "batch_size must be at most 100,000,000"),
        (lambda n: Warmup(n), "steps must be at most 1,000,000,000"),
        (lambda n: Processes(make_task(8), LocalSGD(), 0, workers=n), "workers must be at most 1,000"),
        (lambda n: Inline(make_task(8), LocalSGD(), 0, threads=n), "threads must be at most 1,024"),
        (lambda n: glue("rte", rank=n), r"rank must be at most 10,000 \(no encoder is so wide\)"),
        (lambda n: glue("rte", max_length=n), "max_length must be at most 100,000"),
    ],
)
def test_number_that_would_never_end_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make(2**62)


def test_limits_themselves_are_allowed():
    assert LocalSGD(steps=1_000_000, batch_size=100_000_000).steps == 1_000_000
    assert LocalSGD(epochs=1_000_000).epochs == 1_000_000
    assert Warmup(1_000_000_000).steps == 1_000_000_000


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1, 10**5000], ids=["large", "small", "unprintable"])
def test_whole_number_beyond_64_bits_is_refused(number):
    whole_number(seed=2**63 - 1)
    with pytest.raises(ValueError, match="seed must fit into 64 bits, the size of TOML's whole numbers, got "):
        whole_number(seed=number)


def test_limits_are_the_documented_ones():
    """Lowering one breaks someone's experiment."""
    limits = {name.removeprefix("MOST_"): limit for name, limit in vars(validate).items() if name.startswith("MOST_")}
    assert {name: limit.most for name, limit in limits.items()} == {
        "BATCHES": 1_000_000,
        "BATCH_SIZE": 100_000_000,
        "BUFFER": 1_000_000,
        "LENGTH": 100_000,
        "POINTS": 10_000,
        "RANK": 10_000,
        "SCALE": 100,
        "SEEDS": 1_000,
        "STEPS": 1_000_000_000,
        "THREADS": 1_024,
        "UPDATES": 100_000_000,
        "WIDTH": 1_000_000,
        "WORKERS": 1_000,
    }
    page = (Path(__file__).parents[1] / "docs" / "reference" / "settings.md").read_text()
    assert all(f"{limit.most:,}" in page for name, limit in limits.items() if name != "SCALE")
    assert str(limits["SEEDS"]) == "1,000 (each seed is a run, and the data of all runs are loaded first)"
