"""The right to write a run's folder: who gets it, who does not, and why."""

import pytest

from fadas.errors import Busy, Damaged, Foreign, OtherSettings, Unfinished
from fadas.runs import folder, lock
from fadas.runs.folder import Claim, Finished, checkpoint_name, checkpoints, claim, find_finished, read_summary
from fadas.runs.same_run import differing_settings
from helpers.folders import TABLES, make_record, make_summary, read_files, write_run
from helpers.processes import hold_lock


def test_claim_holds_the_lock_until_it_is_released(tmp_path):
    with claim(tmp_path / "a-0", TABLES) as claimed:
        assert claimed == Claim(tmp_path / "a-0", TABLES, "new")
        lock.require_held(tmp_path / "a-0")
    assert not (tmp_path / "a-0").exists(), "nothing was written there"
    claim(tmp_path / "a-0", TABLES, "resume").release()


@pytest.mark.parametrize("mode", ["new", "resume", "overwrite"])
def test_locked_folder_is_busy_in_every_mode(tmp_path, mode, monkeypatch):
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    write_run(tmp_path / "a-0", [make_record(1)], finish=False)
    with hold_lock(tmp_path / "a-0"):
        for attempt in (claim, find_finished):
            with pytest.raises(Busy, match="a-0 is in use by another process"):
                attempt(tmp_path / "a-0", TABLES, mode)


def test_finished_run_is_found_though_another_process_holds_the_lock(tmp_path):
    write_run(tmp_path / "a-0", [make_record(1)])
    with hold_lock(tmp_path / "a-0"):
        assert find_finished(tmp_path / "a-0", TABLES) == make_summary([make_record(1)])
        assert isinstance(claim(tmp_path / "a-0", TABLES, "resume"), Finished)


def test_refused_claim_releases_the_lock(tmp_path, monkeypatch):
    """What another process does between the first look and the lock is looked at again."""
    acquire = lock.acquire

    def write_and_acquire(place):
        monkeypatch.setattr(lock, "acquire", acquire)
        write_run(place, [make_record(1)], {**TABLES, "local": {"lr": 0.5}})
        acquire(place)

    monkeypatch.setattr(lock, "acquire", write_and_acquire)
    with pytest.raises(OtherSettings, match=r"a-0 holds a run with other settings \(local.lr was 0.5 and is None\)"):
        claim(tmp_path / "a-0", TABLES)
    with hold_lock(tmp_path / "a-0"):
        pass

    def finish_and_acquire(place):
        monkeypatch.setattr(lock, "acquire", acquire)
        write_run(place, [make_record(1)])
        acquire(place)

    monkeypatch.setattr(lock, "acquire", finish_and_acquire)
    assert isinstance(claim(tmp_path / "b-0", TABLES), Finished)
    with hold_lock(tmp_path / "b-0"):
        pass


def test_run_that_finishes_while_its_lock_is_awaited_is_found(tmp_path, monkeypatch):
    write_run(tmp_path / "a-0", [make_record(1)], finish=False)

    def finish_run(place):
        monkeypatch.undo()
        write_run(tmp_path / "a-0", [make_record(1)])

    monkeypatch.setattr(lock, "require_free", finish_run)
    assert find_finished(tmp_path / "a-0", TABLES) == make_summary([make_record(1)])


def test_interrupted_run_is_refused_in_new_mode_only(tmp_path):
    write_run(tmp_path / "a-0", [make_record(1)], finish=False)
    (tmp_path / "a-0" / checkpoint_name(1)).write_text("")
    before = read_files(tmp_path / "a-0")
    with pytest.raises(Unfinished, match="a-0 holds an interrupted run"):
        find_finished(tmp_path / "a-0", TABLES)
    assert read_files(tmp_path / "a-0") == before
    for mode in ("resume", "overwrite"):
        assert find_finished(tmp_path / "a-0", TABLES, mode) is None


