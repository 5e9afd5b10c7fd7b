"""A run that loses its folder to another process, or is interrupted. What a long run keeps in memory."""

import json
import shutil
import signal

import pytest

from fadas.errors import ConfigError, Interrupted
from fadas.experiments import run
from fadas.experiments.run import execute_until
from fadas.runs import lock, writer
from fadas.runs.folder import Finished, claim, find_finished
from helpers.experiments import execute_in, prepare_run
from helpers.folders import count_records, read_files
from helpers.processes import interruptible


@pytest.mark.parametrize("every", [3, 0])
@pytest.mark.parametrize("again", [False, True])
def test_run_with_deleted_folder_writes_nothing_more(tmp_path, every, again):
    folder = tmp_path / "fadas-1"
    config, simulation = prepare_run(0.1, every)
    written = {}

    def replace(record):
        if record.step == 2:
            shutil.rmtree(folder)
            if again:  # another process may start there, because its folder is not locked
                folder.mkdir()
                (folder / lock.NAME).touch()
                (folder / "config.toml").write_text("another's")
                written.update(read_files(folder))

    with pytest.raises(ConfigError, match="fadas-1 was deleted or moved while its run was writing there"):
        execute_in(folder, config, simulation, on_record=replace)
    assert (read_files(folder) if again else written) == written
    assert folder.exists() == again
    lock.acquire(folder)
    lock.release(folder)


@pytest.mark.parametrize(("lr", "message"), [(0.1, None), (0.2, "other settings")])
def test_resume_keeps_run_finished_by_other_process(tmp_path, lr, message):
    """With many runs, hours pass between the first look at a folder and its turn."""
    folder = tmp_path / "fadas-1"
    config, _ = prepare_run(0.1)
    assert find_finished(folder, config.tables, "resume") is None
    execute_in(folder, *prepare_run(lr))  # as another process would
    before = read_files(folder)
    if message:
        with pytest.raises(ConfigError, match=message):
            claim(folder, config.tables, "resume")
    else:
        assert isinstance(claim(folder, config.tables, "resume"), Finished)
    assert read_files(folder) == before


def test_run_keeps_no_records_in_memory(tmp_path):
    before, alive = count_records(), {}
    config, simulation = prepare_run(0.1)
    execute_in(tmp_path / "o", config, simulation, on_record=lambda r: alive.update({r.step: count_records() - before}))
    assert set(alive) == {1, 2, 3, 4}
    assert max(alive.values()) <= 2, "the last one, and the one that is being made"


def test_resumed_run_has_summary_of_all_its_steps(tmp_path, monkeypatch):
    monkeypatch.setattr(writer, "_BLOCK", 100)  # bytes: files are read in many pieces
    whole = execute_in(tmp_path / "whole", *prepare_run(0.1)).as_dict()
    config, simulation = prepare_run(0.1)
    execute_until(config, simulation, claim(tmp_path / "o", config.tables), 10)
    before, said = count_records(), []
    execute_in(tmp_path / "o", *prepare_run(0.1), mode="resume", say=said.append)
    assert any("continued after step 2" in text for text in said)
    assert count_records() == before
    resumed = json.loads((tmp_path / "o" / "summary.json").read_text())
    for summary in (whole, resumed):
        summary.pop("wall")
    assert {key: resumed[key] for key in whole} == whole


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_while_complete_run_is_saved_is_sent_on(tmp_path, monkeypatch, number):
    """The run is finished, but nothing else must begin."""
    config, simulation = prepare_run(0.1)
    before = signal.signal(number, signal.default_int_handler)
    save = run._save_model
    monkeypatch.setattr(run, "_save_model", lambda *given: (signal.raise_signal(number), save(*given)))
    try:
        with pytest.raises(KeyboardInterrupt):
            execute_in(tmp_path / "o", config, simulation)
    finally:
        signal.signal(number, before)
    assert isinstance(claim(tmp_path / "o", config.tables), Finished)


def test_signal_while_folder_is_opened_interrupts_run(tmp_path, monkeypatch):
    config, simulation = prepare_run(0.1)
    make = run.Writer
    monkeypatch.setattr(run, "Writer", lambda *given: (signal.raise_signal(signal.SIGINT), make(*given))[1])
    with interruptible(), pytest.raises(Interrupted, match="interrupted after step 0, kept in"):
        execute_in(tmp_path / "o", config, simulation)
    monkeypatch.undo()
    said = []
    summary = execute_in(tmp_path / "o", *prepare_run(0.1), mode="resume", say=said.append)
    assert said == [f"{tmp_path / 'o'}: continued after step 0"]
    assert summary.updates == 20
