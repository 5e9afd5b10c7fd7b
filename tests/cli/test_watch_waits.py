"""`fadas watch` waits for the folder of a deployment that has just begun."""

import pytest

from helpers.cli import ROOT, call_fadas


@pytest.fixture
def clock(monkeypatch):
    """Time passes only in `sleep`."""

    class Clock:
        now, at = 0.0, {}

        def sleep(self, seconds):
            self.now += seconds
            self.at.pop(self.now, lambda: None)()

    clock = Clock()
    monkeypatch.setattr("fadas.cli.terminal.time.sleep", clock.sleep)
    monkeypatch.setattr("fadas.cli.terminal.time.monotonic", lambda: clock.now)
    return clock


def test_watch_gives_up_after_a_minute_without_folder(clock, tmp_path):
    code, out, err = call_fadas("watch", tmp_path / "runs")
    assert (code, err) == (
        2, f"fadas: {tmp_path / 'runs'} is not a folder; give the folder of an experiment, a run or a deployment\n"
    )  # fmt: skip
    assert 60 <= clock.now < 62
    assert "waiting for a run in" in out


def test_watch_shows_run_whose_folder_comes_later(clock, tmp_path):
    clock.at = {2.0: lambda: (tmp_path / "runs").mkdir(), 70.0: lambda: (_ for _ in ()).throw(KeyboardInterrupt)}
    code, _, err = call_fadas("watch", tmp_path / "runs")
    assert (code, err) == (130, "fadas: interrupted; the runs continue\n")


@pytest.mark.parametrize("arguments", [["runs", "--once"], [ROOT / "README.md"], ["no/runs"]])
def test_watch_refuses_at_once_what_cannot_come(clock, tmp_path, monkeypatch, arguments):
    monkeypatch.chdir(tmp_path)
    code, _, err = call_fadas("watch", *arguments)
    assert code == 2
    assert "is not a folder" in err
    assert clock.now == 0
