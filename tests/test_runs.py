import json
import math

import pytest

from fadas.errors import ConfigError
from fadas.runs.folder import checkpoints, is_finished
from fadas.runs.run_reader import find_runs, read_run, unfinished_runs
from fadas.runs.serialization import to_json
from fadas.runs.summary import summarise
from fadas.runs.writer import Writer
from helpers.folders import TABLES, make_record, write_run


def test_round_trip(tmp_path):
    lines = [make_record(1), make_record(2, 0.5)]
    write_run(tmp_path / "a-0", lines)
    run = read_run(tmp_path / "a-0")
    assert run.records == lines
    assert run.config == TABLES
    assert run.evaluations == lines[1:]
    assert [r.folder.name for r in find_runs(tmp_path)] == ["a-0"]
    assert find_runs(tmp_path / "a-0")[0].records == lines


def test_check(tmp_path):
    folder = tmp_path / "a-0"
    assert is_finished(folder, TABLES) is False
    write_run(folder, [make_record(1)], finish=False)
    assert is_finished(folder, TABLES) is False, "an unfinished run is started again"
    assert unfinished_runs(tmp_path) == ["a-0"]
    write_run(folder, [make_record(1)])
    assert is_finished(folder, TABLES) is True
    assert is_finished(folder, TABLES, overwrite=True) is False
    with pytest.raises(ConfigError, match="written meanwhile"):
        Writer(folder, TABLES)
    same = {**TABLES, "executor": {"name": "batched"}, "run": {"seeds": [0], "tensorboard": True}}
    assert is_finished(folder, same) is True
    with pytest.raises(ConfigError, match="other settings"):
        is_finished(folder, {**TABLES, "local": {"lr": 0.1}})
    (folder / "thesis.txt").write_text("mine")
    (folder / "model.safetensors").write_text("old")
    assert is_finished(folder, TABLES) is True
    Writer(folder, TABLES, overwrite=True).close()
    assert (folder / "thesis.txt").exists()
    assert not (folder / "model.safetensors").exists()
    (folder / "config.toml").unlink()
    with pytest.raises(ConfigError, match="not a run"):
        Writer(folder, TABLES, overwrite=True)
    foreign = tmp_path / "photos"
    foreign.mkdir()
    (foreign / "cat.jpg").write_text("")
    for overwrite in (False, True):
        with pytest.raises(ConfigError, match="not a run"):
            is_finished(foreign, TABLES, overwrite)
        with pytest.raises(ConfigError, match="not a run"):
            Writer(foreign, TABLES, overwrite)
    assert [path.name for path in foreign.iterdir()] == ["cat.jpg"], "not even a lock"
    for name in ("model.safetensors", "summary.json"):  # someone else's: there are no settings of a run beside it
        (tmp_path / name).mkdir()
        (tmp_path / name / name).write_text("kept")
        with pytest.raises(ConfigError, match="not a run"):
            Writer(tmp_path / name, TABLES, overwrite=True)
        assert [path.read_text() for path in (tmp_path / name).iterdir()] == ["kept"]
    (tmp_path / "empty").mkdir()
    assert is_finished(tmp_path / "empty", TABLES) is False, "its run was killed before it could write anything"
    Writer(tmp_path / "empty", TABLES).close()


def test_what_lies_beside_a_run_is_left_alone_whatever_it_is_called(tmp_path):
    folder = tmp_path / "a-0"
    write_run(folder, [make_record(1)], finish=False)
    mine = ["notes.tmp", "checkpoint-notes.txt", "checkpoint-best.ckpt", "checkpoint-000000050-copy.ckpt"]
    for name in mine:
        (folder / name).write_text("mine")
    (folder / "checkpoint-kept").mkdir()
    passing = ["checkpoint-000000050.ckpt", "checkpoint-000000051.tmp", "summary.json.tmp"]
    for name in passing:
        (folder / name).write_text("")
    assert checkpoints(folder) == [folder / passing[0]]
    Writer(folder, TABLES, overwrite=True).close()
    there = {path.name for path in folder.iterdir()}
    assert there >= {*mine, "checkpoint-kept"}
    assert not there & {*passing}
    assert is_finished(folder, TABLES) is False, "copies of checkpoints are no interrupted run"
    (folder / passing[0]).write_text("")
    writer = Writer(folder, TABLES, resume=True)
    writer.append(make_record(1))
    writer.finish(summarise([make_record(1)]))
    there = {path.name for path in folder.iterdir()}
    assert there >= {*mine, "checkpoint-kept"}
    assert not there & {*passing}
    other = tmp_path / "b-0"
    other.mkdir()
    (other / "notes.tmp").write_text("mine")
    with pytest.raises(ConfigError, match="not a run"):
        Writer(other, TABLES)


