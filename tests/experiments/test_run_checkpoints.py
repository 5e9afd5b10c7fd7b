"""Periodic checkpoints of a run, with the throttle as it is."""

import pytest

from fadas.runs import checkpoint
from fadas.runs.checkpoint import BackgroundWriter, read_checkpoint
from fadas.runs.folder import checkpoints
from helpers.experiments import execute_in, prepare_run


class Clock:
    """Replaces `time` where checkpoints are written."""

    def __init__(self):
        self.now = 0.0

    def monotonic(self):
        return self.now


@pytest.fixture
def write_for(monkeypatch):
    """Let every checkpoint take this many seconds of a made-up clock. Return the clock, and the steps written."""

    def write_for(seconds):
        clock, written, write = Clock(), [], BackgroundWriter.write

        def write_slowly(writer, folder, step, *state):
            write(writer, folder, step, *state)
            writer.wait()  # what the thread does is over before the clock goes on
            written.append(step)

        def take_time(*arguments):
            clock.now += seconds
            return write_checkpoint(*arguments)

        write_checkpoint = checkpoint.write_checkpoint
        monkeypatch.setattr(checkpoint, "time", clock)
        monkeypatch.setattr(checkpoint, "write_checkpoint", take_time)
        monkeypatch.setattr(BackgroundWriter, "write", write_slowly)
        return clock, written

    return write_for


def run_steps(folder, clock, every, seconds_per_step=4.0):
    """A run of 20 steps, each of which takes a while."""
    config, simulation = prepare_run(0.1, every, updates=100)
    kept = []

    def pass_time(record):
        clock.now += seconds_per_step
        kept.append([path.name for path in checkpoints(folder)])

    summary = execute_in(folder, config, simulation, on_record=pass_time)
    assert summary.step == 20
    return kept


def test_checkpoints_follow_each_other_while_the_disk_is_fast(tmp_path, write_for):
    clock, written = write_for(0.0)
    kept = run_steps(tmp_path / "fadas-1", clock, every=3)
    assert written == [3, 6, 9, 12, 15, 18]
    assert [len(names) for names in kept][:10] == [0, 0, 0, 1, 1, 1, 2, 2, 2, 2]
    assert not checkpoints(tmp_path / "fadas-1"), "a finished run needs none"


def test_checkpoints_wait_for_nine_times_the_time_of_the_last(tmp_path, write_for):
    """A step takes four seconds, and a checkpoint two. A pause of 18 seconds is over after five steps."""
    clock, written = write_for(2.0)
    run_steps(tmp_path / "fadas-1", clock, every=1)
    assert written == [1, 6, 11, 16]


def test_checkpoint_that_fell_due_in_a_pause_is_written_after_it(tmp_path, write_for):
    """Checkpoints are due after 4, 8, 12, ... Those of steps 8 and 16 fall due in a pause, and come when it is over."""
    clock, written = write_for(2.0)
    run_steps(tmp_path / "fadas-1", clock, every=4)
    assert written == [4, 9, 14, 19]


def test_no_checkpoint_is_written_if_none_is_wanted(tmp_path, write_for):
    clock, written = write_for(0.0)
    run_steps(tmp_path / "fadas-1", clock, every=0)
    assert written == []


def test_last_periodic_checkpoint_can_be_read(tmp_path, write_for):
    _, written = write_for(0.0)
    folder, seen = tmp_path / "fadas-1", {}
    config, simulation = prepare_run(0.1, 2, updates=50)

    def look(record):
        if record.step == 8:
            newest, older = checkpoints(folder)
            seen["versions"] = [read_checkpoint(path)[1]["version"] for path in (newest, older)]

    execute_in(folder, config, simulation, on_record=look)
    assert seen["versions"] == [6, 4]
    assert written[:4] == [2, 4, 6, 8]