def test_some_differing_settings_are_named(tmp_path):
    write_run(tmp_path / "a-0", [make_record(1)])
    for changes, told in (
        ({"a": 1}, r"\(a was None and is 1\)$"),
        ({"a": 1, "b": 2}, r"\(a was None and is 1; b was None and is 2\)$"),
        ({"a": 1, "b": 2, "c": 3}, r"\(a was None and is 1; b was None and is 2; 1 more\)$"),
        ({"a": 1, "b": 2, "c": 3, "d": 4}, r"\(a was None and is 1; b was None and is 2; 2 more\)$"),
    ):
        with pytest.raises(OtherSettings, match=f"holds a run with other settings {told}"):
            find_finished(tmp_path / "a-0", {**TABLES, **changes})


def test_setting_that_methods_repeat_is_named_once():
    one, two = ({"algorithms": {"a": {"local": {"lr": lr}}}, "local": {"lr": lr}} for lr in (0.1, 0.2))
    assert differing_settings(one, two) == ["local.lr was 0.1 and is 0.2"]


def test_unreadable_settings_are_other_settings(tmp_path):
    write_run(tmp_path / "a-0", [make_record(1)])
    (tmp_path / "a-0" / "config.toml").write_text("= 3")
    with pytest.raises(OtherSettings, match=r"holds a run with other settings \(\S+ was None and is "):
        find_finished(tmp_path / "a-0", TABLES)


def test_file_in_the_way_is_refused(tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(Foreign, match=f"{tmp_path / 'file'} exists and is not a folder"):
        claim(tmp_path / "file" / "below" / "a-0", TABLES)
    with pytest.raises(Foreign, match=f"{tmp_path / 'file'} exists and is not a run of fadas"):
        claim(tmp_path / "file", TABLES)
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize(
    ("names", "ours"),
    [
        ([], True),
        ([".lock"], True),
        ([".lock", "config.toml.123.tmp"], True),
        (["config.toml", "thesis.tex"], True),
        (["thesis.tex"], False),
        ([".lock", "thesis.tex"], False),
        (["metrics.jsonl"], False),
        (["config.toml.tmp", "metrics.jsonl"], False),
    ],
    ids=str,
)
def test_folder_is_recognised_by_its_settings(tmp_path, names, ours):
    (tmp_path / "a-0").mkdir()
    for name in names:
        (tmp_path / "a-0" / name).write_text("")
    if ours:
        assert find_finished(tmp_path / "a-0", {"x": 1} if "config.toml" not in names else {}, "overwrite") is None
    else:
        with pytest.raises(Foreign, match="a-0 exists and is not a run of fadas"):
            find_finished(tmp_path / "a-0", TABLES, "overwrite")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "summary.json is damaged: "),
        ('{"format": 99}', "summary.json has format 99, written by a newer fadas"),
        ("[]", "a-0 is damaged: summary.json: "),
        ('{"step": "one"}', "a-0 is damaged: summary.json: summary"),
    ],
)
def test_damaged_summary_is_named(tmp_path, text, message):
    write_run(tmp_path / "a-0", [make_record(1)])
    (tmp_path / "a-0" / "summary.json").write_text(text)
    with pytest.raises(Damaged, match=message):
        read_summary(tmp_path / "a-0")


def test_checkpoints_are_sorted_by_step(tmp_path):
    names = [checkpoint_name(step) for step in (7, 123, 99)]
    assert names[0] == "checkpoint-000000007.ckpt"
    for name in [*names, "checkpoint-7.ckpt", "checkpoint-000000200.ckpt.tmp", "x.ckpt"]:
        (tmp_path / name).write_text("")
    assert [path.name for path in checkpoints(tmp_path)] == [names[1], names[2], names[0]]
    assert folder.is_checkpoint("checkpoint-000000200.ckpt.tmp")
    assert folder.is_checkpoint("checkpoint-000000200.tmp"), "as fadas 0.1 named its drafts"
    assert not folder.is_checkpoint("checkpoint-7.ckpt")
