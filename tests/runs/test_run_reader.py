"""Finished runs read from their folders."""

import re

import pytest

from fadas.errors import ConfigError, Damaged
from fadas.runs.reader import find_runs, read_run
from fadas.runs.serialization import to_json
from helpers.folders import TABLES, make_record, make_summary, write_run


def test_run_round_trip(tmp_path):
    lines = [make_record(1), make_record(2, 0.5)]
    write_run(tmp_path / "a-0", lines)
    run = read_run(tmp_path / "a-0")
    assert run.records == lines
    assert run.config == {**TABLES, "task": {}, "run": {"keep": "last", **TABLES["run"]}}
    assert run.summary == make_summary(lines)
    assert run.evaluations == [(lines[1], {"accuracy": 0.5})]
    assert [r.folder.name for r in find_runs(tmp_path)] == ["a-0"]
    assert find_runs(tmp_path / "a-0")[0].records == lines


GOOD = make_record(1, 0.5)
LINE, SUMMARY = GOOD.as_dict(), make_summary([GOOD]).as_dict()


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
        ("metrics.jsonl", to_json(make_record(7, 0.5).as_dict())),
        *(
            ("metrics.jsonl", to_json({k: v for k, v in LINE.items() if k != key}))
            for key in ("time", "jobs", "dropped", "refused", "metrics")
        ),
        ("metrics.jsonl", to_json({**LINE, "metrics": {"accuracy": "high"}})),
        ("metrics.jsonl", to_json({**LINE, "jobs": [{"client": 1}]})),
        ("metrics.jsonl", to_json({**LINE, "eta": None})),
        ("metrics.jsonl", to_json({**LINE, "refused": {"not finite": "often"}})),
        ("partition.json", '{"counts": [["x"]]}'),
        ("partition.json", "[]"),
        ("config.toml", "= 3"),
        ("config.toml", "task = 3"),
    ],
)
def test_damaged_folder_is_named(tmp_path, file, text):
    write_run(tmp_path / "a-0", [GOOD])
    find_runs(tmp_path)
    (tmp_path / "a-0" / file).write_text(text)
    with pytest.raises(Damaged, match=rf"a-0(/{re.escape(file)} is damaged: | is damaged: {re.escape(file)}: )"):
        find_runs(tmp_path)


def test_foreign_files_are_skipped(tmp_path):
    write_run(tmp_path / "a-0", [GOOD])
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "summary.json").write_text("[]")
    (tmp_path / "summary.json").write_text("[]")
    assert len(find_runs(tmp_path)) == 1


def test_folder_without_runs_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=f"no finished runs in {tmp_path}$"):
        find_runs(tmp_path)
    with pytest.raises(ConfigError, match=f"{tmp_path / 'none'} does not exist; give the folder of an experiment"):
        find_runs(tmp_path / "none")
    write_run(tmp_path / "fadas" / "eta=1-0", [GOOD])
    with pytest.raises(ConfigError, match=f", but in {tmp_path / 'fadas'}$"):
        find_runs(tmp_path)
    with pytest.raises(Damaged, match=f"cannot read {tmp_path / 'summary.json'}: No such file"):
        read_run(tmp_path)
