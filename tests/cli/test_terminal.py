"""What `fadas watch` draws."""

from fadas.runs.follower import Follower
from fadas.runs.summary import summarise
from fadas.runs.writer import Writer
from helpers.cli import draw_runs
from helpers.folders import LIVE_TABLES, make_record


def test_what_is_lost_for_the_same_reason_adds_up(tmp_path):
    writer = Writer(tmp_path / "fadas-0", LIVE_TABLES)
    writer.append({**make_record(1, 0.25), "expired": 8, "refused": {"expired": 7}})
    assert "expired 15" in draw_runs(Follower(tmp_path / "fadas-0"))


def test_a_run_that_diverged_is_shown_as_that(tmp_path):
    for name, lines in (("one-0", [make_record(1, 0.25)]), ("none-0", [])):
        writer = Writer(tmp_path / name, LIVE_TABLES)
        for one in lines:
            writer.append(one)
        writer.finish(summarise(lines, diverged="not finite"))
        follower = Follower(tmp_path / name)
        assert "diverged" in draw_runs(follower)
        assert follower.progress < 1
