"""`fadas list` and `fadas bench`."""

import json

from helpers.cli import run_fadas


def test_list_and_bench_print_tables():
    text = run_fadas("list").stdout
    for name in ("fadas-da", "calibrated", "amsgrad", "delay-adaptive", "large", "digits", "batched", "[low, high]"):
        assert name in text
    (rows,) = json.loads(run_fadas("bench", "plan", "--scale", "0.01", "--json").stdout)["tables"].values()
    assert [row["clients"] for row in rows] == [10_000, 100_000, 1_000_000]
    assert "plain PyTorch loop" in run_fadas("bench", "cpu", "--scale", "0.01").stdout
