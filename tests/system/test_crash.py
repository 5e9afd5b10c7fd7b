"""Real runs, killed with SIGKILL at random moments and resumed until done, end with the same bits.

11 kills by default; FADAS_KILLS=200 for `make test-crash`.
"""

import os
import random
import signal
import subprocess
import time

import pytest

from fadas.report.html import write_report
from fadas.runs.reader import find_runs
from helpers.cli import DEMO, run_fadas, start_paused
from helpers.folders import read_files
from helpers.forks import run_in_fork
from helpers.processes import count_lines, wait_until

ALGORITHMS, EXECUTORS = ("fadas", "fadas-da", "ca2fl", "fedams"), ("inline", "batched")


KILLS = int(os.environ.get("FADAS_KILLS", "11"))


CASES = [(algorithm, executor) for executor in EXECUTORS for algorithm in ALGORITHMS]


# Clients drop out, fail, and report garbage that the server refuses.
SETTINGS = ["run.checkpoint_every=7", "delays.dropout=0.05", 'faults.bad={kind="nan",clients=[3,7],end=100.0}']


def make_arguments(algorithm, executor, steps, out):
    overrides = [f"run.updates={steps}", "run.eval_every=10", *SETTINGS]
    options = [f"--set={override}" for override in overrides]
    base = ["run", DEMO, "--only", algorithm, "--seed", "1"]
    return [*base, "--executor", executor, "--out", out, "--no-report", *options]


def run_whole(*settings, resume=False, **environment):
    """Run to the end, from the start or from the last checkpoint."""
    return run_fadas(*make_arguments(*settings), *(["--resume"] if resume else []), **environment)


def read_results(folder):
    return read_files(folder, ("metrics.jsonl", "model.safetensors", "config.toml", "partition.json"))


# The command line, but with a checkpoint whenever one is due. Otherwise, a slow write is followed by a pause of nine
# times its length, and a run on a busy machine may end before its checkpoints fill the disk.
EVERY_CHECKPOINT = """
from fadas.runs import checkpoint
from fadas.cli import main
checkpoint.BackgroundWriter.ready = lambda self: True
main()
"""


def read_report(folder):
    write_report(find_runs(folder), folder / "report.html")
    return (folder / "report.html").read_text().replace(str(folder), "FOLDER")


@pytest.mark.parametrize(("case", "algorithm", "executor"), [(k, *case) for k, case in enumerate(CASES)])
def test_repeatedly_killed_run_ends_with_same_bits(case, algorithm, executor, tmp_path):
    kills = (KILLS + len(CASES) - 1 - case) // len(CASES)
    updates = (800 if executor == "inline" else 3000) // (1 if KILLS > 50 else 4)
    whole, killed = tmp_path / "whole" / f"{algorithm}-1", tmp_path / "killed" / f"{algorithm}-1"
    run_whole(algorithm, executor, updates, whole.parent, OMP_NUM_THREADS="1")
    lines = count_lines(whole / "metrics.jsonl")
    rng = random.Random(f"{algorithm} {executor}")
    metrics = killed / "metrics.jsonl"
    done = 0
    arguments = make_arguments(algorithm, executor, updates, killed.parent)
    for number in range(kills):
        process = start_paused(lines, *arguments, "--resume")
        # a random moment within this process's share of the run
        share = (number + rng.random()) * 0.9 * lines / kills
        while process.poll() is None and count_lines(metrics) < share:
            time.sleep(0.002)
        time.sleep(rng.random() * 0.01)
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL, "the run was over before it could be killed"
        done += 1
        steps = [line.split(b",")[0] for line in metrics.read_bytes().splitlines()] if metrics.exists() else []
        assert len(steps) == len(set(steps)), "metrics.jsonl has a step twice"
    run_whole(algorithm, executor, updates, killed.parent, resume=True, OMP_NUM_THREADS="1")
    assert done == kills
    assert read_results(killed) == read_results(whole)
    if algorithm == "fadas" or KILLS > 50:  # drawing takes long
        assert read_report(killed) == read_report(whole)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_run_resumes_past_damaged_checkpoint(number, tmp_path):
    whole, ended = tmp_path / "whole" / "fadas-1", tmp_path / "ended" / "fadas-1"
    run_whole("fadas", "inline", 500, whole.parent)
    process = start_paused(100, *make_arguments("fadas", "inline", 500, ended.parent))
    wait_until(lambda: count_lines(ended / "metrics.jsonl") >= 40, process=process, pause=0.01)
    process.send_signal(number)
    text = process.communicate(timeout=60)[1]
    assert process.returncode == 130
    assert "run the same command with --resume to continue" in text
    newest, *_ = sorted(ended.glob("checkpoint-*.ckpt"), reverse=True)
    if number == signal.SIGTERM:
        newest.write_bytes(newest.read_bytes()[:-100])
    again = run_whole("fadas", "inline", 500, ended.parent, resume=True)
    assert (f"{newest} cannot be used: its checksum is wrong" in again.stderr) is (number == signal.SIGTERM)
    assert read_results(ended) == read_results(whole)


@pytest.fixture
def small_disk(tmp_path):
    """A file system of three megabytes."""
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", folder], capture_output=True)
    if mounted.returncode:
        pytest.skip("may not mount a tmpfs")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


def test_full_disk_ends_run_with_usable_checkpoint(small_disk, tmp_path):
    whole, full = tmp_path / "whole" / "ca2fl-1", small_disk / "runs" / "ca2fl-1"
    run_whole("ca2fl", "inline", 800, whole.parent)
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(200_000))
    arguments = make_arguments("ca2fl", "inline", 800, full.parent)
    ended = run_in_fork(arguments, EVERY_CHECKPOINT)
    assert ended.returncode == 2, ended.stderr
    (line,) = [line for line in ended.stderr.splitlines() if line.startswith("fadas: ")]
    assert "No space left on device after step" in line
    assert "is intact; free some space, then continue with --resume" in line
    subprocess.run(["mount", "-o", "remount,size=60m", small_disk], check=True)
    again = run_whole("ca2fl", "inline", 800, full.parent, resume=True)
    assert "continued after step" in again.stderr
    assert read_results(full) == read_results(whole)
