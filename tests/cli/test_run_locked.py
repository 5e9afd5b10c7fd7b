"""Several runs, one of which another process is running: the others run, and the command says so."""

import json
import shutil
from contextlib import ExitStack

import pytest

from fadas.experiments.run import execute
from fadas.runs import lock
from fadas.runs.reader import find_runs
from helpers.cli import DEMO, DIVERGING, SMALL, call_fadas, run_fadas
from helpers.processes import hold_lock

pytest.importorskip("fcntl")


RUN = ["run", DEMO, "--only", "fedbuff,fedavg", *SMALL, "--executor", "inline"]


WAIT = "wait for it, or choose another folder with --out DIR"
SKIPPED = f"fadas: 1 of 2 runs skipped, because another process is running them: {{}}; {WAIT}"


@pytest.fixture(scope="module")
def finished_runs(tmp_path_factory):
    """A folder with both runs, finished."""
    folder = tmp_path_factory.mktemp("finished_runs")
    run_fadas(*RUN, "--out", folder, "--no-report")
    return folder


@pytest.mark.parametrize("more", [[], ["--resume"], ["--overwrite"]])
def test_run_skips_locked_run_and_names_it_last(tmp_path, more):
    command = [*RUN, "--out", tmp_path, *more]
    with hold_lock(tmp_path / "fedbuff-7"):
        result = run_fadas(*command, code=2)
        assert [path.name for path in (tmp_path / "fedbuff-7").iterdir()] == [lock.NAME]
    first, second, last = result.stderr.splitlines()
    assert first.startswith("fedavg-7: 2 steps")
    assert second == "fedbuff-7: another process was running it; trying again"
    assert last == SKIPPED.format("fedbuff-7")
    assert "report.html" in result.stdout
    assert [run.folder.name for run in find_runs(tmp_path)] == ["fedavg-7"]
    rows = run_fadas(*command, "--json").stdout.splitlines()
    assert [json.loads(row)["algorithm"] for row in rows] == ["fedbuff", "fedavg"]


def test_run_is_refused_when_only_locked_run_remains(tmp_path, finished_runs):
    shutil.copytree(finished_runs / "fedavg-7", tmp_path / "fedavg-7")
    with hold_lock(tmp_path / "fedbuff-7"):
        error = run_fadas(*RUN, "--out", tmp_path, code=2).stderr
    assert error == f"fadas: {tmp_path / 'fedbuff-7'} is in use by another process; {WAIT}\n"


def test_skipped_run_outranks_diverged_run_in_exit_code(tmp_path):
    with hold_lock(tmp_path / "fedavg-7"):
        lines = run_fadas(*RUN, *DIVERGING, "--out", tmp_path, code=2).stderr.splitlines()
    assert lines[0].startswith("fedbuff-7: diverged after step")
    assert lines[-1] == SKIPPED.format("fedavg-7")


@pytest.fixture
def run_while(tmp_path, monkeypatch):
    """Run the command in this process. `meanwhile` is called when its first run begins."""

    def run_while(meanwhile):
        def start_first(*arguments, **options):
            meanwhile()
            monkeypatch.setattr("fadas.experiments.run.execute", execute)
            return execute(*arguments, **options)

        monkeypatch.setattr("fadas.experiments.run.execute", start_first)
        code, _, errors = call_fadas(*RUN, "--out", tmp_path)
        return code, errors.splitlines()

    return run_while


def test_run_started_elsewhere_meanwhile_is_skipped(tmp_path, run_while):
    with ExitStack() as other:
        code, lines = run_while(lambda: other.enter_context(hold_lock(tmp_path / "fedavg-7")))
    assert code == 2
    assert lines[0].startswith("fedbuff-7: 10 steps")
    assert lines[1:] == ["fedavg-7: another process was running it; trying again", SKIPPED.format("fedavg-7")]


def test_run_finished_elsewhere_meanwhile_is_used(tmp_path, run_while, finished_runs):
    code, lines = run_while(lambda: shutil.copytree(finished_runs / "fedavg-7", tmp_path / "fedavg-7"))
    assert code == 0
    assert lines[1].startswith("fedavg-7: skipped, it has finished in")
    assert [run.folder.name for run in find_runs(tmp_path)] == ["fedbuff-7", "fedavg-7"]


@pytest.mark.parametrize("pauses", [1, 3])
def test_locked_run_finished_elsewhere_is_used(tmp_path, run_while, finished_runs, monkeypatch, pauses):
    """The other process ends after one pause, while the lock is retried, or after three, when all else is done."""
    with ExitStack() as other:
        slept = []

        def sleep_or_finish(seconds):
            slept.append(seconds)
            if len(slept) == pauses:
                shutil.copytree(finished_runs / "fedavg-7", tmp_path / "fedavg-7", dirs_exist_ok=True)
                other.close()

        def meanwhile():
            other.enter_context(hold_lock(tmp_path / "fedavg-7"))
            monkeypatch.setattr("fadas.runs.lock.time.sleep", sleep_or_finish)

        code, lines = run_while(meanwhile)
    assert code == 0
    assert lines[-1].startswith("fedavg-7: skipped, it has finished in")
    assert [run.folder.name for run in find_runs(tmp_path)] == ["fedbuff-7", "fedavg-7"]


def test_damaged_run_is_named_before_others_start(tmp_path, finished_runs):
    shutil.copytree(finished_runs / "fedavg-7", tmp_path / "fedavg-7")
    (tmp_path / "fedavg-7" / "summary.json").write_text("{")
    (line,) = run_fadas(*RUN, "--out", tmp_path, code=2).stderr.splitlines()
    assert line.startswith(f"fadas: {tmp_path / 'fedavg-7' / 'summary.json'} is damaged: ")
    assert line.endswith("; delete the folder to run it again")
    assert not (tmp_path / "fedbuff-7").exists()
