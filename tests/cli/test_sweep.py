"""`fadas sweep`."""

import json

from helpers.cli import DEMO, SMALL, run_fadas


def test_sweep_marks_the_best_and_never_sees_the_test_set(tmp_path):
    arguments = ["sweep", DEMO, "--only", "fedbuff", *SMALL, "-j", 2, "--out", tmp_path / "s"]
    rows = [json.loads(line) for line in run_fadas(*arguments, "--json").stdout.splitlines()]
    assert len(rows) == 5
    assert [row["best"] for row in rows] == [True] + [False] * 4
    assert rows[0]["score"] == max(row["score"] for row in rows)
    configs = list((tmp_path / "s").glob("fedbuff/*/config.toml"))
    assert len(configs) == 5
    assert all("validation = 0.2" in path.read_text() for path in configs)
    written = {path: path.stat().st_mtime_ns for path in (tmp_path / "s").rglob("metrics.jsonl")}
    assert len(written) == 5
    assert "best" in run_fadas(*arguments).stdout
    assert written == {path: path.stat().st_mtime_ns for path in written}, "everything was there already"
    assert "no grid" in run_fadas("sweep", DEMO, "--only", "fadas", "--set", "sweep.fadas={}", code=2).stderr
