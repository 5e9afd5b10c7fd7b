"""Delay models."""

import math

import numpy as np
import pytest

from fadas.simulation.delays import DELAYS, Delays, DelayTable, Exponential, Large, Lognormal, Mild, Pareto, Uniform

U = (np.arange(20000) + 0.5) / 20000


def sample_durations(model, client=0, clients=4):
    duration = model.bind(clients, np.random.default_rng(0))
    return np.array([duration(client, u) for u in U])


@pytest.mark.parametrize(
    ("model", "mean", "median", "low"),
    [
        (Uniform(2, 6), 4, 4, 2),
        (Exponential(3), 3, 3 * math.log(2), 0),
        (Lognormal(2, 0.5), 2 * math.exp(0.125), 2, 0),
        (Pareto(2, 3), 3, 2 * 2 ** (1 / 3), 2),
    ],
)
def test_distributions_have_mean_and_median(model, mean, median, low):
    values = sample_durations(model)
    assert np.mean(values) == pytest.approx(mean, rel=0.01)
    assert np.median(values) == pytest.approx(median, rel=0.01)
    assert values.min() >= low
    assert (np.diff(values) >= 0).all(), "an inverse distribution function must not decrease"


@pytest.mark.parametrize(("model", "large"), [(Large(), (50, 80)), (Mild(), (5, 8))])
def test_tiers_bound_durations(model, large):
    rng = np.random.default_rng(3)
    tiers = model.tiers(300, np.random.default_rng(3))
    duration = model.bind(300, rng)
    for client, tier in enumerate(tiers):
        low, high = ((1, 2), (3, 5), large)[tier]
        assert duration(client, 1e-12) == pytest.approx(low)
        assert duration(client, 1 - 1e-12) == pytest.approx(high)
    assert set(tiers) == {0, 1, 2}


def test_smaller_gamma_makes_more_clients_slow():
    shares = [(Large(gamma).tiers(20000, np.random.default_rng(0)) == 2).mean() for gamma in (0.1, 1.0, 10.0)]
    assert shares[0] > shares[1] > shares[2]
    # Dirichlet(3, 2, 1): the third coordinate is the largest for about one client in ten
    assert 0.05 < shares[1] < 0.15


def test_table_gives_ranges_per_client(tmp_path):
    path = tmp_path / "delays.csv"
    path.write_text("client,low,high\n1,5,7\n0,2,2\n")
    duration = DelayTable(str(path)).bind(2, np.random.default_rng(0))
    assert duration(0, 0.5) == 2
    assert duration(1, 0.5) == 6


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("client,low,high\n0,1,2\n", "no row for client 1"),
        ("client,duration\n0,1\n", "first line must be"),
        ("client,low,high\n0,1,x\n", "line 2: expected three numbers"),
        ("client,low,high\n0,1\n", "line 2: expected three numbers"),
        ("client,low,high\n0,3,2\n", "0 < low <= high"),
        ("client,low,high\n0,1,nan\n", "0 < low <= high"),
        ("client,low,high\n0,1,2\n0,1,2\n", "appears twice"),
        ("", "first line must be"),
    ],
)
def test_bad_delay_tables_are_refused(tmp_path, text, message):
    path = tmp_path / "delays.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        DelayTable(str(path)).bind(2, np.random.default_rng(0))


def test_unreadable_delay_tables_are_refused(tmp_path):
    with pytest.raises(ValueError, match="No such file"):
        DelayTable(str(tmp_path / "nowhere.csv")).bind(1, np.random.default_rng(0))
    (tmp_path / "binary.csv").write_bytes(b"client,low,high\n\xff\xfe,1,2\n")
    with pytest.raises(ValueError, match="not a CSV"):
        DelayTable(str(tmp_path / "binary.csv")).bind(1, np.random.default_rng(0))


def test_scale_by_data_follows_client_sizes():
    delays = Delays(Uniform(1, 1), scale_by_data=True)
    duration = delays.bind(3, np.random.default_rng(0), sizes=[10, 20, 30])
    assert [duration(c, 0.5) for c in range(3)] == [0.5, 1.0, 1.5]
    with pytest.raises(ValueError, match="number of examples"):
        delays.bind(3, np.random.default_rng(0))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Uniform(0, 1), r"low, high must be a range 0 < low <= high, got \[0, 1\]"),
        (lambda: Uniform(2, 1), r"low, high must be a range 0 < low <= high, got \[2, 1\]"),
        (lambda: Exponential(-1), "mean must be a positive number, got -1"),
        (lambda: Lognormal(1, 0), "sigma must be a positive number, got 0"),
        (lambda: Pareto(1, math.inf), "shape must be a positive number, got inf"),
        (lambda: Large(gamma=0), "gamma must be a positive number, got 0"),
        (lambda: Large(large=(8, 5)), r"large must be a range 0 < low <= high, got \[8, 5\]"),
        (lambda: Delays(dropout=1.0), "dropout must be at least 0 and below 1, got 1.0"),
        (lambda: Delays(dropout=-0.1), "dropout must be at least 0 and below 1, got -0.1"),
        (lambda: Delays(deadline=0), "deadline must be a positive number, got 0"),
    ],
)
def test_bad_delay_parameters_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("name", DELAYS)
def test_every_delay_model_keeps_contract(name, tmp_path):
    """Positive, finite, monotone in u, and equal for equal generators."""
    path = tmp_path / "t.csv"
    path.write_text("client,low,high\n" + "".join(f"{c},1,{c + 2}\n" for c in range(5)))
    model = DELAYS[name](path=str(path)) if name == "table" else DELAYS[name]()
    one, two = (model.bind(5, np.random.default_rng(7)) for _ in range(2))
    for client in range(5):
        values = [one(client, u) for u in (2.0**-54, 0.1, 0.5, 0.9, 1 - 2.0**-53)]
        assert all(0 < v < math.inf for v in values)
        assert values == sorted(values)
        assert values == [two(client, u) for u in (2.0**-54, 0.1, 0.5, 0.9, 1 - 2.0**-53)]
