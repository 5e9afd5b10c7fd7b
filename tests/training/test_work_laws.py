"""Laws for the number of local steps."""

import math
import re
from statistics import NormalDist, median

import pytest

from fadas.core.ledger import Job
from fadas.errors import ConfigError
from fadas.rng import WORK, mix
from fadas.training.work import STEP_LAWS, LogNormal, Table, Uniform

JOBS = [Job(id, id % 7, 0) for id in range(2000)]


def uniform(job, seed, per):
    """The random number of a job or client."""
    words = (WORK, 0, job.client) if per == "client" else (WORK, 1, job.id)
    return ((mix(seed, *words) >> 12) + 0.5) / 2**52


def test_table_has_an_entry_for_each_client():
    table = Table([5, 1, 20])
    assert [table(Job(9, client, 3), 7, 1) for client in (0, 1, 2)] == [5, 1, 20]
    assert table == Table((5, 1, 20))
    assert table.counts == (5, 1, 20)
    with pytest.raises(ConfigError, match=r"^local.steps.counts has 3 entries, and none for client 3$"):
        table(Job(9, 3, 3), 7, 1)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Table([]), "counts must have an entry for each client"),
        (lambda: Table([3, 0]), "counts must be at least 1, got 0"),
        (lambda: Table([3, 1_000_001]), "counts must be at most 1,000,000"),
        (lambda: Table([3, 2.5]), "counts must be a whole number, got 2.5"),
        (lambda: Uniform(0, 5), "low must be at least 1, got 0"),
        (lambda: Uniform(6, 5), "high must be at least 6, got 5"),
        (lambda: Uniform(6, 1_000_001), "high must be at most 1,000,000"),
        (lambda: Uniform(5, 6, "step"), "per must be one of job, client, got 'step'"),
        (lambda: LogNormal(0), "median must be at least 1, got 0"),
        (lambda: LogNormal(1_000_001), "median must be at most 1,000,000"),
        (lambda: LogNormal(5, most=4), "most must be at least 5, got 4"),
        (lambda: LogNormal(5, most=1_000_001), "most must be at most 1,000,000"),
        (lambda: LogNormal(5, -0.5), "sigma must be at least 0, got -0.5"),
        (lambda: LogNormal(5, per="step"), "per must be one of job, client, got 'step'"),
    ],
)
def test_impossible_law_is_refused(make, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        make()


def test_bounds_of_laws_are_accepted():
    assert Uniform(1, 1)(JOBS[0], 5, 0) == 1
    assert Uniform(1, 1_000_000).high == Table([1_000_000]).counts[0] == 1_000_000
    assert LogNormal(1_000_000, 0.0, most=1_000_000)(JOBS[0], 5, 0) == 1_000_000
    assert LogNormal(1, most=1)(JOBS[0], 5, 0) == 1


@pytest.mark.parametrize("per", ["job", "client"])
def test_uniform_follows_its_random_number(per):
    law = Uniform(3, 6, per)
    drawn = [law(job, 10, 5) for job in JOBS]
    assert drawn == [3 + int(uniform(job, 5, per) * 4) for job in JOBS]
    assert set(drawn) == {3, 4, 5, 6}
    if per == "job":
        assert all(abs(drawn.count(steps) - 500) < 100 for steps in (3, 4, 5, 6))
    else:
        assert len({(job.client, steps) for job, steps in zip(JOBS, drawn, strict=True)}) == 7
    assert drawn != [law(job, 10, 6) for job in JOBS], "another seed"
    assert drawn == [law(job, 99, 5) for job in JOBS], "whatever the number of examples"


@pytest.mark.parametrize("per", ["job", "client"])
def test_lognormal_follows_its_random_number(per):
    law = LogNormal(20, 0.8, per, most=60)
    expected = [max(1, min(60, round(20 * math.exp(0.8 * NormalDist().inv_cdf(uniform(job, 5, per)))))) for job in JOBS]
    assert [law(job, 10, 5) for job in JOBS] == expected
    if per == "job":
        assert median(expected) == pytest.approx(20, abs=1.5)
        assert max(expected) == 60


def test_lognormal_is_cut_at_ten_times_its_median_and_at_one():
    drawn = [LogNormal(3, 5.0)(job, 10, 1) for job in JOBS]
    assert (min(drawn), max(drawn)) == (1, 30)
    assert {LogNormal(7, 0.0)(job, 10, 1) for job in JOBS} == {7}
    wild = [LogNormal(200_000, 500.0)(job, 10, 1) for job in JOBS]
    assert (min(wild), max(wild)) == (1, 1_000_000), "no number overflows"


def test_laws_have_documented_names_and_defaults():
    assert {"table": Table, "uniform": Uniform, "lognormal": LogNormal} == STEP_LAWS
    assert Uniform(1, 2).per == "job"
    assert LogNormal(5) == LogNormal(5, 0.5, "job", None)
