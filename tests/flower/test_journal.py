"""What a deployment writes, and how it resumes."""

import fcntl
import itertools
import re

import numpy as np
import pytest

pytest.importorskip("flwr")
import math

from flwr.app import MetricRecord
from flwr.common.constant import ErrorCode

import fadas
from fadas.errors import ConfigError
from fadas.flower.journal import Journal
from fadas.runs import lock
from fadas.runs.folder import checkpoints, read_summary
from fadas.runs.reader import find_runs, read_records
from fadas.runs.summary import summarise
from helpers.flower import (
    NAN,
    ONE,
    TWO,
    Node,
    answer_error,
    answer_records,
    answer_trained,
    stay_silent,
    stop_server_after,
)
from helpers.folders import count_records, read_files
from helpers.processes import hold_lock


@pytest.mark.parametrize("damaged", [False, True])
def test_interrupted_run_resumes_and_finished_run_is_left_alone(play, tmp_path, damaged):
    answer = stop_server_after(11)
    with pytest.raises(KeyboardInterrupt):
        play({ONE: Node(answer), TWO: Node(answer)}, steps=12, buffer=2)
    folder = tmp_path / "fadas-0"
    before = (folder / "metrics.jsonl").read_bytes()
    assert before.count(b"\n") > 2
    newest = max(folder.glob("checkpoint-*.ckpt"))
    if damaged:
        newest.write_bytes(newest.read_bytes()[:-1])
    with pytest.raises(ConfigError, match="if they were interrupted, start the app again with the same folder"):
        find_runs(tmp_path)
    play({ONE: Node(), TWO: Node()}, steps=20, buffer=2)  # `play` checks that each recorded update is applied once
    after = (folder / "metrics.jsonl").read_bytes()
    lines = before.splitlines(keepends=True)  # the older checkpoint was written one update earlier, with an odd number
    assert after.startswith(b"".join(lines[:-1] if damaged else lines))
    assert [line for line in play.log if re.search(r"fadas-0: continues after \d+ steps, \d+ updates$", line)]
    assert play.log[-1].startswith("finished: 20 steps, 4")
    assert play.log[-1].endswith(f"kept in {folder}")
    unusable = [line for line in play.log if "cannot be used" in line]
    assert len(unusable) == damaged
    assert all(newest.name in line and "its checksum is wrong" in line for line in unusable)
    assert "steps = 20" in (folder / "config.toml").read_text()
    with pytest.raises(ConfigError, match="holds a finished run"):
        play({ONE: Node()}, steps=30)
    assert (folder / "metrics.jsonl").read_bytes() == after


