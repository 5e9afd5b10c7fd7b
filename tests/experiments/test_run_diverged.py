"""A diverged run is kept as diverged. The others run, and the command says so."""

import json

import pytest

from fadas.runs.reader import find_runs, read_run
from helpers.cli import DEMO, DIVERGING, SMALL, run_fadas
from helpers.folders import read_times


@pytest.fixture(scope="module")
def diverged_run(tmp_path_factory):
    """The folder and the command of two runs. The first one diverges."""
    folder = tmp_path_factory.mktemp("diverged") / "o"
    command = ["run", DEMO, "--only", "fedbuff,fedavg", *SMALL, *DIVERGING, "--out", folder]
    done = run_fadas(*command, code=3)
    *lines, last = done.stderr.splitlines()
    assert last.startswith("fadas: 1 of 2 runs diverged: fedbuff-7; summary.json says why. Look for NaN in the data")
    assert lines[0].startswith("fedbuff-7: diverged after step ")
    assert lines[1].startswith("fedavg-7: 60 steps")
    assert ["fedbuff", "diverged"] in [line.split()[:2] for line in done.stdout.splitlines()]
    return folder, command


def test_diverged_folder_keeps_records_without_accuracy(diverged_run):
    run, sound = (read_run(diverged_run[0] / name) for name in ("fedbuff-7", "fedavg-7"))
    assert run.diverged.startswith("the last 201 updates were all refused (refused so far: not finite: ")
    assert len(run.records) == run.summary.step > 0
    assert not {"accuracy", "accuracy_std", "time_to_target"} & run.summary.as_dict().keys()
    assert sorted(path.name for path in run.folder.iterdir()) == [
        ".lock",
        "config.toml",
        "metrics.jsonl",
        "partition.json",
        "summary.json",
    ]
    assert sound.diverged is None
    assert [run.label for run in find_runs(diverged_run[0])] == ["fedbuff", "fedavg"]
    assert "fedbuff-7 diverged after step" in (diverged_run[0] / "report.html").read_text()


def test_rerun_reports_diverged_run_without_training(diverged_run):
    folder, command = diverged_run
    written = (folder / "fedbuff-7" / "summary.json").stat().st_mtime_ns
    for more in ([], ["--resume"]):
        assert "1 of 2 runs diverged: fedbuff-7" in run_fadas(*command, *more, code=3).stderr
        assert (folder / "fedbuff-7" / "summary.json").stat().st_mtime_ns == written
    rows = [json.loads(line) for line in run_fadas(*command, "--json", code=3).stdout.splitlines()]
    assert ["diverged" in row for row in rows] == [True, False]
    run_fadas(*command, "--overwrite", code=3)
    assert (folder / "fedbuff-7" / "summary.json").stat().st_mtime_ns > written
    assert "diverged" in run_fadas("report", folder).stdout


@pytest.mark.parametrize("jobs", [1, 2])
def test_sweep_continues_and_never_ranks_diverged_best(tmp_path, jobs):
    grid = ["--set", "sweep.fedbuff={local={lr=[1e38, 0.01, 1e4]}}", "--set", "run.updates=300"]
    grid += ["--set", "schedule.concurrency=5"]
    command = ["sweep", DEMO, "--only", "fedbuff", *SMALL, *grid, "--out", tmp_path]
    done = run_fadas(*command, "-j", jobs, "--json")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(row["point"]["local.lr"], row["best"]) for row in rows] == [(0.01, True), (1e4, False), (1e38, False)]
    assert [(row["score"] is None, row["diverged"]) for row in rows] == [(False, 0), (True, 1), (True, 1)]
    assert "fadas: warning: fedbuff: 2 of 3 runs diverged, and are never the best" in done.stderr
    written = read_times(tmp_path.rglob("summary.json"))
    table = run_fadas(*command).stdout.splitlines()
    assert [line.split()[2:] for line in table if "local.lr" in line][1:] == [["diverged"], ["diverged"]]
    assert written == read_times(tmp_path.rglob("summary.json")), "no run is repeated"
    none_left = run_fadas(*command, "--set", "sweep.fedbuff={local={lr=[1e38, 1e4]}}", code=3).stderr
    assert none_left.splitlines()[-1] == "fadas: all points of fedbuff diverged; try smaller values"
