"""Runs read while another process writes them."""

import os

from fadas.runs.follower import Follower
from fadas.runs.serialization import to_json
from helpers.folders import LIVE_TABLES, draw_runs, make_record, open_writer, write_run


def test_follower_reads_whole_lines_only(tmp_path):
    writer = open_writer(tmp_path / "fadas-0", LIVE_TABLES)
    follower = Follower(tmp_path / "fadas-0")
    assert "waiting for the first step" in draw_runs(follower)
    writer.append(make_record(1, 0.25, refused={"not finite": 2}))
    text = draw_runs(follower)
    assert "25.0%" in text
    assert "not finite 2" in text
    assert follower.progress == 0.25
    line = to_json(make_record(2, 0.5).as_dict()) + "\n"
    with (tmp_path / "fadas-0" / "metrics.jsonl").open("a") as file:
        file.write(line[:20])
    assert draw_runs(follower) == text
    with (tmp_path / "fadas-0" / "metrics.jsonl").open("a") as file:
        file.write(line[20:])
    assert "50.0%" in draw_runs(follower)
    assert follower.progress == 0.5


def test_resumed_run_with_lost_lines_is_reread(tmp_path):
    writer = open_writer(tmp_path / "fadas-0", LIVE_TABLES)
    follower = Follower(tmp_path / "fadas-0")
    writer.append(make_record(1, 0.25))
    length = writer.mark()[0]
    writer.append(make_record(2, 0.5))
    assert "50.0%" in draw_runs(follower)
    writer.close()
    again = open_writer(tmp_path / "fadas-0", LIVE_TABLES, "resume", kept=length)
    assert "25.0%" in draw_runs(follower)
    assert sum(heard.updates for heard in follower.clients.values()) == len(make_record(1, 0.25).jobs)
    again.close()


def test_overwritten_run_is_reread(tmp_path):
    writer = open_writer(tmp_path / "fadas-0", LIVE_TABLES)
    writer.append(make_record(1, 0.25))
    follower = Follower(tmp_path / "fadas-0")
    assert "25.0%" in draw_runs(follower)
    writer.close()
    longer = {**LIVE_TABLES, "run": {"steps": 100, "seeds": [0]}}
    again = open_writer(tmp_path / "fadas-0", longer, "overwrite")
    settings = tmp_path / "fadas-0" / "config.toml"
    later = settings.stat().st_mtime_ns + 10**9  # file times may be as coarse as ten milliseconds
    os.utime(settings, ns=(later, later))
    for step in range(1, 6):
        again.append(make_record(step, 0.5, time=1234.5))
    text = draw_runs(follower)
    assert "50.0%" in text
    assert follower.progress == 0.05
    again.close()


def test_unreadable_summary_is_damage(tmp_path):
    write_run(tmp_path / "a-0", [make_record(1, 0.25)], LIVE_TABLES)
    (tmp_path / "a-0" / "summary.json").unlink()
    (tmp_path / "a-0" / "summary.json").mkdir()
    assert "damaged" in draw_runs(Follower(tmp_path / "a-0"))
