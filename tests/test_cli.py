"""The command line as a user types it: a process, its output, its exit code."""

import json
import signal
import subprocess
import sys

import pytest
from safetensors.torch import load_file

from fadas.tasks import TASKS
from helpers.cli import DEMO, SMALL, paused_command, run_fadas
from helpers.folders import read_records
from helpers.processes import count_lines, restore_interrupt, wait_until


def test_help_loads_nothing_heavy_and_shows_examples():
    text = run_fadas("--help").stdout
    for command in ("run", "plan", "sweep", "report", "watch", "reproduce", "list", "bench"):
        assert command in text
        assert "Example" in run_fadas(command, "--help").stdout
    # in the command's own text: some versions of typer and click together do not show the help of arguments
    for command, words in {"bench": ("cpu|gpu|ray|plan",), "reproduce": ("list names", "report renders")}.items():
        assert all(word in run_fadas(command, "--help").stdout for word in words)
    assert "cifar10|cifar100" in run_fadas("data", "get", "--help").stdout
    heavy = "import sys, fadas.cli; print([m for m in ('torch', 'numpy', 'matplotlib', 'sklearn') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", heavy], capture_output=True, text=True).stdout == "[]\n"


def test_run_from_the_issue(tmp_path):
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
def test_a_full_disk_at_the_end_says_how_to_go_on(tmp_path):
    run = ["run", DEMO, "--only", "fadas", *SMALL, "--out", tmp_path]
    limited = (
        "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (15_000,) * 2); from fadas.cli import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", limited, *run], capture_output=True, text=True)
    assert done.returncode == 2
    assert (tmp_path / "fadas-7" / "model.safetensors").stat().st_size == 15_000
    last = done.stderr.splitlines()[-1]
    assert last.endswith("File too large after step 10; there is no checkpoint yet; free some space, then --resume")
    report = tmp_path / "report.html"
    report.symlink_to("/dev/full")
    for arguments in ([*run, "--resume"], ["report", tmp_path]):
        error = run_fadas(*arguments, code=2).stderr.splitlines()[-1]
        assert "No space left on device" in error
        assert error.endswith("; free some space, then give the command again")
    report.unlink()
    assert "already there" in run_fadas(*run).stderr
    assert report.exists()


def test_run_again_says_so(tmp_path):
    first = run_fadas("run", DEMO, "--only", "fadas,fedavg", *SMALL, cwd=tmp_path)
    assert "accuracy" in first.stdout
    metrics = tmp_path / "runs" / "demo" / "fadas-7" / "metrics.jsonl"
    before = metrics.read_bytes(), metrics.stat().st_mtime_ns
    again = run_fadas("run", DEMO, "--only", "fadas,fedavg", *SMALL, cwd=tmp_path)
    assert "already there" in again.stderr
    assert (metrics.read_bytes(), metrics.stat().st_mtime_ns) == before
    other = run_fadas("run", DEMO, "--only", "fadas", *SMALL, "--set", "local.epochs=1", cwd=tmp_path, code=2)
    assert "other settings" in other.stderr
    run_fadas("run", DEMO, "--only", "fadas", *SMALL, "--overwrite", "--no-report", cwd=tmp_path)
    assert metrics.stat().st_mtime_ns != before[1]
    assert metrics.read_bytes() == before[0]


def test_what_lies_in_the_current_folder_is_not_run(tmp_path):
    (tmp_path / "numpy.py").write_text("raise SystemExit(7)")
    (tmp_path / "torch.py").write_text("raise SystemExit(7)")
    run_fadas("run", DEMO, "--set", "run.steps=1", "--only", "fadas", "--out", tmp_path / "out", cwd=tmp_path)


def test_the_last_step_is_evaluated_though_a_refusal_made_it_the_last(tmp_path):
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


def test_executors_and_the_saved_config_give_the_same_numbers(tmp_path):
    for name in ("inline", "batched"):
        run_fadas("run", DEMO, "--only", "fedbuff", *SMALL, "--executor", name, "--out", tmp_path / name, "--no-report")
    saved = tmp_path / "inline" / "fedbuff-7" / "config.toml"
    run_fadas("run", saved, "--out", tmp_path / "saved", "--device", "cpu", "--no-report")
    one, two, three = (read_records(tmp_path / n / "fedbuff-7")[-1] for n in ("inline", "batched", "saved"))
    assert one["train_loss"] == pytest.approx(two["train_loss"], rel=1e-3)
    assert one["metrics"]["loss"] == pytest.approx(two["metrics"]["loss"], rel=1e-3)
    assert (one["train_loss"], one["metrics"]) == (three["train_loss"], three["metrics"])


