"""`fadas run` and `fadas plan`."""

import json
import os
import signal
import sys

import pytest
from safetensors.torch import load_file

from fadas.tasks import TASKS
from helpers.cli import DEMO, SMALL, run_fadas, start_paused
from helpers.experiments import BASE, write_experiment
from helpers.folders import read_records
from helpers.forks import run_in_fork
from helpers.processes import count_lines, wait_until


def test_run_writes_complete_folder(tmp_path):
    out = tmp_path / "out"
    run_fadas("run", DEMO, "--only", "fadas-da", "--set", "run.steps=150", "--set", "run.seeds=[1]", "--out", out)
    folder = out / "fadas-da-1"
    records = read_records(folder)
    assert [r["step"] for r in records] == list(range(1, 151))
    assert records[-1]["updates"] == 750
    for record in records:
        assert {"time", "eta", "train_loss", "refused", "metrics"} <= record.keys()
        assert all({"client", "tau"} <= job.keys() for job in record["jobs"])
        tau_max = max(job["tau"] for job in record["jobs"])
        assert record["eta"] == pytest.approx(0.003 if tau_max <= 10 else 0.003 / tau_max)
    assert records[-1]["metrics"]["accuracy"] > 0.5
    module = TASKS["digits"](clients=50, alpha=0.1, seed=1).module()
    module.load_state_dict(load_file(folder / "model.safetensors"))
    metrics = TASKS["digits"](clients=50, alpha=0.1, seed=1).evaluate(module)
    assert metrics == pytest.approx(records[-1]["metrics"], rel=1e-6)
    assert {path.stat().st_mode for path in folder.iterdir()} == {(out / "report.html").stat().st_mode}


@pytest.mark.skipif(sys.platform != "linux", reason="needs /dev/full and a limit on files")
def test_full_disk_at_end_says_how_to_resume(tmp_path):
    run = ["run", DEMO, "--only", "fadas", *SMALL, "--out", tmp_path]
    limited = (
        "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (15_000,) * 2); from fadas.cli import main; main()"
    )
    no_git = {**os.environ, "FADAS_COMMIT": "x"}  # git would leave a lock behind where it cannot write
    done = run_in_fork(run, limited, environment=no_git)
    assert done.returncode == 2
    assert not list(tmp_path.glob("fadas-7/model*")), "nothing half-written may stay"
    last = done.stderr.splitlines()[-1]
    assert last.endswith(
        "File too large after step 10; there is no checkpoint yet; free some space, then continue with --resume"
    )
    run_fadas(*run, "--resume", "--no-report")
    for arguments in (run, ["report", tmp_path]):
        done = run_in_fork(arguments, limited, environment=no_git)
        assert done.returncode == 2
        error = done.stderr.splitlines()[-1]
        assert "File too large" in error
        assert error.endswith("; free some space, then run the command again")
        assert not list(tmp_path.glob("report*")), "nothing half-written may stay"
    assert "skipped, it has finished in" in run_fadas(*run).stderr
    assert (tmp_path / "report.html").exists()


def test_rerun_skips_finished_runs(tmp_path):
    first = run_fadas("run", DEMO, "--only", "fadas,fedavg", *SMALL, cwd=tmp_path)
    assert "accuracy" in first.stdout
    metrics = tmp_path / "runs" / "digits" / "fadas-7" / "metrics.jsonl"
    before = metrics.read_bytes(), metrics.stat().st_mtime_ns
    again = run_fadas("run", DEMO, "--only", "fadas,fedavg", *SMALL, cwd=tmp_path)
    assert "skipped, it has finished in" in again.stderr
    assert (metrics.read_bytes(), metrics.stat().st_mtime_ns) == before
    other = run_fadas("run", DEMO, "--only", "fadas", *SMALL, "--set", "local.epochs=1", cwd=tmp_path, code=2)
    assert "other settings" in other.stderr
    run_fadas("run", DEMO, "--only", "fadas", *SMALL, "--overwrite", "--no-report", cwd=tmp_path)
    assert metrics.stat().st_mtime_ns != before[1]
    assert metrics.read_bytes() == before[0]


def test_modules_in_current_folder_do_not_shadow_libraries(tmp_path):
    (tmp_path / "numpy.py").write_text("raise SystemExit(7)")
    (tmp_path / "torch.py").write_text("raise SystemExit(7)")
    done = run_fadas("run", DEMO, "--set", "run.steps=1", "--only", "fadas", "--out", tmp_path / "out", cwd=tmp_path)
    assert done.stderr.startswith("fadas-1: 1 steps, 5 updates")
    assert len(read_records(tmp_path / "out" / "fadas-1")) == 1


