"""`fadas list` and `fadas bench`."""

import json

from fadas.cli.bench import BENCHES
from helpers.cli import call_fadas, run_fadas


def test_list_and_bench_print_tables(monkeypatch):
    text = run_fadas("list").stdout
    for name in ("fadas-da", "calibrated", "amsgrad", "delay-adaptive", "large", "digits", "batched", "[low, high]"):
        assert name in text
    (rows,) = json.loads(run_fadas("bench", "plan", "--scale", "0.001", "--json").stdout)["tables"].values()
    assert [row["clients"] for row in rows] == [10_000, 100_000, 1_000_000]
    scales = []
    table = {"MLP": [{"what": "plain PyTorch loop", "updates_per_s": 1234.5}, {"what": "auto", "updates_per_s": 20.0}]}
    monkeypatch.setitem(BENCHES, "cpu", lambda scale: scales.append(scale) or table)  # test_bench.py runs the real one
    code, text, _ = call_fadas("bench", "cpu", "--scale", "0.01")
    assert (code, scales) == (0, [0.01])
    lines = {" ".join(line.split()) for line in text.splitlines()}
    assert {"MLP", "what updates per s", "plain PyTorch loop 1,234.50", "auto 20"} <= lines, text
