"""Delay models: the documented shares of tiers, exact durations, and tables with oddities."""

import hashlib
import math
from pathlib import Path

import numpy as np
import pytest

from fadas.simulation.delays import Delays, Exponential, Large, Lognormal, Mild, Pareto, Table, Uniform


def bind(model, clients=3):
    return model.bind(clients, np.random.default_rng(0))


@pytest.mark.parametrize(
    ("gamma", "shares"), [(0.1, (51, 33, 16)), (0.5, (57, 31, 12)), (1.0, (64, 28, 8)), (5.0, (84, 15, 1))]
)
def test_tiers_have_documented_shares(gamma, shares):
    counts = np.bincount(Large(gamma).tiers(100_000, np.random.default_rng(1)), minlength=3)
    assert (counts / 1000).tolist() == pytest.approx(shares, abs=0.7)


@pytest.mark.parametrize(
    ("model", "durations"),
    [
        (Uniform(2.0, 6.0), (3.0, 4.0, 5.0)),
        (Exponential(3.0), (-3 * math.log(0.75), 3 * math.log(2), 3 * math.log(4))),
        (Lognormal(2.0, 0.5), (2 * math.exp(-0.5 * 0.6744897501960817), 2.0, 2 * math.exp(0.5 * 0.6744897501960817))),
        (Pareto(2.0, 3.0), (2 * 0.75 ** (-1 / 3), 2 * 2 ** (1 / 3), 2 * 4 ** (1 / 3))),
    ],
    ids=str,
)
def test_quartiles_match_formulas(model, durations):
    duration = bind(model)
    assert [duration(1, u) for u in (0.25, 0.5, 0.75)] == pytest.approx(durations, rel=1e-12)


@pytest.mark.parametrize(
    ("model", "ranges"),
    [
        (Large(shares=(0.4, 0.4, 0.2)), ((1, 2), (3, 5), (50, 80))),
        (Mild(shares=(0.4, 0.4, 0.2)), ((1, 2), (3, 5), (5, 8))),
    ],
)
def test_duration_is_uniform_in_the_range_of_the_tier(model, ranges):
    tiers, duration = model.tiers(5, np.random.default_rng(0)), bind(model, 5)
    assert sorted(tiers) == [0, 0, 1, 1, 2]
    for client, tier in enumerate(tiers):
        low, high = ranges[tier]
        assert [duration(client, u) for u in (0.0, 0.25, 1.0)] == pytest.approx([low, low + (high - low) / 4, high])


@pytest.mark.parametrize(
    ("shares", "clients", "counts"),
    [
        ((0.5, 0.25, 0.25), 4, [2, 1, 1]),
        ((0.5, 0.25, 0.25), 5, [3, 1, 1]),  # remainders 0.5, 0.25, 0.25
        ((0.34, 0.33, 0.33), 3, [1, 1, 1]),
        ((0.2, 0.4, 0.4), 1, [0, 1, 0]),  # equal remainders: the smaller tier
        ((0.1, 0.2, 0.7), 10, [1, 2, 7]),  # though 0.1 + 0.2 and 0.7 * 10 are not exact
        ((0.0, 0.0, 1.0), 6, [0, 0, 6]),
    ],
)
def test_shares_are_rounded_by_largest_remainders(shares, clients, counts):
    model = Large(shares=shares)
    tiers = model.tiers(clients, np.random.default_rng(3))
    assert np.bincount(tiers, minlength=3).tolist() == counts
    names = [name for name, count in zip(("small", "medium", "large"), counts, strict=True) if not count]
    assert model.empty_tiers(clients, np.random.default_rng(3)) == names


def test_scale_by_data_is_relative_to_the_mean():
    duration = Delays(Uniform(2.0, 4.0), scale_by_data=True).bind(4, np.random.default_rng(0), [1, 2, 3, 2])
    assert [duration(client, 0.5) for client in range(4)] == pytest.approx([1.5, 3.0, 4.5, 3.0])
    plain = Delays(Uniform(2.0, 4.0)).bind(4, np.random.default_rng(0), [1, 2, 3, 2])
    assert [plain(client, 0.5) for client in range(4)] == [3.0] * 4
    for sizes in ([1, 2, 3], [1, 2, 3, 4, 5], None):
        with pytest.raises(ValueError, match="scale_by_data needs the number of examples of each client"):
            Delays(Uniform(), scale_by_data=True).bind(4, np.random.default_rng(0), sizes)


def write_table(folder, text, encoding="utf-8"):
    path = folder / "delays.csv"
    path.write_bytes(text.encode(encoding))
    return Table(str(path))


def test_table_may_come_from_a_spreadsheet(tmp_path):
    """With a byte order mark, Windows line ends, quotes, and clients that do not exist."""
    table = write_table(tmp_path, 'client,low,high\r\n"1",2,4\r\n0,1,1\r\n9,5,6\r\n', "utf-8-sig")
    duration = bind(table, 2)
    assert [duration(0, 0.5), duration(1, 0.0), duration(1, 0.75), duration(1, 1.0)] == [1.0, 2.0, 3.5, 4.0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("client,low,high\n0,1,2\n1,2\n", "line 3: expected three numbers: client, low, high"),
        ("client,low,high\n0,1,2\n1.5,2,3\n", "line 3: expected three numbers"),
        ("client,low,high\n0,1,2\n0,1,2\n", "line 3: client 0 appears twice"),
        ("client,low,high\n0,1,2\n1,0,2\n", r"line 3: low, high must be a range 0 < low <= high, got \[0.0, 2.0\]"),
        ("client,high,low\n0,1,2\n", "the first line must be 'client,low,high'"),
        ("client,low,high\n1,1,2\n", r"has no row for client 0 \(there are 2 clients\)"),
        ('client,low,high\n0,1,"2\n', "is not a CSV file"),
    ],
)
def test_mistake_in_table_is_named_with_its_line(tmp_path, text, message):
    with pytest.raises(ValueError, match=message):
        bind(write_table(tmp_path, text), 2)


def test_changed_table_is_noticed(tmp_path):
    table = write_table(tmp_path, "client,low,high\n0,1,2\n")
    digest = hashlib.sha256(b"client,low,high\n0,1,2\n").hexdigest()
    assert table.file_digest() == digest
    assert bind(Table(table.path, digest), 1)(0, 0.0) == 1.0
    write_table(tmp_path, "client,low,high\n0,1,3\n")
    with pytest.raises(ValueError, match=r"delays.csv has changed since these settings were saved; restore the file"):
        bind(Table(table.path, digest), 1)
    assert bind(Table(table.path), 1)(0, 1.0) == 3.0
    with pytest.raises(ValueError, match=r"cannot read the delay table .*nowhere.csv: No such file"):
        Table(str(tmp_path / "nowhere.csv")).file_digest()


def test_table_that_vanishes_after_its_digest_was_taken_is_named(tmp_path, monkeypatch):
    table = write_table(tmp_path, "client,low,high\n0,1,2\n")
    monkeypatch.setattr(Table, "file_digest", lambda self: Path(self.path).unlink())
    with pytest.raises(ValueError, match=r"^cannot read the delay table .*delays.csv: No such file or directory$"):
        bind(table, 1)