def test_last_step_after_refusal_is_evaluated(tmp_path):
    path = tmp_path / "late.toml"
    path.write_text(
        'task = { name = "digits", clients = 12 }\nschedule = { concurrency = 6, buffer = 3 }\n'
        'faults.bad = { kind = "nan", clients = [0, 1, 2] }\nrun = { time = 40.0, eval_every = 1000, seeds = [3] }\n'
        "[algorithms.fadas]\n"
    )
    planned = json.loads(run_fadas("plan", path, "--json").stdout)
    run_fadas("run", path, "--out", tmp_path / "out")
    folder = tmp_path / "out" / "fadas-3"
    *earlier, last = read_records(folder)
    assert len(earlier) + 1 == last["step"] < planned["steps"]
    assert all(line["metrics"] is None for line in earlier)
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["accuracy"] == last["metrics"]["accuracy"] > 0.2


def test_executors_and_saved_config_give_same_numbers(tmp_path):
    for name in ("inline", "batched"):
        run_fadas("run", DEMO, "--only", "fedbuff", *SMALL, "--executor", name, "--out", tmp_path / name, "--no-report")
    saved = tmp_path / "inline" / "fedbuff-7" / "config.toml"
    run_fadas("run", saved, "--out", tmp_path / "saved", "--device", "cpu", "--no-report")
    one, two, three = (read_records(tmp_path / n / "fedbuff-7")[-1] for n in ("inline", "batched", "saved"))
    assert one["train_loss"] == pytest.approx(two["train_loss"], rel=1e-3)
    assert one["metrics"]["loss"] == pytest.approx(two["metrics"]["loss"], rel=1e-3)
    assert (one["train_loss"], one["metrics"]) == (three["train_loss"], three["metrics"])


def test_run_prints_json(tmp_path):
    done = run_fadas("run", DEMO, "--only", "fadas,fedasync", *SMALL, "--json", "--out", tmp_path / "o")
    objects = [json.loads(line) for line in done.stdout.splitlines()]
    assert [o["algorithm"] for o in objects] == ["fadas", "fedasync"]
    assert {"seed", "updates", "time", "tau_max", "accuracy", "folder"} <= objects[0].keys()
    again = run_fadas("run", DEMO, "--only", "fadas,fedasync", *SMALL, "--json", "--out", tmp_path / "o")
    assert again.stdout == done.stdout


def test_plan_prints_delays():
    one = json.loads(run_fadas("plan", DEMO, "--json", "--set", "run.steps=500", "--seed", "4").stdout)
    assert {"tau_max", "tau_avg", "tau_med", "virtual_time", "updates", "steps", "dropped"} <= one.keys()
    assert (one["algorithm"], one["steps"], one["updates"], one["dropped"]) == ("fadas", 500, 2500, 0)
    assert one["algorithms"]["fedavg"]["tau_max"] == 0
    assert "tau_avg" in run_fadas("plan", DEMO, "--only", "fedasync").stdout
    scaled = run_fadas(
        "plan", DEMO, "--json", "--only", "fadas", "--set", "delays.scale_by_data=true", "--set", "delays.dropout=0.2"
    )
    assert json.loads(scaled.stdout)["dropped"] > 0


def test_plan_shows_all_seeds():
    command = ["plan", DEMO, "--only", "fadas", "--set", "run.seeds=[4,5]"]
    both, alone = (json.loads(run_fadas(*command, "--json", *more).stdout) for more in ([], ["--seed", "5"]))
    assert (both["seed"], list(both["seeds"])) == (4, ["4", "5"])
    assert both["seeds"]["4"] == both["algorithms"]
    assert both["seeds"]["5"] == alone["algorithms"] != both["algorithms"]
    shown = run_fadas(*command).stdout
    assert "seed 4" in shown
    assert "seed 5" in shown


def test_interrupted_run_can_be_resumed(tmp_path):
    process = start_paused(500, "run", DEMO, "--only", "fadas", "--seed", "3", "--out", tmp_path / "o")
    metrics = tmp_path / "o" / "fadas-3" / "metrics.jsonl"
    wait_until(lambda: count_lines(metrics) > 1, process=process)
    process.send_signal(signal.SIGINT)
    assert "fadas: interrupted after step" in process.communicate(timeout=300)[1].strip().splitlines()[-1]
    assert process.returncode == 130
    assert read_records(metrics.parent)
    assert not (tmp_path / "o" / "fadas-3" / "summary.json").exists()
    said = run_fadas("report", tmp_path / "o", code=2).stderr
    assert "fadas-3; wait for them; if they were interrupted, run the same command with --resume" in said
    again = ["run", DEMO, "--only", "fadas", "--seed", "3", "--out", tmp_path / "o"]
    assert "continue it with --resume, or start over with --overwrite" in run_fadas(*again, code=2).stderr
    assert "exclude each other" in run_fadas(*again, "--resume", "--overwrite", code=2).stderr
    assert "continued after step" in run_fadas(*again, "--resume").stderr
    assert [line["step"] for line in read_records(metrics.parent)] == list(range(1, 501))
    assert not list(metrics.parent.glob("checkpoint*"))


