"""Where records go besides metrics.jsonl."""

import pytest

from helpers.cli import DEMO, SMALL, run_fadas


def test_tensorboard_gets_losses_and_accuracies(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run_fadas("run", DEMO, "--only", "fadas", *SMALL, "--set", "run.tensorboard=true", "--out", tmp_path)
    events = EventAccumulator(str(tmp_path / "fadas-7"))
    events.Reload()
    assert [event.step for event in events.Scalars("train/loss")] == list(range(1, 11))
    assert [event.step for event in events.Scalars("test/accuracy")] == [0, 2, 4, 6, 8, 10]
