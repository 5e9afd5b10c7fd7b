"""What a writer puts into a run's folder, and what it refuses to put there."""

import hashlib
import json
import shutil
import tomllib

import pytest

from fadas.errors import ConfigError
from fadas.runs.folder import claim
from fadas.runs.reader import read_record
from fadas.runs.writer import Writer, valid_length
from helpers.folders import TABLES, make_record, make_summary, open_writer, read_files, read_records


class Listening:
    """A sink that remembers what it is told."""

    def __init__(self):
        self.told = []

    def open(self, folder, settings):
        self.told.append(("open", folder.name, settings["name"]))

    def record(self, record):
        self.told.append(("record", record.step))

    def close(self, summary):
        self.told.append(("close", summary and summary.step))


def test_lines_are_on_disk_at_once(tmp_path):
    writer = open_writer(tmp_path / "a-0")
    assert (tmp_path / "a-0" / "metrics.jsonl").read_bytes() == b""
    for step in (1, 2):
        writer.append(make_record(step))
        lines = (tmp_path / "a-0" / "metrics.jsonl").read_bytes().splitlines(keepends=True)
        assert len(lines) == step
        assert lines[-1].endswith(b"}\n")
        assert read_record(lines[-1]) == make_record(step)
    assert tomllib.loads((tmp_path / "a-0" / "config.toml").read_text()) == {"format": 3, **TABLES}
    writer.close()


def test_sinks_hear_of_everything_once(tmp_path):
    first, second = Listening(), Listening()
    writer = Writer(claim(tmp_path / "a-0", TABLES), sinks=[first, second])
    writer.append(make_record(1))
    writer.finish(make_summary([make_record(1)]))
    writer.close()
    assert first.told == second.told == [("open", "a-0", "x"), ("record", 1), ("close", 1)]
    interrupted = Listening()
    writer = Writer(claim(tmp_path / "b-0", TABLES), sinks=[interrupted])
    writer.close()
    writer.close()
    assert interrupted.told == [("open", "b-0", "x"), ("close", None)]


def test_closed_writer_writes_nothing_more_and_releases_folder(tmp_path):
    writer = open_writer(tmp_path / "a-0")
    writer.append(make_record(1))
    writer.close()
    with pytest.raises(ValueError, match="closed file"):
        writer.append(make_record(2))
    open_writer(tmp_path / "a-0").close()
    assert read_records(tmp_path / "a-0") == [], "a new run replaces the old one"


def test_mark_names_what_was_written(tmp_path):
    writer = open_writer(tmp_path / "a-0")
    assert writer.mark() == (0, hashlib.sha256(b"").hexdigest())
    writer.append(make_record(1))
    writer.append(make_record(2))
    content = (tmp_path / "a-0" / "metrics.jsonl").read_bytes()
    mark = writer.mark()
    assert mark == (len(content), hashlib.sha256(content).hexdigest())
    writer.append(make_record(3))
    assert valid_length(tmp_path / "a-0", mark) == len(content), "lines that came later do not matter"
    writer.close()
    changed = content.replace(b'"step": 1', b'"step": 9')
    (tmp_path / "a-0" / "metrics.jsonl").write_bytes(changed)
    with pytest.raises(ValueError, match="does not match this checkpoint"):
        valid_length(tmp_path / "a-0", mark)
    (tmp_path / "a-0" / "metrics.jsonl").write_bytes(content[:-1])
    with pytest.raises(ValueError, match="does not match this checkpoint"):
        valid_length(tmp_path / "a-0", mark)


def test_resumed_writer_keeps_what_the_mark_covers(tmp_path):
    writer = open_writer(tmp_path / "a-0")
    writer.append(make_record(1))
    length, _ = writer.mark()
    writer.append(make_record(2))
    writer.close()
    (tmp_path / "a-0" / "model.safetensors").write_text("of the run that goes on")
    again = open_writer(tmp_path / "a-0", mode="resume", kept=length)
    assert [line["step"] for line in read_records(tmp_path / "a-0")] == [1]
    again.append(make_record(2, 0.5))
    content = (tmp_path / "a-0" / "metrics.jsonl").read_bytes()
    assert again.mark() == (len(content), hashlib.sha256(content).hexdigest())
    assert [line["step"] for line in read_records(tmp_path / "a-0")] == [1, 2]
    assert (tmp_path / "a-0" / "model.safetensors").exists()
    again.close()
    from_start = open_writer(tmp_path / "a-0", mode="resume", kept=0)
    assert read_records(tmp_path / "a-0") == []
    from_start.append(make_record(1))
    content = (tmp_path / "a-0" / "metrics.jsonl").read_bytes()
    assert from_start.mark() == (len(content), hashlib.sha256(content).hexdigest())
    from_start.close()


@pytest.mark.parametrize("earlier", [0, 1, 3])
def test_last_record_can_be_replaced(tmp_path, earlier):
    writer = open_writer(tmp_path / "a-0")
    for step in range(1, earlier + 2):
        writer.append(make_record(step))
    before = (tmp_path / "a-0" / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    writer.replace_last(make_record(earlier + 1, 0.75))
    after = (tmp_path / "a-0" / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    assert after[:-1] == before[:-1]
    assert read_record(after[-1]) == make_record(earlier + 1, 0.75)
    writer.close()


def test_finished_run_has_summary_and_no_checkpoints(tmp_path):
    writer = open_writer(tmp_path / "a-0")
    writer.append(make_record(1))
    for name in ("checkpoint-000000001.ckpt", "checkpoint-000000002.ckpt.7.tmp", "notes.ckpt"):
        (tmp_path / "a-0" / name).write_text("")
    summary = make_summary([make_record(1)])
    writer.finish(summary)
    text = (tmp_path / "a-0" / "summary.json").read_text()
    assert text.endswith("}\n")
    assert json.loads(text) == {"format": 3, **summary.as_dict()}
    assert {path.name for path in (tmp_path / "a-0").iterdir()} == {
        ".lock", "config.toml", "metrics.jsonl", "summary.json", "notes.ckpt",
    }  # fmt: skip
    claim(tmp_path / "a-0", TABLES, "overwrite").release()


@pytest.mark.parametrize(
    "write",
    [
        lambda writer: writer.mark(),
        lambda writer: writer.require_held(),
        lambda writer: writer.write_summary(make_summary([make_record(1)])),
        lambda writer: writer.finish(make_summary([make_record(1)])),
    ],
    ids=["mark", "require_held", "write_summary", "finish"],
)
def test_writer_without_its_folder_writes_nothing(tmp_path, write):
    writer = open_writer(tmp_path / "a-0")
    writer.append(make_record(1))
    shutil.rmtree(tmp_path / "a-0")
    (tmp_path / "a-0").mkdir()
    (tmp_path / "a-0" / "another.txt").write_text("of another run")
    with pytest.raises(ConfigError, match="a-0 was deleted or moved while its run was writing there"):
        write(writer)
    assert read_files(tmp_path / "a-0") == {"another.txt": b"of another run"}
    writer.close()


def test_other_json_files_say_their_format(tmp_path):
    writer = open_writer(tmp_path / "a-0")
    writer.write_json("partition.json", {"counts": [[1, 2]]})
    assert (tmp_path / "a-0" / "partition.json").read_text() == '{"format": 3, "counts": [[1, 2]]}\n'
    writer.close()