def test_run_json(tmp_path):
    done = run_fadas("run", DEMO, "--only", "fadas,fedasync", *SMALL, "--json", "--out", tmp_path / "o")
    objects = [json.loads(line) for line in done.stdout.splitlines()]
    assert [o["algorithm"] for o in objects] == ["fadas", "fedasync"]
    assert {"seed", "updates", "time", "tau_max", "accuracy", "folder"} <= objects[0].keys()
    again = run_fadas("run", DEMO, "--only", "fadas,fedasync", *SMALL, "--json", "--out", tmp_path / "o")
    assert again.stdout == done.stdout


def test_plan():
    one = json.loads(run_fadas("plan", DEMO, "--json", "--set", "run.steps=500", "--seed", "4").stdout)
    assert {"tau_max", "tau_avg", "tau_med", "virtual_time", "updates", "steps", "dropped"} <= one.keys()
    assert (one["algorithm"], one["steps"], one["updates"], one["dropped"]) == ("fadas", 500, 2500, 0)
    assert one["algorithms"]["fedavg"]["tau_max"] == 0
    assert "tau_avg" in run_fadas("plan", DEMO, "--only", "fedasync").stdout
    scaled = run_fadas(
        "plan", DEMO, "--json", "--only", "fadas", "--set", "delays.scale_by_data=true", "--set", "delays.dropout=0.2"
    )
    assert json.loads(scaled.stdout)["dropped"] > 0


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


def test_list_and_bench():
    text = run_fadas("list").stdout
    for name in ("fadas-da", "calibrated", "amsgrad", "delay-adaptive", "large", "digits", "batched", "[low, high]"):
        assert name in text
    (rows,) = json.loads(run_fadas("bench", "plan", "--scale", "0.01", "--json").stdout)["tables"].values()
    assert [row["clients"] for row in rows] == [10_000, 100_000, 1_000_000]
    assert "plain PyTorch loop" in run_fadas("bench", "cpu", "--scale", "0.01").stdout


