"""What `fadas watch` draws."""

from fadas.runs.follower import Follower
from helpers.folders import LIVE_TABLES, draw_runs, make_record, make_summary, open_writer


def test_view_adds_up_losses_of_same_reason(tmp_path):
    writer = open_writer(tmp_path / "fadas-0", LIVE_TABLES)
    writer.append(make_record(1, 0.25, expired=8, refused={"expired": 7}))
    assert "expired 15" in draw_runs(Follower(tmp_path / "fadas-0"))


def test_view_tells_killed_run_from_running_one(tmp_path):
    writer = open_writer(tmp_path / "fadas-0", LIVE_TABLES)
    writer.append(make_record(1, 0.25))
    assert "not running" not in draw_runs(Follower(tmp_path / "fadas-0"))
    writer.close()
    assert "not running" in draw_runs(Follower(tmp_path / "fadas-0"))


def test_view_shows_diverged_run(tmp_path):
    for name, lines in (("one-0", [make_record(1, 0.25)]), ("none-0", [])):
        writer = open_writer(tmp_path / name, LIVE_TABLES)
        for one in lines:
            writer.append(one)
        writer.finish(make_summary(lines, diverged="not finite"))
        follower = Follower(tmp_path / name)
        assert "diverged" in draw_runs(follower)
        assert follower.progress < 1
