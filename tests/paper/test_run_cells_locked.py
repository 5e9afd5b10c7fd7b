"""Cells that another process is running, or has just finished."""

from fadas.experiments.run import execute
from fadas.runs import lock
from helpers.paper import reproduce
from helpers.processes import hold_lock


def test_locked_cell_is_skipped(small_paper):
    with hold_lock(small_paper / "runs/cifar10-large-dir0.1/fadas-1"):
        shown = reproduce(small_paper, "large-cifar10", "--only", "fadas")
    assert "cifar10-large-dir0.1 fadas-1: another process was running it; trying again" in shown.output
    assert "1 cells run, 1 left" in shown.output
    skipped = "1 of 2 cells skipped, because another process is running them: cifar10-large-dir0.1 fadas-1"
    assert str(shown.exception) == f"{skipped}; wait for it"
    assert [path.parent.name for path in small_paper.glob("results/*/*.json")] == ["cifar10-large-dir0.3"]


def test_cell_unlocked_meanwhile_is_retried(small_paper, monkeypatch):
    with hold_lock(small_paper / "runs/cifar10-large-dir0.1/fadas-1") as file:
        monkeypatch.setattr("fadas.paper.run_cells.execute", lambda *a, **k: (file.close(), execute(*a, **k))[1])
        shown = reproduce(small_paper, "large-cifar10", "--only", "fadas")
    assert shown.exit_code == 0, shown.output
    assert "another process was running it; trying again" in shown.output
    assert "2 cells run, 0 left" in shown.output


def test_cell_just_finished_elsewhere_is_read(small_paper, monkeypatch):
    assert reproduce(small_paper, "large-cifar10", "--only", "fedbuff").exit_code == 0
    kept = {path: path.read_text() for path in small_paper.glob("results/*/*.json")}
    summaries = [path.rename(path.with_name("away")) for path in small_paper.glob("runs/*/*/summary.json")]
    for path in kept:
        path.unlink()

    def finish_and_acquire(folder, acquire=lock.acquire):
        """The process that had the lock has finished."""
        for path in summaries:
            if path.parent == folder and path.exists():
                path.rename(path.with_name("summary.json"))
        acquire(folder)

    monkeypatch.setattr(lock, "acquire", finish_and_acquire)
    shown = reproduce(small_paper, "large-cifar10", "--only", "fedbuff")
    assert shown.exit_code == 0, shown.output
    assert {path: path.read_text() for path in small_paper.glob("results/*/*.json")} == kept, "not trained again"