def test_tensorboard(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run_fadas("run", DEMO, "--only", "fadas", *SMALL, "--set", "run.tensorboard=true", "--out", tmp_path)
    events = EventAccumulator(str(tmp_path / "fadas-7"))
    events.Reload()
    assert [event.step for event in events.Scalars("train/loss")] == list(range(1, 11))
    assert len(events.Scalars("test/accuracy")) == 5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "nowhere.toml"], "cannot read nowhere.toml: No such file"),
        (["run", DEMO, "--only", "fadaz"], "unknown algorithm 'fadaz'; did you mean 'fadas'?"),
        (["run", DEMO, "--set", "run.stepz=1"], "did you mean 'run.steps'?"),
        (["run", DEMO, "--set", "run.steps=many"], "must be a whole number"),
        (["run", DEMO, "--set", "schedule.concurrency=51"], "exceeds the number of clients"),
        (["run", DEMO, "--only", "fadas", "--set", "schedule.buffer=26", "--set", "schedule.refill=round"], "exceeds"),
        (["run", DEMO, "--set", "algorithms.fadas.eta=-1"], "must be a positive number"),
        (
            ["run", DEMO, "--set", "local.lr=-1", "--only", "fadas", "--set", "algorithms.fadas.local={}"],
            "positive number",
        ),
        (["run", DEMO, "--set", "task.clients=2000"], "examples are too few for 2000 clients"),
        (
            ["run", DEMO, "--set", "delays.name=table", "--set", "delays.path=no.csv"],
            "cannot read the delay table no.csv",
        ),
        (["run", DEMO, "--executor", "magic"], "unknown executor 'magic'"),
        (["run", DEMO, "--device", "abacus"], "executor.device: 'abacus' cannot be used"),
        (["run", DEMO, "--device", "cuda:77"], "executor.device"),
        (["run", DEMO, "--device", "meta"], "executor.device"),
        (["run", DEMO, "--set", "local.lr=1e308"], "cannot be trained"),
        (["run", DEMO, "--only", ","], "unknown algorithm ''"),
        (["run", DEMO, "--sed", "1"], "No such option"),
        (["run", DEMO, "--set", "task.validation=1e-9"], "leaves nothing on one side"),
        (["run", DEMO, "--set", "delays={name='pareto', shape=0.0001}"], "durations are beyond all numbers"),
        (["run", DEMO, "--executor", "inline", "--set", "executor.name=batched"], "contradict each other"),
        (["run", DEMO, "--executor", "processes", "--set", "executor.workers=100000"], "more than a machine can bear"),
        (["run", DEMO, "--set", "delays={name='uniform', low=1e150, high=2e150}"], "times below 1e+100"),
        (["run", DEMO, "--set", "task.name=os:environ"], "not something that makes one"),
        (["run", DEMO, "--set", "task.name=builtins:int"], "cannot be used here"),
        (["run", DEMO, "--out", "/dev/null/x"], "/dev/null exists and is not a folder"),
        (["sweep", DEMO, "--validation", "0"], "between 0 and 1"),
        (["run", DEMO, "--profile", "smoky"], "demo.toml has no profiles"),
        (["run", DEMO, "--seed", "-1"], "seeds must be"),
        (["run", DEMO, "--set", "delays.deadline=0.5"], "no update arrived"),
        (["plan", DEMO, "--set", "run.time=0.1"], "time limit"),
        (["report", "nowhere"], "no finished runs in nowhere"),
        (["bench", "toast"], "unknown benchmark 'toast'"),
        (["deploy", "init", "app", "--task", "digitz"], "unknown task 'digitz'; did you mean 'digits'?"),
        (["deploy", "init", "app", "--task", "files"], "unknown task 'files'; known: cifar10, "),
        (["deploy", "init", "app", "--task", "mine:task"], "unknown task 'mine:task'; known: cifar10, "),
        (["run", DEMO, "--executor", "cuda"], "the cuda executor needs a CUDA device"),
        (["sweep", DEMO, "--validation", "7"], "held-out share"),
        (["run", DEMO, "--set", "sweep.fedbuf.eta=[1]"], "unknown algorithm 'fedbuf'; did you mean 'fedbuff'?"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(tmp_path, arguments, message):
    done = run_fadas(*arguments, cwd=tmp_path, code=2)
    assert message in done.stderr
    assert done.stderr.startswith("fadas: ")
    assert len(done.stderr.splitlines()) == 1
    assert done.stdout == ""
    assert not [path for path in tmp_path.rglob("*") if path.is_file()], "nothing may be left behind"


def test_every_command_can_show_the_traceback(monkeypatch):
    monkeypatch.setenv("FADAS_DEBUG", "1")
    for command in ("run", "plan", "sweep", "report"):
        text = run_fadas(command, "nowhere.toml", code=2).stderr
        assert text.startswith("Traceback")
        assert text.splitlines()[-1].startswith("fadas: ")


def test_usage_errors_exit_with_2(tmp_path):
    for arguments in (["run"], ["fly"], ["sweep", DEMO, "-j", "0"], ["run", DEMO, "--seed", "abc"]):
        assert len(run_fadas(*arguments, code=2).stderr.splitlines()) == 1


def test_interrupted_runs_leave_what_they_had_say_how_to_go_on_and_do(tmp_path):
    command = paused_command(500, "run", DEMO, "--only", "fadas", "--seed", "3", "--out", tmp_path / "o")
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, preexec_fn=restore_interrupt)
    metrics = tmp_path / "o" / "fadas-3" / "metrics.jsonl"
    wait_until(lambda: count_lines(metrics), process=process)
    process.send_signal(signal.SIGINT)
    assert "fadas: interrupted after step" in process.communicate(timeout=300)[1].strip().splitlines()[-1]
    assert process.returncode == 130
    assert read_records(metrics.parent)
    assert not (tmp_path / "o" / "fadas-3" / "summary.json").exists()
    assert "no finished runs" in run_fadas("report", tmp_path / "o", code=2).stderr
    again = ["run", DEMO, "--only", "fadas", "--seed", "3", "--out", tmp_path / "o"]
    assert "continue it with --resume, or begin anew with --overwrite" in run_fadas(*again, code=2).stderr
    assert "exclude each other" in run_fadas(*again, "--resume", "--overwrite", code=2).stderr
    assert "continued after step" in run_fadas(*again, "--resume").stderr
    assert [line["step"] for line in read_records(metrics.parent)] == list(range(1, 501))
    assert not list(metrics.parent.glob("checkpoint*"))


def test_a_run_stops_at_its_target(tmp_path):
    stop = ["--set", "run.stop_at_target=true", "--set", "run.target=0.5"]
    done = run_fadas("run", DEMO, "--only", "fadas", "--seed", "3", *stop, "--out", tmp_path, "--json")
    result = json.loads(done.stdout)
    assert result["metrics"]["accuracy"] >= 0.5
    assert result["step"] < 500
    assert result["time_to_target"] == result["time"]


def test_set_counts_for_every_algorithm(tmp_path):
    run_fadas("run", DEMO, "--only", "fedavg", *SMALL, "--set", "local.lr=0.07", "--out", tmp_path, "--no-report")
    assert "lr = 0.07" in (tmp_path / "fedavg-7" / "config.toml").read_text()


def test_code_in_the_current_folder_and_paths_in_the_file(tmp_path):
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
    assert "is not what it was" in run_fadas("run", saved, "--out", tmp_path / "p", code=2).stderr