def test_summary():
    accuracies = [0.1, 0.5, 0.6, 0.7, 0.8, 0.9]
    lines = [make_record(k + 1, a, taus=(0, k)) for k, a in enumerate(accuracies)]
    summary = summarise(lines, target=0.65)
    assert summary["accuracy"] == pytest.approx(0.7)
    assert summary["accuracy_std"] == pytest.approx(0.02**0.5)
    assert summary["time_to_target"] == 40.0
    assert (summary["tau_max"], summary["tau_avg"], summary["tau_med"]) == (5, 2.5, 2.5)
    assert summarise(lines, target=0.95)["time_to_target"] is None
    for none in (None, math.nan, math.inf):  # what a run that goes on reads back, and what it had
        odd = {**make_record(9), "metrics": {"accuracy": none}}
        one, other = summarise([odd, *lines, odd], target=0.65), summarise([*lines, make_record(9)], target=0.65)
        assert [one[k] for k in ("accuracy", "accuracy_std", "time_to_target")] == [
            other[k] for k in ("accuracy", "accuracy_std", "time_to_target")
        ]
        assert "accuracy" not in summarise([odd])
    assert "target" not in summarise(lines)


GOOD = make_record(1, 0.5)
SUMMARY = {"experiment": "x", "algorithm": "a", "seed": 0, "place": 0, **summarise([GOOD])}


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("summary.json", "{"),
        ("summary.json", "[]"),
        ("summary.json", '{"algorithm": "a"}'),
        ("summary.json", to_json({**SUMMARY, "accuracy": "high"})),
        ("summary.json", to_json({**SUMMARY, "tau_max": 10**400})),
        ("summary.json", to_json({**SUMMARY, "target": 1e300})),
        ("metrics.jsonl", ""),
        ("metrics.jsonl", "not json\n"),
        ("metrics.jsonl", "3\n"),
        ("metrics.jsonl", to_json(make_record(7, 0.5))),
        *(
            ("metrics.jsonl", to_json({k: v for k, v in GOOD.items() if k != key}))
            for key in ("time", "jobs", "dropped", "refused", "metrics")
        ),
        ("metrics.jsonl", to_json({**GOOD, "metrics": {"accuracy": "high"}})),
        ("metrics.jsonl", to_json({**GOOD, "jobs": [{"client": 1}]})),
        ("metrics.jsonl", to_json({**GOOD, "eta": None})),
        ("metrics.jsonl", to_json({**GOOD, "refused": {"not finite": "often"}})),
        ("partition.json", '{"counts": [["x"]]}'),
        ("partition.json", "[]"),
        ("config.toml", "= 3"),
        ("config.toml", "task = 3"),
    ],
)
def test_damaged_folders(tmp_path, file, text):
    write_run(tmp_path / "a-0", [GOOD])
    find_runs(tmp_path)
    (tmp_path / "a-0" / file).write_text(text)
    with pytest.raises(ConfigError, match=f"a-0 is damaged: {file}: "):
        find_runs(tmp_path)


def test_foreign_files_are_passed_over(tmp_path):
    write_run(tmp_path / "a-0", [GOOD])
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "summary.json").write_text("[]")
    (tmp_path / "summary.json").write_text("[]")
    assert len(find_runs(tmp_path)) == 1


def test_nothing_there(tmp_path):
    with pytest.raises(ConfigError, match=f"no finished runs in {tmp_path}$"):
        find_runs(tmp_path)
    write_run(tmp_path / "fadas" / "eta=1-0", [GOOD])
    with pytest.raises(ConfigError, match=f", but in {tmp_path / 'fadas'}$"):
        find_runs(tmp_path)
    with pytest.raises(ConfigError, match="not a finished run"):
        read_run(tmp_path)


def test_json_is_strict():
    text = to_json({"loss": float("nan"), "list": [float("inf"), 1.5], "none": None})
    assert json.loads(text) == {"loss": None, "list": [None, 1.5], "none": None}
