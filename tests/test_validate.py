"""Numbers that users give."""

import re
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from fadas import validate
from fadas.algorithms.presets import FedBuff
from fadas.algorithms.robust import Trimmed
from fadas.algorithms.step_sizes import Cosine, InverseSqrt, Warmup
from fadas.core.ledger import Schedule
from fadas.executors import Inline, Processes
from fadas.simulation.planner import plan
from fadas.simulation.simulator import simulate
from fadas.tasks.glue import glue
from fadas.training.sgd import LocalSGD
from fadas.validate import Limit, whole_number
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
    for number in (2.5, 3.0, "3") if name != "eval_every" else (2.5, 3.0):  # which may also be a text
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
        (lambda n: Cosine(n), "steps must be at most 1,000,000,000"),
        (lambda n: InverseSqrt(n), "steps must be at most 1,000,000,000"),
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
    assert {make(1_000_000_000).steps for make in (Warmup, Cosine, InverseSqrt)} == {1_000_000_000}


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1, 10**5000], ids=["large", "small", "unprintable"])
def test_whole_number_beyond_64_bits_is_refused(number):
    whole_number(seed=2**63 - 1)
    with pytest.raises(ValueError, match="seed must fit into 64 bits, the size of TOML's whole numbers, got "):
        whole_number(seed=number)


LIMITS = {
    "BATCHES": (1_000_000, "one job would train for hours"),
    "BATCH_SIZE": (100_000_000, "no client has so many examples"),
    "BUFFER": (1_000_000, "the server would hold so many updates in memory"),
    "LENGTH": (100_000, "every example would be padded to so many tokens"),
    "POINTS": (10_000, "each point is a run"),
    "RANK": (10_000, "no encoder is so wide"),
    "SCALE": (100, "the benchmark would take hours"),
    "SEEDS": (1_000, "each seed is a run, and the data of all runs are loaded first"),
    "STEPS": (1_000_000_000, "no run has so many steps"),
    "THREADS": (1_024, "threads beyond the number of cores wait for each other"),
    "UPDATES": (100_000_000, "such a plan takes ten gigabytes"),
    "WIDTH": (1_000_000, "the network would not fit into memory"),
    "WORKERS": (1_000, "each is a process with a model of its own"),
}


def test_limits_are_the_documented_ones():
    """Lowering one breaks someone's experiment. The reason is part of the message."""
    limits = {name.removeprefix("MOST_"): limit for name, limit in vars(validate).items() if name.startswith("MOST_")}
    assert limits == LIMITS
    page = (Path(__file__).parents[1] / "docs" / "reference" / "settings.md").read_text()
    assert all(f"{limit.most:,}" in page for name, limit in limits.items() if name != "SCALE")
    assert str(limits["SEEDS"]) == "1,000 (each seed is a run, and the data of all runs are loaded first)"


@pytest.mark.parametrize(
    ("check", "value", "message"),
    [
        (validate.whole_number, 2.0, "n must be a whole number, got 2.0"),
        (validate.whole_number, True, "n must be a whole number, got True"),
        (validate.whole_number, 2**63, f"n must fit into 64 bits, the size of TOML's whole numbers, got {2**63:,}"),
        (partial(validate.at_least, 2), 1, "n must be at least 2, got 1"),
        (partial(validate.at_most, Limit(5, "so")), 6, "n must be at most 5 (so), got 6"),
        (validate.positive, 0.0, "n must be a positive number, got 0.0"),
        (validate.not_negative, -0.5, "n must be at least 0, got -0.5"),
        (validate.fraction, 1.0, "n must be at least 0 and below 1, got 1.0"),
        (lambda n: validate.check_range("n", n), (2, 1), "n must be a range 0 < low <= high, got [2, 1]"),
        (partial(validate.one_of, ("a", "b")), "c", "n must be one of a, b, got 'c'"),
    ],
)
def test_refused_value_is_told_in_full(check, value, message):
    with pytest.raises(validate.InvalidValue, match=f"^{re.escape(message)}$") as error:
        check(n=value)
    assert f"{error.value.name} {error.value.problem}" == message


@pytest.mark.parametrize(
    ("check", "values"),
    [
        (validate.whole_number, (None, 0, -(2**63), 2**63 - 1, np.int64(-5))),
        (partial(validate.at_least, 2), (None, 2, 3)),
        (partial(validate.at_most, Limit(5, "so")), (None, 5, -7)),
        (validate.positive, (5e-324, 0.5, 1.7e308)),
        (validate.not_negative, (0, 5e-324, 0.5, 1.7e308)),
        (validate.fraction, (0, 0.5, 1 - 2**-53)),
        (lambda n: validate.check_range("n", n), ((5e-324, 0.5), (1, 1), (0.5, 1.7e308))),
        (partial(validate.one_of, ("a", "b")), ("a", "b")),
    ],
)
def test_bounds_themselves_are_allowed(check, values):
    for value in values:
        assert check(n=value) is None


def test_long_number_is_described_by_its_bits():
    assert validate.shorten(2**128 - 1) == f"{2**128 - 1:,}"
    assert validate.shorten(2**128) == "a number of 129 bits"
    assert validate.shorten(-(2**2000)) == "a number of 2,001 bits"
