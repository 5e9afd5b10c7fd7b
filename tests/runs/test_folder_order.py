"""The order in which a run's files are removed."""

from pathlib import Path

from fadas.runs.folder import remove_run
from helpers.folders import make_record, write_run


def test_summary_is_removed_first_and_settings_last(tmp_path, monkeypatch):
    """Whatever the order in which the system lists them."""
    for place, reverse in (("a-0", False), ("a-1", True)):
        folder, removed = tmp_path / place, []
        write_run(folder, [make_record(1)])
        for name in ("model.safetensors", "a.txt", "report.html"):
            (folder / name).write_text("")
        names = sorted(folder.iterdir(), reverse=reverse)
        with monkeypatch.context() as patch:
            patch.setattr(Path, "iterdir", lambda path, names=names: iter(names))
            patch.setattr(Path, "unlink", lambda path, removed=removed: removed.append(path.name))
            remove_run(folder)
        assert (removed[0], removed[-1]) == ("summary.json", "config.toml")
        assert set(removed) == {"summary.json", "metrics.jsonl", "model.safetensors", "report.html", "config.toml"}
