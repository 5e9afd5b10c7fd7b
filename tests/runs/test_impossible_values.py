"""Values that no run can have written are damage."""

import json
import os
import sys

import pytest

from fadas.errors import Damaged
from fadas.runs.follower import Follower
from fadas.runs.reader import find_runs, read_run, read_runs
from fadas.runs.serialization import to_json
from helpers.folders import TABLES, draw_runs, make_record, make_summary, open_writer, write_run

FIRST, SECOND = make_record(1, 0.5), make_record(2, 0.5, dropped=3, expired=2)
SUMMARY = make_summary([FIRST, SECOND]).as_dict()
NESTED = json.loads("[" * 200 + "]" * 200)


@pytest.fixture
def folder(tmp_path):
    """A good run. Its folder is the only one in `tmp_path`."""
    writer = open_writer(tmp_path / "a-0", {**TABLES, "task": {"name": "digits", "clients": 2}})
    writer.append(FIRST)
    writer.append(SECOND)
    writer.write_json("partition.json", {"counts": [[1, 2], [3, 4]]})
    writer.finish(make_summary([FIRST, SECOND]))
    read_run(tmp_path / "a-0")
    return tmp_path / "a-0"


def check_damage(folder, file, message):
    """Both readers say what is wrong, `watch` only if it reads the file."""
    with pytest.raises(Damaged) as error:
        find_runs(folder.parent)
    assert message in str(error.value)
    assert file in str(error.value)
    assert "\n" not in str(error.value)
    if file != "partition.json":
        assert message in draw_runs(Follower(folder))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"step": 0}, "jobs of the initial model"),
        ({"step": 2**62}, "step must be from 0 to 2^53, got 46116860"),
        ({"step": 1, "jobs": FIRST.as_dict()["jobs"]}, "line 2: step 1 follows step 1"),
        ({"updates": -1}, "updates must be from 2 to 2^53, got -1"),
        ({"updates": 1}, "updates must be from 2"),
        ({"updates": 10**400}, "updates is too large: it has more than 64 bits"),
        ({"dropped": -1}, "dropped must be from 0"),
        ({"dropped": 2}, "line 2: dropped falls from 3 to 2"),
        ({"expired": 1}, "expired falls from 2 to 1"),
        ({"time": -1.0}, "time must be at least 0"),
        ({"time": 9.0}, "line 2: time falls from 10.0 to 9.0"),
        ({"refused": {"not finite": -1}}, "refused.not finite must be from 0"),
        ({"refused": {"dropped": 2**60}}, "refused.dropped must be from 0"),
        ({"privacy": {"epsilon": -0.1}}, "privacy.epsilon must be at least 0"),
        ({"metrics": {"accuracy": NESTED}}, "line 2: it is nested too deeply"),
        ({"unknown": NESTED}, "line 2: it is nested too deeply"),
    ],
)
def test_impossible_record_is_damage(folder, change, message):
    before = make_record(1, 0.5, dropped=3, expired=2)
    lines = [before.as_dict(), {**SECOND.as_dict(), **change}]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    check_damage(folder, "metrics.jsonl", message)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"id": -1}, "job id must be from 0"),
        ({"client": -1}, "client must be from 0"),
        ({"client": 2}, "it names client 2, but config.toml has 2 clients"),
        ({"tau": -1}, "tau must be from 0"),
        ({"tau": 2}, "job 18 has a delay of 2 at step 2"),
        ({"start": -1.0}, "job 18 starts at -1.0"),
        ({"start": 2.0}, "job 18 starts at 2.0 and ends at 1.0"),
        ({"end": None}, "must be a number"),
    ],
)
def test_impossible_job_is_damage(folder, change, message):
    line = SECOND.as_dict()
    line["jobs"] = [{**line["jobs"][0], **change}, line["jobs"][1]]
    (folder / "metrics.jsonl").write_text(to_json(FIRST.as_dict()) + "\n" + json.dumps(line) + "\n")
    if "names client" in message:
        with pytest.raises(Damaged, match=message):
            read_run(folder)
    else:
        check_damage(folder, "metrics.jsonl", message)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"updates": -1}, "updates must be from 0"),
        ({"dropped": -1}, "dropped must be from 0"),
        ({"refused": {"expired": -1}}, "refused.expired must be from 0"),
        ({"place": -1}, "place must be from 0"),
        ({"seed": -1}, "a seed must be from 0"),
        ({"seed": 2**64}, "summary.seed is too large"),
        ({"seed": 10**400}, "summary.seed is too large"),
        ({"time": -1.0}, "time must be at least 0"),
        ({"wall": -1.0}, "wall must be at least 0"),
        ({"tau_max": -1}, "tau_max must be at least 0"),
        ({"tau_avg": -1.0}, "tau_avg must be at least 0"),
        ({"accuracy_std": -1.0}, "accuracy_std must be at least 0"),
        ({"time_to_target": -1.0}, "time_to_target must be at least 0"),
        ({"privacy": {"delta": -1.0}}, "privacy.delta must be at least 0"),
        ({"diverged": ""}, "diverged must say why"),
        ({"algorithm": "a" * 256}, "algorithm must have at most 255 characters"),
        ({"experiment": "a" * 256}, "experiment must have at most 255 characters"),
        ({"versions": NESTED}, "it is nested too deeply"),
    ],
)
def test_impossible_summary_is_damage(folder, change, message):
    (folder / "summary.json").write_text(json.dumps({**SUMMARY, **change}))
    check_damage(folder, "summary.json", message)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("clients = 2", "clients = -1", "clients must be from 0"),
        ("clients = 2", 'clients = "many"', "task.clients must be a whole number"),
        ("clients = 2", "clients = [2]", "task.clients must be a whole number"),
        ("[run]", "[run]\nsteps = -1", "steps must be from 0"),
        ("[run]", "[run]\nsteps = 1e3", "run.steps must be a whole number"),
        ("[run]", "[run]\ntime = nan", "time must be at least 0"),
        ("[run]", "[run]\ntime = inf", "run.time is too large"),
        ("[run]", f"[run]\nupdates = 1{'0' * 400}", "run.updates is too large"),
        ("    0,\n", f"1{'0' * 400},\n", "run.seeds is too large"),
        ("    0,\n", "-1,\n", "a seed must be from 0"),
        ("[run]", f"[other]\nx = 0x{'F' * 9999}\n[run]", "settings.other.x is too large: it has more than 64 bits"),
        ("[run]", f"[other]\nx = {'[' * 200}{']' * 200}\n[run]", "it is nested too deeply"),
        ("[run]", f"[other]\n{'.'.join('x' * 3000)} = 1\n[run]", "it is nested too deeply"),
    ],
)
def test_impossible_setting_is_damage(folder, old, new, message):
    text = (folder / "config.toml").read_text()
    assert old in text
    (folder / "config.toml").write_text(text.replace(old, new))
    check_damage(folder, "config.toml", message)


