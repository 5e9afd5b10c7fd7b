"""A checkpoint survives a power cut: it is on the disk before it gets its name. Writing leaves time for training."""

import os

import pytest
import torch

from fadas.runs import checkpoint
from fadas.runs.folder import checkpoints
from helpers.folders import make_record, open_writer


@pytest.fixture
def watch_disk(monkeypatch):
    """Record what is synced to the disk, with its size at that time, and what is renamed."""
    events, sync, rename = [], os.fsync, os.replace

    def record_sync(handle):
        events.append(("sync", os.readlink(f"/proc/self/fd/{handle}"), os.fstat(handle).st_size))
        sync(handle)

    def record_rename(old, new):
        events.append(("rename", str(old), str(new)))
        rename(old, new)

    monkeypatch.setattr("os.fsync", record_sync)
    monkeypatch.setattr("os.replace", record_rename)
    return events


def test_checkpoint_is_synced_before_it_gets_its_name_and_then_its_folder(tmp_path, watch_disk):
    path = checkpoint.write_checkpoint(tmp_path, 1, {"x": torch.ones(1000)}, {})
    (synced, draft, size), renamed, (_, folder, _) = watch_disk
    assert synced == "sync"
    assert draft != str(path)
    assert size == path.stat().st_size > 4000, "all of it had been written"
    assert renamed == ("rename", draft, str(path))
    assert folder == str(tmp_path)


def test_metrics_are_synced_before_they_are_marked(tmp_path, watch_disk):
    writer = open_writer(tmp_path / "a-0")
    writer.append(make_record(1))
    watch_disk.clear()
    length, _ = writer.mark()
    metrics = tmp_path / "a-0" / "metrics.jsonl"
    assert watch_disk == [("sync", str(metrics), length)]
    assert length == metrics.stat().st_size > 0
    writer.close()


class Clock:
    """Replaces `time` where checkpoints are written."""

    def __init__(self):
        self.now = 1000.0

    def monotonic(self):
        return self.now


@pytest.fixture
def slow_disk(monkeypatch):
    """A clock, and a disk that needs two seconds per checkpoint."""
    clock, write = Clock(), checkpoint.write_checkpoint

    def write_slowly(*arguments):
        clock.now += 2.0
        return write(*arguments)

    monkeypatch.setattr(checkpoint, "time", clock)
    monkeypatch.setattr(checkpoint, "write_checkpoint", write_slowly)
    return clock


def test_background_writer_uses_a_tenth_of_the_time(tmp_path, slow_disk):
    writer = checkpoint.BackgroundWriter()
    assert writer.ready(), "the first one is due at once"
    for step in (1, 2, 3):
        writer.write(tmp_path, step, {"x": torch.ones(3)}, {})
        writer.wait()
        assert not writer.ready()
        slow_disk.now += 17.9  # nine times two seconds are 18
        assert not writer.ready()
        slow_disk.now += 0.2
        assert writer.ready()
        assert writer.ready(), "asking changes nothing"
    assert [path.name for path in checkpoints(tmp_path)] == ["checkpoint-000000003.ckpt", "checkpoint-000000002.ckpt"]
    writer.close()


def test_writer_is_ready_exactly_when_its_pause_is_over(tmp_path, slow_disk):
    writer = checkpoint.BackgroundWriter()
    writer.write(tmp_path, 1, {"x": torch.ones(3)}, {})
    writer.wait()
    slow_disk.now += 18.0
    assert writer.ready()
    writer.close()


def test_writer_that_has_just_finished_pauses_though_nobody_waited(tmp_path, slow_disk):
    writer = checkpoint.BackgroundWriter()
    writer.write(tmp_path, 1, {"x": torch.ones(3)}, {})
    writer.close()
    assert not writer.ready()
    slow_disk.now += 18.0
    assert writer.ready()


def test_writer_of_a_machine_that_has_just_started_is_ready(monkeypatch):
    """The clock counts from the start of the machine."""
    clock = Clock()
    clock.now = 0.0
    monkeypatch.setattr(checkpoint, "time", clock)
    writer = checkpoint.BackgroundWriter()
    assert writer.ready()
    writer.close()


def test_old_checkpoint_that_another_process_removes_is_no_error(tmp_path, monkeypatch):
    def list_with_removed(folder):
        return [*checkpoints(folder), tmp_path / "checkpoint-000000000.ckpt", tmp_path / "checkpoint-000000001.ckpt"]

    monkeypatch.setattr(checkpoint, "checkpoints", list_with_removed)
    for step in (5, 6, 7):
        checkpoint.write_checkpoint(tmp_path, step, {"x": torch.ones(3)}, {})
    assert len(list(tmp_path.iterdir())) == 2
