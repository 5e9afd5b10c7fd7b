"""A run that loses its folder to another process."""

import shutil

import pytest

from fadas.errors import ConfigError
from fadas.experiments.run import execute
from fadas.runs import lock
from fadas.runs.folder import is_finished
from helpers.experiments import prepare_run
from helpers.folders import read_files


@pytest.mark.parametrize("every", [3, 0])
@pytest.mark.parametrize("again", [False, True])
def test_a_run_whose_folder_is_gone_writes_nothing_into_its_successors(tmp_path, every, again):
    folder = tmp_path / "fadas-1"
    config, simulation = prepare_run(0.1, every)
    there = {}

    def replace(record):
        if record.step == 2:
            shutil.rmtree(folder)
            if again:  # another process may begin there: for it, nothing is locked
                folder.mkdir()
                (folder / lock.NAME).touch()
                (folder / "config.toml").write_text("another's")
                there.update(read_files(folder))

    with pytest.raises(ConfigError, match="fadas-1 was deleted or moved while its run was writing there"):
        execute(config, simulation, folder, replace)
    assert (read_files(folder) if again else there) == there
    assert folder.exists() == again
    lock.acquire(folder)
    lock.release(folder)


@pytest.mark.parametrize(("lr", "message"), [(0.1, "written meanwhile"), (0.2, "other settings")])
def test_resume_never_replaces_a_run_that_another_process_has_finished_meanwhile(tmp_path, lr, message):
    """Between the first look at a folder and its turn lie hours, where there are many runs."""
    folder = tmp_path / "fadas-1"
    config, simulation = prepare_run(0.1)
    assert is_finished(folder, config.tables, resume=True) is False
    execute(*prepare_run(lr), folder, lambda record: None)  # as another process would
    before = read_files(folder)
    with pytest.raises(ConfigError, match=message):
        execute(config, simulation, folder, lambda record: None, resume=True)
    assert read_files(folder) == before