@pytest.mark.parametrize("file", ["summary.json", "metrics.jsonl", "partition.json"])
def test_repeated_key_is_damage(folder, file):
    text = (folder / file).read_text()
    (folder / file).write_text(text.replace("{", '{"x": 1, "x": 2, ', 1))
    check_damage(folder, file, "the key 'x' is repeated")


@pytest.mark.parametrize("counts", [[[-1]], [[2**54]], [[1], [1, 2]], [], [["x"]]])
def test_impossible_partition_is_damage(folder, counts):
    (folder / "partition.json").write_text(json.dumps({"counts": counts}))
    check_damage(folder, "partition.json", "")


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pipes among files")
@pytest.mark.parametrize("file", ["summary.json", "metrics.jsonl", "config.toml", "partition.json"])
def test_pipe_in_place_of_a_file_is_damage(folder, file):
    (folder / file).unlink()
    os.mkfifo(folder / file)
    check_damage(folder, file, "it is not a file")


def test_extreme_values_that_a_run_can_have_are_read(folder):
    summary = {**SUMMARY, "seed": 2**64 - 1, "experiment": "\ud800", "algorithm": "\x1b", "time": 1e99}
    (folder / "summary.json").write_text(json.dumps(summary))
    config = (folder / "config.toml").read_text()
    (folder / "config.toml").write_text(
        config.replace("    0,\n", f"{2**64 - 1},\n") + "\n[x]\ny = 2020-01-01\nz = inf\n"
    )
    assert find_runs(folder.parent)[0].summary.seed == 2**64 - 1


def test_damaged_runs_are_told_apart_from_good_ones(folder):
    for name in ("b-0", "c-0"):
        write_run(folder.parent / name, [FIRST])
    (folder / "summary.json").write_text("{")
    (folder.parent / "c-0" / "metrics.jsonl").write_text("")
    found, damaged = read_runs(folder.parent)
    assert [run.folder.name for run in found] == ["b-0"]
    assert ["a-0" in str(damaged[0]), "c-0" in str(damaged[1]), len(damaged)] == [True, True, 2]
    with pytest.raises(Damaged, match="a-0"):
        find_runs(folder.parent)


def test_follower_names_the_line_that_is_damaged(folder):
    follower = Follower(folder)
    draw_runs(follower)
    with (folder / "metrics.jsonl").open("a") as file:
        file.write(to_json(make_record(2, 0.5).as_dict()) + "\n")
    assert "metrics.jsonl: line 3: step 2 follows step 2" in draw_runs(follower)
    assert (follower.outcome, follower.last) == ("damaged", None)
