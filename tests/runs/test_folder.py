"""Which folders a run may use."""

import pytest

from fadas.errors import Foreign, OtherSettings, Unfinished
from fadas.runs.folder import Finished, checkpoints, claim, find_finished
from fadas.runs.reader import unfinished_runs
from helpers.folders import TABLES, make_record, make_summary, open_writer, write_run


def test_folder_states_decide_what_run_may_do(tmp_path):
    folder, summary = tmp_path / "a-0", make_summary([make_record(1)])
    assert find_finished(folder, TABLES) is None
    write_run(folder, [make_record(1)], finish=False)
    assert find_finished(folder, TABLES) is None, "an unfinished run is restarted"
    assert unfinished_runs(tmp_path) == ["a-0"]
    write_run(folder, [make_record(1)])
    assert find_finished(folder, TABLES) == summary
    assert find_finished(folder, TABLES, "overwrite") is None
    assert claim(folder, TABLES) == Finished(summary), "nobody may write there"
    same = {**TABLES, "executor": {"name": "batched"}, "run": {"seeds": [0], "tensorboard": True}}
    assert find_finished(folder, same) == summary
    with pytest.raises(OtherSettings, match="other settings"):
        find_finished(folder, {**TABLES, "local": {"lr": 0.1}})
    (folder / "thesis.txt").write_text("mine")
    (folder / "model.safetensors").write_text("old")
    assert find_finished(folder, TABLES) == summary
    open_writer(folder, mode="overwrite").close()
    assert (folder / "thesis.txt").exists()
    assert not (folder / "model.safetensors").exists()
    (folder / "config.toml").unlink()
    with pytest.raises(Foreign, match="not a run"):
        open_writer(folder, mode="overwrite")


def test_claim_of_new_folder_asks_once_and_only_under_the_lock(tmp_path, monkeypatch):
    asked = []

    def ask(folder, *arguments):
        asked.append((folder / ".lock").exists())
        return find_finished(folder, *arguments)

    monkeypatch.setattr("fadas.runs.folder.find_finished", ask)
    claim(tmp_path / "new-0", TABLES).release()
    assert asked == [True]
    (tmp_path / "file").touch()
    with pytest.raises(Foreign, match="file exists and is not a folder"):
        claim(tmp_path / "file" / "new-0", TABLES)
    write_run(tmp_path / "done-0", [make_record(1)])
    (tmp_path / "done-0" / ".lock").unlink(missing_ok=True)
    asked.clear()
    assert isinstance(claim(tmp_path / "done-0", TABLES), Finished)
    assert asked == [False], "a finished run gets no lock"


def test_foreign_folder_is_refused_and_unchanged(tmp_path):
    foreign = tmp_path / "photos"
    foreign.mkdir()
    (foreign / "cat.jpg").write_text("")
    for mode in ("new", "resume", "overwrite"):
        with pytest.raises(Foreign, match="not a run"):
            find_finished(foreign, TABLES, mode)
        with pytest.raises(Foreign, match="not a run"):
            claim(foreign, TABLES, mode)
    assert [path.name for path in foreign.iterdir()] == ["cat.jpg"], "not even a lock"
    for name in ("model.safetensors", "summary.json"):  # foreign: there is no config.toml beside it
        (tmp_path / name).mkdir()
        (tmp_path / name / name).write_text("kept")
        with pytest.raises(Foreign, match="not a run"):
            open_writer(tmp_path / name, mode="overwrite")
        assert [path.read_text() for path in (tmp_path / name).iterdir()] == ["kept"]
    (tmp_path / "empty").mkdir()
    assert find_finished(tmp_path / "empty", TABLES) is None, "a run may be killed before it writes anything"
    open_writer(tmp_path / "empty").close()


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
    open_writer(folder, mode="overwrite").close()
    names = {path.name for path in folder.iterdir()}
    assert names >= {*mine, "checkpoint-kept"}
    assert not names & {*temporary}
    assert find_finished(folder, TABLES) is None, "copies of checkpoints do not make an interrupted run"
    (folder / temporary[0]).write_text("")
    with pytest.raises(Unfinished, match="holds an interrupted run"):
        claim(folder, TABLES)
    writer = open_writer(folder, mode="resume")
    writer.append(make_record(1))
    writer.finish(make_summary([make_record(1)]))
    names = {path.name for path in folder.iterdir()}
    assert names >= {*mine, "checkpoint-kept"}
    assert not names & {*temporary}
    other = tmp_path / "b-0"
    other.mkdir()
    (other / "notes.tmp").write_text("mine")
    with pytest.raises(Foreign, match="not a run"):
        open_writer(other)
