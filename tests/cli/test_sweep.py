"""`fadas sweep`."""

import json

import pytest

from fadas.experiments.experiment_file import read_experiment
from helpers.cli import DEMO, SMALL, run_fadas
from helpers.folders import read_times


def test_sweep_marks_best_point_on_validation_data(tmp_path):
    arguments = ["sweep", DEMO, "--only", "fedbuff", *SMALL, "-j", 2, "--out", tmp_path / "s"]
    rows = [json.loads(line) for line in run_fadas(*arguments, "--json").stdout.splitlines()]
    assert len(rows) == 5
    assert [row["best"] for row in rows] == [True] + [False] * 4
    assert {(row["metric"], row["better"]) for row in rows} == {("accuracy", "higher")}
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
    (line,) = [line for line in run_fadas(*arguments).stderr.splitlines() if "warning: seed" in line]
    assert line.startswith("fadas: warning: seed 0: none of the 10 clients is in the delay tier 'large'")


EXPERIMENT = """
task = {name = "digits", clients = 12}
schedule = {concurrency = 6, buffer = 2}
delays = {name = "mild", shares = [0.5, 0.25, 0.25]}
run = {steps = 20, eval_every = 1}
[algorithms.fedbuff] # the baseline
eta = 1 # as in its paper
[algorithms.fadas]
[sweep.fedbuff]
local.lr = [0.002, 0.004]
[sweep.fadas]
eta = [0.0001, 0.0002]
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "x.toml").write_text(EXPERIMENT)
    return tmp_path


def sweep(folder, *options, code=0):
    done = run_fadas("sweep", "x.toml", "--seed", "3", *options, cwd=folder, code=code)
    rows = [json.loads(line) for line in done.stdout.splitlines()] if "--json" in options else []
    return done, rows


def test_best_point_on_an_edge_is_warned_of_and_widened(folder):
    done, _ = sweep(folder)
    assert "best, at the edge of local.lr" in done.stdout
    warned = [line for line in done.stderr.splitlines() if "warning" in line]
    assert warned == [
        "fadas: warning: fedbuff is best at the upper edge of local.lr (0.004); --widen extends the grid there",
        "fadas: warning: fadas is best at the upper edge of eta (0.0002); --widen extends the grid there",
    ]
    written = read_times((folder / "runs").rglob("metrics.jsonl"))
    limited, _ = sweep(folder, "--widen", "--widen-limit", "1", "--only", "fedbuff", "-j", "2")
    assert "extended: sweep.fedbuff.local.lr in [0.002, 0.004, 0.008]" in limited.stdout
    assert "upper edge of local.lr (0.008) after 1 extension; --widen-limit allows more" in limited.stderr
    done, rows = sweep(folder, "--widen", "--widen-limit", "12", "--json")
    assert "warning" not in done.stderr
    assert [row["edges"] for row in rows if row["best"]] == [[], []]
    assert len(rows) > 8
    assert read_times(written) == written, "finished points are not run again"


def test_halving_widens_over_several_seeds(folder):
    seeds = ["--set", "run.seeds=[3,4]"]
    command = ["sweep", "x.toml", "--halving", "--widen", *seeds, "--only", "fedbuff", "--json"]
    rows = [json.loads(line) for line in run_fadas(*command, cwd=folder).stdout.splitlines()]
    assert rows[0]["best"]
    assert (rows[0]["share"], rows[0]["seeds"]) == (1.0, 2)
    assert rows[0]["spread"] > 0
    assert len({row["point"]["local.lr"] for row in rows}) > 2
    table = run_fadas(*command[:-1], cwd=folder).stdout
    assert "mean of 2 seeds" in table
    assert " ± " in table


def test_apply_writes_winners_into_the_file(folder):
    before = (folder / "x.toml").read_text()
    done, rows = sweep(folder, "--apply", "--json")
    best = {row["label"]: row["point"] for row in rows if row["best"]}
    tables = read_experiment(folder / "x.toml")["algorithms"]
    assert tables == {
        "fedbuff": {"eta": 1, "local": {"lr": best["fedbuff"]["local.lr"]}},
        "fadas": {"eta": best["fadas"]["eta"]},
    }
    after = (folder / "x.toml").read_text()
    assert set(before.splitlines()) <= set(after.splitlines()), "comments stay"
    assert len(after.splitlines()) == len(before.splitlines()) + 2
    (folder / "x.toml").write_text(before)
    done, _ = sweep(folder, "--apply-to", "tuned.toml")
    assert "best values written into tuned.toml" in done.stdout
    assert (folder / "x.toml").read_text() == before
    assert (folder / "tuned.toml").read_text() == after


def test_winners_that_cannot_be_written_are_refused_before_any_run(folder):
    (folder / "there.toml").write_text("")
    for options, message in (
        (["--apply-to", "there.toml"], "there.toml exists; choose another file"),
        (["--apply", "--apply-to", "y.toml"], "--apply and --apply-to contradict each other"),
        (["--apply", "--set", "algorithms.new={preset='fadas'}", "--set", "sweep.new={eta=[1]}"], "[algorithms.new]"),
        (["--by", "lst"], "unknown value of --by 'lst'; did you mean 'last'?"),
        (["--set", "sweep.fadas={eta={low=1e-4,high=1e-2}}"], "say with --samples N how many points to draw"),
    ):
        done, _ = sweep(folder, *options, code=2)
        assert message in done.stderr
        assert done.stderr.count("\n") == 1
    assert not (folder / "runs").exists()


def test_ranges_are_sampled(folder):
    ranges = ["--set", "sweep.fadas={eta={low=1e-4,high=1e-1,log=true},beta1=[0.8,0.9]}", "--only", "fadas"]
    _, rows = sweep(folder, *ranges, "--samples", "5", "--json")
    assert len(rows) == 5
    assert all(1e-4 <= row["point"]["eta"] <= 1e-1 for row in rows)
    _, more = sweep(folder, *ranges, "--samples", "8", "--json")
    assert {row["name"] for row in rows} < {row["name"] for row in more}
    _, other = sweep(folder, *ranges, "--samples", "5", "--sample-seed", "1", "--json")
    assert {row["name"] for row in rows} != {row["name"] for row in other}


def test_last_evaluation_can_decide(folder):
    rows, last = (
        {row["name"]: row["score"] for row in sweep(folder, "--json", *options)[1]}
        for options in ([], ["--by", "last"])
    )
    assert rows.keys() == last.keys()
    assert rows != last
    assert "last evaluation" in sweep(folder, "--by", "last")[0].stdout


def test_dry_run_shows_grids_and_what_else_would_happen(folder):
    ranges = ["--set", "sweep.fadas={eta={low=1e-4,high=1e-1,log=true}}", "--samples", "4"]
    options = [*ranges, "--widen", "--apply", "--dry-run"]
    text = sweep(folder, *options)[0].stdout
    for line in (
        "fedbuff: local.lr in [0.002, 0.004]",
        "fadas: eta from 0.0001 to 0.1 (log); 4 samples",
        "--widen may add points: at most 6 extensions of each grid",
        "would write the best values into x.toml",
    ):
        assert line in text.splitlines()
    (found,) = sweep(folder, *options, "--json")[1]
    assert found["grids"]["fadas"]["axes"] == {"eta": {"low": 1e-4, "high": 1e-1, "log": True}}
    assert len(found["grids"]["fadas"]["points"]) == 4
    assert len(found["notes"]) == 2
    assert [path.name for path in folder.iterdir()] == ["x.toml"]
    assert (folder / "x.toml").read_text() == EXPERIMENT
