"""Several runs, one of which another process is running: the others run, and the command says so."""

import json
import shutil
from contextlib import ExitStack

import pytest

from fadas.experiments.run import execute
from fadas.runs import lock
from fadas.runs.run_reader import find_runs
from helpers.cli import DEMO, DIVERGING, SMALL, call_fadas, run_fadas
from helpers.processes import hold_lock

pytest.importorskip("fcntl")


RUN = ["run", DEMO, "--only", "fedbuff,fedavg", *SMALL, "--executor", "inline"]


LEFT_OUT = "fadas: 1 of 2 runs left out, in use by another process: {}; wait for it, or use --out DIR"


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """Both runs, finished."""
    folder = tmp_path_factory.mktemp("done")
    run_fadas(*RUN, "--out", folder, "--no-report")
    return folder


@pytest.mark.parametrize("more", [[], ["--resume"], ["--overwrite"]])
def test_the_others_run_and_it_is_named_at_the_end(tmp_path, more):
    command = [*RUN, "--out", tmp_path, *more]
    with hold_lock(tmp_path / "fedbuff-7"):
        result = run_fadas(*command, code=2)
        assert [path.name for path in (tmp_path / "fedbuff-7").iterdir()] == [lock.NAME]
    first, second, last = result.stderr.splitlines()
    assert first == "fedbuff-7: another process is at it"
    assert second.startswith("fedavg-7: 2 steps")
    assert last == LEFT_OUT.format("fedbuff-7")
    assert "report.html" in result.stdout
    assert [run.folder.name for run in find_runs(tmp_path)] == ["fedavg-7"]
    rows = run_fadas(*command, "--json").stdout.splitlines()
    assert [json.loads(row)["algorithm"] for row in rows] == ["fedbuff", "fedavg"]


def test_where_nothing_else_is_left_to_do_the_command_is_refused_at_once(tmp_path, done):
    shutil.copytree(done / "fedavg-7", tmp_path / "fedavg-7")
    with hold_lock(tmp_path / "fedbuff-7"):
        error = run_fadas(*RUN, "--out", tmp_path, code=2).stderr
    assert error == f"fadas: {tmp_path / 'fedbuff-7'} is in use by another process; wait for it, or use --out DIR\n"


def test_that_not_all_was_done_counts_for_more_than_that_a_run_diverged(tmp_path):
    with hold_lock(tmp_path / "fedavg-7"):
        lines = run_fadas(*RUN, *DIVERGING, "--out", tmp_path, code=2).stderr.splitlines()
    assert lines[0].startswith("fedbuff-7: diverged after step")
    assert lines[-1] == LEFT_OUT.format("fedavg-7")


@pytest.fixture
def run_while(tmp_path, monkeypatch):
    """Run the command in this process. `meanwhile` is called when its first run begins."""

    def run_while(meanwhile):
        def first(*arguments, **options):
            meanwhile()
            monkeypatch.setattr("fadas.experiments.run.execute", execute)
            return execute(*arguments, **options)

        monkeypatch.setattr("fadas.experiments.run.execute", first)
        code, _, errors = call_fadas(*RUN, "--out", tmp_path)
        return code, errors.splitlines()

    return run_while


def test_one_that_another_process_begins_meanwhile_is_left_out(tmp_path, run_while):
    with ExitStack() as other:
        code, lines = run_while(lambda: other.enter_context(hold_lock(tmp_path / "fedavg-7")))
    assert code == 2
    assert lines[0].startswith("fedbuff-7: 10 steps")
    assert lines[1:] == ["fedavg-7: another process is at it", LEFT_OUT.format("fedavg-7")]


def test_one_that_another_process_finishes_meanwhile_is_there(tmp_path, run_while, done):
    code, lines = run_while(lambda: shutil.copytree(done / "fedavg-7", tmp_path / "fedavg-7"))
    assert code == 0
    assert lines[1].startswith("fedavg-7: already there")
    assert [run.folder.name for run in find_runs(tmp_path)] == ["fedbuff-7", "fedavg-7"]


@pytest.mark.parametrize("pauses", [1, 3])
def test_one_that_another_process_was_at_and_has_finished_is_there(tmp_path, run_while, done, monkeypatch, pauses):
    """After one pause: while its lock was tried again. After three: when all others were done."""
    with ExitStack() as other:
        slept = []

        def sleep(seconds):
            slept.append(seconds)
            if len(slept) == pauses:
                shutil.copytree(done / "fedavg-7", tmp_path / "fedavg-7", dirs_exist_ok=True)
                other.close()

        def meanwhile():
            other.enter_context(hold_lock(tmp_path / "fedavg-7"))
            monkeypatch.setattr("fadas.runs.lock.time.sleep", sleep)

        code, lines = run_while(meanwhile)
    assert code == 0
    assert lines[-1].startswith("fedavg-7: already there")
    assert [run.folder.name for run in find_runs(tmp_path)] == ["fedbuff-7", "fedavg-7"]


def test_one_that_is_damaged_is_named_before_the_others_begin(tmp_path, done):
    shutil.copytree(done / "fedavg-7", tmp_path / "fedavg-7")
    (tmp_path / "fedavg-7" / "summary.json").write_text("{")
    (line,) = run_fadas(*RUN, "--out", tmp_path, code=2).stderr.splitlines()
    assert line.startswith(f"fadas: {tmp_path / 'fedavg-7'} is damaged: summary.json: ")
    assert line.endswith("; delete it to run it anew")
    assert not (tmp_path / "fedbuff-7").exists()