def test_parallel_runs_write_the_files_of_serial_ones(tmp_path):
    short = ["--set", "run.updates=50", "--set", "run.eval_every=2", "--set", "run.seeds=[1,2]"]
    options = ["run", DEMO, "--only", "fadas,fedbuff", *short, "--no-report", "--out"]
    one, two = run_fadas(*options, tmp_path / "one"), run_fadas(*options, tmp_path / "two", "-j", "2")
    names = {f"{label}-{seed}" for label in ("fadas", "fedbuff") for seed in (1, 2)}
    assert {line.split(":")[0] for line in two.stderr.splitlines()} >= names
    assert len(one.stderr.splitlines()) == len(two.stderr.splitlines())
    for name in names:
        for file in ("metrics.jsonl", "model.safetensors", "config.toml"):
            assert (tmp_path / "one" / name / file).read_bytes() == (tmp_path / "two" / name / file).read_bytes()
    again = run_fadas(*options, tmp_path / "two", "-j", "2").stderr
    assert again.count("skipped, it has finished in") == 4


def test_parallel_runs_that_diverge_are_named(tmp_path):
    wild = ["--set", "algorithms.fedbuff.eta=1e30", "--set", "local.lr=1e30"]
    done = run_fadas("run", DEMO, "--only", "fadas,fedbuff", *SMALL, *wild, "-j", "2", "--out", tmp_path, code=3)
    assert "diverged" in done.stderr


def test_run_stops_at_target(tmp_path):
    stop = ["--set", "run.stop_at_target=true", "--set", "run.target=0.5"]
    done = run_fadas("run", DEMO, "--only", "fadas", "--seed", "3", *stop, "--out", tmp_path, "--json")
    result = json.loads(done.stdout)
    assert result["metrics"]["accuracy"] >= 0.5
    assert result["step"] < 500
    assert result["time_to_target"] == result["time"]


def test_set_applies_to_every_algorithm(tmp_path):
    run_fadas("run", DEMO, "--only", "fedavg", *SMALL, "--set", "local.lr=0.07", "--out", tmp_path, "--no-report")
    assert "lr = 0.07" in (tmp_path / "fedavg-7" / "config.toml").read_text()


def test_code_in_current_folder_and_relative_paths_are_found(tmp_path):
    (tmp_path / "mine.py").write_text("from fadas import FedBuff\ndef slow(eta: float): return FedBuff(eta)\n")
    (tmp_path / "d.csv").write_text("client,low,high\n" + "".join(f"{c},1,2\n" for c in range(50)))
    text = DEMO.read_text().replace('name = "large"', 'name = "table"\npath = "d.csv"')
    text = text.replace("[algorithms.fadas]\neta = 0.003", "[algorithms.fadas]\npreset = 'mine:slow'\neta = 0.5")
    (tmp_path / "sub").mkdir()
    (tmp_path / "x.toml").write_text(text)
    run_fadas("run", "x.toml", "--only", "fadas", *SMALL, cwd=tmp_path, code=0)
    again = ["run", tmp_path / "x.toml", "--only", "fedbuff", *SMALL, "--out", tmp_path / "o"]
    run_fadas(*again, cwd=tmp_path / "sub")
    (tmp_path / "d.csv").write_text("client,low,high\n" + "".join(f"{c},1,3\n" for c in range(50)))
    assert "other settings" in run_fadas(*again, cwd=tmp_path / "sub", code=2).stderr
    saved = tmp_path / "o" / "fedbuff-7" / "config.toml"
    assert (
        "has changed since these settings were saved" in run_fadas("run", saved, "--out", tmp_path / "p", code=2).stderr
    )


def test_centralised_training_has_no_virtual_time(tmp_path):
    path = write_experiment(tmp_path, BASE.replace("[algorithms.fadas]", "[algorithms.centralised]"))
    done = run_fadas("run", path, "--out", tmp_path / "out", "--no-report")
    assert "virtual time" not in done.stderr
    assert json.loads(run_fadas("plan", path, "--json").stdout)["virtual_time"] is None
    assert " - " in run_fadas("plan", path).stdout
