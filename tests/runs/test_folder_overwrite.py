"""Runs that are overwritten: adapters of LoRA, links, and interruptions at any moment."""

import shutil
from pathlib import Path

import pytest

from fadas.runs.folder import CONFIG, Claim, claim, find_finished, is_run_file
from fadas.runs.writer import Writer
from helpers.folders import TABLES, make_record, open_writer, read_files, write_run


def write_lora_run(folder):
    """A finished run whose model is a folder, as peft saves it, and a file of the user's own."""
    write_run(folder, [make_record(1)])
    (folder / "adapter").mkdir()
    (folder / "adapter" / "adapter_model.safetensors").write_text("weights")
    (folder / "adapter" / "adapter_config.json").write_text("{}")
    (folder / "partition.json").write_text("{}")
    (folder / "notes.txt").write_text("mine")


def test_overwrite_removes_adapter_folder(tmp_path):
    write_lora_run(tmp_path / "a-0")
    open_writer(tmp_path / "a-0", mode="overwrite").close()
    names = {path.name for path in (tmp_path / "a-0").iterdir()}
    assert names == {".lock", "config.toml", "metrics.jsonl", "notes.txt"}


def test_overwrite_removes_link_to_adapter_and_not_what_it_leads_to(tmp_path):
    write_lora_run(tmp_path / "a-0")
    shutil.move(tmp_path / "a-0" / "adapter", tmp_path / "elsewhere")
    (tmp_path / "a-0" / "adapter").symlink_to(tmp_path / "elsewhere")
    open_writer(tmp_path / "a-0", mode="overwrite").close()
    assert not (tmp_path / "a-0" / "adapter").is_symlink()
    assert len(list((tmp_path / "elsewhere").iterdir())) == 2


def overwrite_and_stop(folder, monkeypatch, count):
    """Overwrite a run, and stop as if killed after this many files are removed. Return whether it came so far."""
    left, unlink = [None] * count, Path.unlink

    def unlink_or_stop(path, *arguments, **options):
        if not left:
            raise KeyboardInterrupt
        left.pop()
        unlink(path, *arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", unlink_or_stop)
        claimed = claim(folder, TABLES, "overwrite")
        assert isinstance(claimed, Claim)
        try:
            Writer(claimed).close()
        except KeyboardInterrupt:
            return True
        finally:
            claimed.release()
    return False


def test_killed_overwrite_leaves_neither_finished_nor_foreign_folder(tmp_path, monkeypatch):
    """The summary goes first and the settings last. So the next command may start over, and finds no old result."""
    stops = 0
    while True:
        folder = tmp_path / f"a-{stops}"
        write_lora_run(folder)
        if not overwrite_and_stop(folder, monkeypatch, stops):
            break
        finished = find_finished(folder, TABLES)
        assert (finished is None) == (stops > 0), "a part of the old run is no finished run"
        assert (folder / CONFIG).exists() or not any(map(is_run_file, read_files(folder)))
        open_writer(folder, mode="overwrite").close()
        write_run(folder, [make_record(1), make_record(2)])
        assert find_finished(folder, TABLES, "resume").step == 2
        assert (folder / "notes.txt").read_text() == "mine"
        assert not (folder / "adapter").exists()
        stops += 1
    assert stops > 3


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("config.toml", True),
        ("config.toml.tmp", True),
        ("config.toml.123.tmp", True),
        ("config.toml.123.tmp.bak", False),
        ("metrics.jsonl", True),
        ("model.safetensors", True),
        ("model.safetensors.99.tmp", True),
        ("adapter", True),
        ("partition.json", True),
        ("summary.json", True),
        ("report.html", True),
        ("events.out.tfevents.1700000000.host", True),
        ("checkpoint-000000012.ckpt", True),
        ("checkpoint-000000012.ckpt.77.tmp", True),
        ("checkpoint-12.ckpt", False),
        ("checkpoint-0000000123.ckpt", False),
        ("my-checkpoint-000000012.ckpt", False),
        ("notes.txt", False),
        ("adapters", False),
        (".lock", False),
    ],
)
def test_names_of_run_files(name, ours):
    assert is_run_file(name) is ours