def test_damaged_checkpoint_is_deleted_on_resume(play, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        play({ONE: Node(stop_server_after(8))})
    newest = checkpoints(tmp_path / "fadas-0")[0]
    newest.write_bytes(newest.read_bytes()[:-1])
    with pytest.raises(KeyboardInterrupt):
        play({ONE: Node(stop_server_after(0))})
    assert newest not in checkpoints(tmp_path / "fadas-0"), "it would seem newer than later checkpoints"
    play({ONE: Node()})


def test_fewer_rounds_than_done_are_refused(play, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        play({ONE: Node(stop_server_after(8))}, concurrency=1)
    before = read_files(tmp_path / "fadas-0")
    with pytest.raises(ConfigError, match="has 8 steps done, but num_rounds is 7; raise num_rounds"):
        play({ONE: Node()}, concurrency=1, steps=7)
    assert read_files(tmp_path / "fadas-0") == before
    play({ONE: Node()}, concurrency=1, steps=8)
    assert not play.grid.pushed


def test_resume_uses_progress_of_other_process(play, tmp_path, monkeypatch):
    folder = tmp_path / "fadas-0"

    def replace_files(content):
        for path in folder.iterdir():
            path.unlink() if path.name not in content else None
        for name, bytes in content.items():
            (folder / name).write_bytes(bytes)

    with pytest.raises(KeyboardInterrupt):
        play({ONE: Node(stop_server_after(8))}, steps=30)
    earlier = read_files(folder)
    with pytest.raises(KeyboardInterrupt):
        play({ONE: Node(stop_server_after(8)), TWO: Node()}, steps=30)
    later = read_files(folder)
    replace_files(earlier)
    last, take = [later], lock.acquire

    def replace_and_acquire(folder):
        if last:
            replace_files(last.pop())
        take(folder)

    monkeypatch.setattr(lock, "acquire", replace_and_acquire)
    play({ONE: Node()}, steps=30)
    assert (folder / "metrics.jsonl").read_bytes().startswith(later["metrics.jsonl"])


def test_refused_start_releases_lock(play, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        play({ONE: Node(stop_server_after(8))})
    for path in checkpoints(tmp_path / "fadas-0"):
        path.write_bytes(b"")
    with pytest.raises(ConfigError, match="none of its checkpoints can be used"):
        play({ONE: Node()})
    with (tmp_path / "fadas-0" / ".lock").open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_run_finished_by_other_server_is_left_alone(play, tmp_path, monkeypatch):
    with pytest.raises(KeyboardInterrupt):
        play({ONE: Node(stop_server_after(8))})
    claim = Journal._claim

    def claim_late(journal):
        claimed = claim(journal)
        (journal.folder / "summary.json").write_text("{}")
        return claimed

    monkeypatch.setattr(Journal, "_claim", claim_late)
    before = read_files(tmp_path / "fadas-0")
    with pytest.raises(ConfigError, match="holds a finished run"):
        play({ONE: Node()})
    assert read_files(tmp_path / "fadas-0") == {**before, "summary.json": b"{}"}


@pytest.mark.parametrize(("jobs", "buffered"), [(30, 1), (32, 0)], ids=["between two steps", "after a step"])
def test_resumed_run_keeps_counters_and_time(play, tmp_path, jobs, buffered):
    turns = itertools.cycle([answer_error(ErrorCode.UNKNOWN), answer_records(arrays=NAN), stay_silent, answer_trained])
    faulty = Node(lambda message: next(turns)(message))
    with pytest.raises(KeyboardInterrupt):
        play({ONE: Node(stop_server_after(jobs)), TWO: faulty}, steps=30, buffer=2, deadline=5.0)
    (before,) = play.read()[-1:]
    assert min(before["dropped"], before["expired"], before["refused"]["not finite"], before["time"]) > 0
    newest = max((tmp_path / "fadas-0").glob("checkpoint-*.ckpt"))
    assert int(newest.stem.removeprefix("checkpoint-")) - before["updates"] == buffered
    play({TWO: Node()}, steps=30, buffer=2)
    lost = [(r["dropped"], r["expired"], r["refused"]) for r in play.records[before["step"] :]]
    assert all(counts == lost[0] for counts in lost), "no job is lost any more"
    assert lost[0][0] >= before["dropped"]
    assert lost[0][1] >= before["expired"]
    assert lost[0][2]["not finite"] >= before["refused"]["not finite"]
    times = [record["time"] for record in play.records]
    assert times == sorted(times)
    summary, records = read_summary(tmp_path / "fadas-0"), read_records(tmp_path / "fadas-0" / "metrics.jsonl")
    assert all(getattr(summary, name) == value for name, value in vars(summarise(records)).items())
    for record in play.records:
        assert all(0 <= job["start"] < job["end"] <= record["time"] for job in record["jobs"])


class UserCombine:
    """A user's part without a repr."""

    def __init__(self, scale):
        self.scale, self.something = scale, object()

    def __call__(self, state, step, updates, clients):
        return self.scale * sum(update.delta for update in updates) / len(updates), {}


OTHER_SETTINGS = {
    "another algorithm": ({"algorithm": fadas.FADAS()}, r"optimizer was 'SGD.*' and is 'AMSGrad\("),
    "another step size": ({"algorithm": fadas.FedBuff(eta=0.5)}, r"step_size was 'Constant\(eta=1.0\)' and is '.*0.5"),
    "an own part": (
        {"algorithm": fadas.Algorithm(UserCombine(1.0))},
        r"combine was 'Mean\(\)' and is \"UserCombine\(\{'scale': 1.0",
    ),
    "another reply": ({"reply": "delta"}, "task.reply was 'arrays' and is 'delta'"),
    "another model": (
        {"initial": np.zeros(3, np.float32)},
        "task.arrays was '2 trained, .*' and is '3 trained",
    ),
    "other names": ({"array": "v"}, "task.arrays was"),
    "another buffer": ({"buffer": 2}, "schedule.buffer was 1 and is 2"),
}


@pytest.mark.parametrize("name", OTHER_SETTINGS)
def test_other_settings_do_not_touch_interrupted_run(play, tmp_path, name):
    with pytest.raises(KeyboardInterrupt):
        play({ONE: Node(stop_server_after(8))})
    before = read_files(tmp_path / "fadas-0")
    options, message = OTHER_SETTINGS[name]
    with pytest.raises(ConfigError, match=f"{message}.*: choose another folder, or move it away$"):
        play({ONE: Node()}, steps=30, **options)
    assert read_files(tmp_path / "fadas-0") == before
    assert not play.grid.pushed
    play({ONE: Node()})


def test_user_part_is_recognised_on_resume(play):
    with pytest.raises(KeyboardInterrupt):
        play({ONE: Node(stop_server_after(8))}, algorithm=fadas.Algorithm(UserCombine(1.0)))
    with pytest.raises(ConfigError, match=r"'scale': 1.0, .* and is .*'scale': 2.0"):
        play({ONE: Node()}, algorithm=fadas.Algorithm(UserCombine(2.0)))
    play({ONE: Node()}, algorithm=fadas.Algorithm(UserCombine(1.0)))


@pytest.mark.parametrize("damage", ["checkpoint-*.ckpt", "metrics.jsonl", "config.toml"])
def test_unresumable_run_is_left_unchanged(play, tmp_path, damage):
    with pytest.raises(KeyboardInterrupt):
        play({ONE: Node(stop_server_after(8))})
    for path in (tmp_path / "fadas-0").glob(damage):
        path.write_bytes(b"[" + path.read_bytes())
    before = read_files(tmp_path / "fadas-0")
    with pytest.raises(ConfigError, match=r"holds an interrupted run.*: choose another folder, or move it away"):
        play({ONE: Node()})
    assert read_files(tmp_path / "fadas-0") == before


def test_locked_folder_is_refused(play, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        play({ONE: Node(stop_server_after(8))})
    before = read_files(tmp_path / "fadas-0")
    in_use = pytest.raises(ConfigError, match="fadas-0 is in use by another process: choose another folder")
    with hold_lock(tmp_path / "fadas-0"), in_use:
        play({ONE: Node()})
    assert read_files(tmp_path / "fadas-0") == before
    play({ONE: Node()})


def test_foreign_folder_is_left_unchanged(play, tmp_path):
    (tmp_path / "fadas-0").mkdir()
    (tmp_path / "fadas-0" / "thesis.tex").touch()
    with pytest.raises(ConfigError, match="fadas-0 holds something other than a run: choose another folder"):
        play({ONE: Node()})
    assert read_files(tmp_path / "fadas-0") == {"thesis.tex": b""}


def test_run_without_steps_can_restart_with_other_settings(play):
    with pytest.raises(RuntimeError, match="no node was connected"):
        play({}, patience=5.0)
    play({ONE: Node()}, buffer=2)


def test_deployment_keeps_no_records_in_memory(play):
    before, alive = count_records(), []

    def evaluate(step, arrays):
        alive.append(count_records() - before)

    play({ONE: Node()}, concurrency=1, steps=6, evaluate=evaluate)
    assert len(alive) >= 6
    assert max(alive) <= 2


def test_nan_accuracy_does_not_stop_run(play):
    def evaluate(step, arrays):
        return MetricRecord({"accuracy": math.nan if step == 4 else 0.5})

    with pytest.raises(KeyboardInterrupt):
        play({ONE: Node(stop_server_after(5))}, concurrency=1, steps=6, evaluate=evaluate)
    play({ONE: Node()}, concurrency=1, steps=6, evaluate=evaluate)
