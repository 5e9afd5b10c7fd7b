"""Interrupted and killed sweeps."""

import re
import signal
from dataclasses import replace

import pytest

import fadas.experiments.run
import fadas.experiments.sweeps.halving
import fadas.simulation.snapshot
from fadas.errors import Interrupted
from fadas.experiments.sweeps.points import run_point, sweep_points
from helpers.cli import run_fadas, start_fadas
from helpers.experiments import LONG_SWEEP, make_sweep
from helpers.folders import read_times
from helpers.processes import count_lines, find_session, interrupt_when, interruptible, session_of, wait_until


def count_steps(root):
    return sorted(count_lines(path) for path in root.glob("*/metrics.jsonl"))


def kill_sweep(process, root):
    """Start a sweep and kill it when two runs have trained a while. Its workers must end too."""
    before = sum(count_steps(root))
    with session_of(process):
        wait_until(lambda: len(count_steps(root)) >= 2 and sum(count_steps(root)) >= before + 20, process=process)
        process.kill()
        process.wait()
        wait_until(lambda: not find_session(process.pid), what="the workers did not end")


@pytest.mark.parametrize(("jobs", "options"), [(1, []), (2, []), (2, ["--halving"])])
def test_interrupted_sweep_ends_workers_and_can_resume(jobs, options, tmp_path):
    (tmp_path / "long.toml").write_text(LONG_SWEEP)
    command = ["sweep", "long.toml", "-j", jobs, *options]
    root = tmp_path / "runs" / "long-sweep" / "fadas"
    begun = lambda pid: len(count_steps(root)) == jobs and count_steps(root)[0] > 10  # noqa: E731
    code, text = interrupt_when(begun, start_fadas(*command, cwd=tmp_path), signal.SIGINT)
    assert code == 130
    assert re.fullmatch(r"fadas: interrupted( after.*)?; run the same command to continue\n", text), text
    assert len(list(root.glob("*/checkpoint-*.ckpt"))) >= jobs, "each run keeps a checkpoint"
    first, begun = count_steps(root), read_times(root.glob("*/config.toml"))
    assert len(begun) == jobs, "no further point starts"
    resumed = lambda pid: count_steps(root)[0] > first[-1] + 10  # noqa: E731
    code, _ = interrupt_when(resumed, start_fadas(*command, cwd=tmp_path), signal.SIGTERM)
    assert code == (130 if jobs == 1 else 128 + signal.SIGTERM)
    assert read_times(root.glob("*/config.toml")) == begun, "the runs were resumed, not restarted"
    done = run_fadas(*command, "--set", "local.lr=0.5", cwd=tmp_path, code=2)
    told = "holds a run with other settings (local.lr was 0.01 and is 0.5); choose another folder with --out DIR, or "
    told += "delete this one\n"
    assert done.stderr.endswith(told)


def test_killed_sweep_ends_workers_and_can_resume(tmp_path):
    (tmp_path / "long.toml").write_text(LONG_SWEEP)
    root = tmp_path / "runs" / "long-sweep" / "fadas"
    for _ in range(2):
        kill_sweep(start_fadas("sweep", "long.toml", "-j", 2, cwd=tmp_path), root)
        assert len(list(root.glob("*/checkpoint-*.ckpt"))) >= 2, "each run keeps a checkpoint"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_while_saving_paused_run_interrupts(monkeypatch, tmp_path, number):
    (point,) = sweep_points(make_sweep(), ["fadas"], [1], tmp_path, 0.2)

    def interrupt_and_take(simulation):
        signal.raise_signal(number)
        return fadas.simulation.snapshot.take(simulation)

    with interruptible(), monkeypatch.context() as patch, pytest.raises(Interrupted):
        patch.setattr(fadas.experiments.run, "take", interrupt_and_take)
        run_point({}, replace(point, share=1 / 2))
    assert list(point.folder.glob("checkpoint-*.ckpt"))
    assert run_point({}, replace(point, share=1 / 2)).updates == 40, "the run has been finished"
