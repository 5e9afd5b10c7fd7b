"""`fadas sweep`."""

import json

import pytest

from helpers.cli import DEMO, SMALL, run_fadas
from helpers.folders import read_times


def test_sweep_marks_best_point_on_validation_data(tmp_path):
    arguments = ["sweep", DEMO, "--only", "fedbuff", *SMALL, "-j", 2, "--out", tmp_path / "s"]
    rows = [json.loads(line) for line in run_fadas(*arguments, "--json").stdout.splitlines()]
    assert len(rows) == 5
    assert [row["best"] for row in rows] == [True] + [False] * 4
    assert rows[0]["score"] == max(row["score"] for row in rows)
    configs = list((tmp_path / "s").glob("fedbuff/*/config.toml"))
    assert len(configs) == 5
    assert all("validation = 0.2" in path.read_text() for path in configs)
    written = read_times((tmp_path / "s").rglob("metrics.jsonl"))
    assert len(written) == 5
    assert "best" in run_fadas(*arguments).stdout
    assert written == read_times(written), "nothing is rerun"
    assert "no grid" in run_fadas("sweep", DEMO, "--only", "fadas", "--set", "sweep.fadas={}", code=2).stderr


@pytest.mark.parametrize("jobs", [1, 2])
def test_sweep_shows_each_warning_once(tmp_path, jobs):
    changes = ["task.clients=10", "schedule.concurrency=5", "run.updates=20", "algorithms.fedbuff.schedule.buffer=2"]
    settings = [part for change in changes for part in ("--set", change)]
    arguments = ["sweep", DEMO, "--only", "fedbuff", *settings, "--seed", 0, "-j", jobs, "--out", tmp_path]
    (line,) = [line for line in run_fadas(*arguments).stderr.splitlines() if "warning:" in line]
    assert line.startswith("fadas: warning: seed 0: none of the 10 clients is in the delay tier 'large'")
