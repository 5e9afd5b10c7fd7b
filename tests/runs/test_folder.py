"""Which folders a run may use."""

import pytest

from fadas.errors import ConfigError
from fadas.runs.folder import checkpoints, is_finished
from fadas.runs.reader import unfinished_runs
from fadas.runs.summary import summarise
from fadas.runs.writer import Writer
from helpers.folders import TABLES, make_record, write_run


def test_folder_states_decide_what_run_may_do(tmp_path):
    folder = tmp_path / "a-0"
    assert is_finished(folder, TABLES) is False
    write_run(folder, [make_record(1)], finish=False)
    assert is_finished(folder, TABLES) is False, "an unfinished run is restarted"
    assert unfinished_runs(tmp_path) == ["a-0"]
    write_run(folder, [make_record(1)])
    assert is_finished(folder, TABLES) is True
    assert is_finished(folder, TABLES, overwrite=True) is False
    with pytest.raises(ConfigError, match="written meanwhile"):
        Writer(folder, TABLES)
    same = {**TABLES, "executor": {"name": "batched"}, "run": {"seeds": [0], "tensorboard": True}}
    assert is_finished(folder, same) is True
    with pytest.raises(ConfigError, match="other settings"):
        is_finished(folder, {**TABLES, "local": {"lr": 0.1}})
    (folder / "thesis.txt").write_text("mine")
    (folder / "model.safetensors").write_text("old")
    assert is_finished(folder, TABLES) is True
    Writer(folder, TABLES, overwrite=True).close()
    assert (folder / "thesis.txt").exists()
    assert not (folder / "model.safetensors").exists()
    (folder / "config.toml").unlink()
    with pytest.raises(ConfigError, match="not a run"):
        Writer(folder, TABLES, overwrite=True)
    foreign = tmp_path / "photos"
    foreign.mkdir()
    (foreign / "cat.jpg").write_text("")
    for overwrite in (False, True):
        with pytest.raises(ConfigError, match="not a run"):
            is_finished(foreign, TABLES, overwrite)
        with pytest.raises(ConfigError, match="not a run"):
            Writer(foreign, TABLES, overwrite)
    assert [path.name for path in foreign.iterdir()] == ["cat.jpg"], "not even a lock"
    for name in ("model.safetensors", "summary.json"):  # foreign: there is no config.toml beside it
        (tmp_path / name).mkdir()
        (tmp_path / name / name).write_text("kept")
        with pytest.raises(ConfigError, match="not a run"):
            Writer(tmp_path / name, TABLES, overwrite=True)
        assert [path.read_text() for path in (tmp_path / name).iterdir()] == ["kept"]
    (tmp_path / "empty").mkdir()
    assert is_finished(tmp_path / "empty", TABLES) is False, "a run may be killed before it writes anything"
    Writer(tmp_path / "empty", TABLES).close()


def test_foreign_files_beside_run_are_kept(tmp_path):
    folder = tmp_path / "a-0"
    write_run(folder, [make_record(1)], finish=False)
    mine = ["notes.tmp", "checkpoint-notes.txt", "checkpoint-best.ckpt", "checkpoint-000000050-copy.ckpt"]
    for name in mine:
        (folder / name).write_text("mine")
    (folder / "checkpoint-kept").mkdir()
    temporary = ["checkpoint-000000050.ckpt", "checkpoint-000000051.tmp", "summary.json.tmp"]
    for name in temporary:
        (folder / name).write_text("")
    assert checkpoints(folder) == [folder / temporary[0]]
    Writer(folder, TABLES, overwrite=True).close()
    names = {path.name for path in folder.iterdir()}
    assert names >= {*mine, "checkpoint-kept"}
    assert not names & {*temporary}
    assert is_finished(folder, TABLES) is False, "copies of checkpoints do not make an interrupted run"
    (folder / temporary[0]).write_text("")
    writer = Writer(folder, TABLES, resume=True)
    writer.append(make_record(1))
    writer.finish(summarise([make_record(1)]))
    names = {path.name for path in folder.iterdir()}
    assert names >= {*mine, "checkpoint-kept"}
    assert not names & {*temporary}
    other = tmp_path / "b-0"
    other.mkdir()
    (other / "notes.tmp").write_text("mine")
    with pytest.raises(ConfigError, match="not a run"):
        Writer(other, TABLES)
