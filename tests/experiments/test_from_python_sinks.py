"""Sinks of runs that are started from Python."""

from dataclasses import replace

import pytest

import fadas
from fadas.errors import ConfigError
from helpers.trackers import read_scalars
from helpers.training import LOCAL, make_task

PLAN = fadas.plan(fadas.Schedule(4, 2), 8, fadas.Mild(shares=(0.5, 0.25, 0.25)), updates=8, seed=1)


class Steps:
    def __init__(self):
        self.told = []

    def open(self, folder, settings):
        self.told.append(folder.name)

    def record(self, record):
        self.told.append(record.step)

    def close(self, summary):
        self.told.append(summary and summary.step)


def simulate(**options):
    return fadas.simulate(PLAN, make_task(), fadas.FADAS(), LOCAL, executor="inline", **options)


def test_simulation_takes_objects_and_names(tmp_path):
    pytest.importorskip("tensorboard")
    first, second = Steps(), Steps()
    for record in simulate(folder=tmp_path / "mine" / "fadas-1", sinks=[first, {"name": "tensorboard"}]):
        if record.step == 2:
            break
    list(simulate(folder=tmp_path / "mine" / "fadas-1", sinks=["tensorboard", second]))
    assert first.told == ["fadas-1", 0, 1, 2, None]
    assert second.told == ["fadas-1", 3, 4, 4]
    assert list(read_scalars(tmp_path / "mine" / "fadas-1", "train/loss")) == [1, 2, 3, 4]
    list(simulate(folder=tmp_path / "mine" / "fadas-1"))  # with other sinks it is the same run


def test_simulation_without_folder_takes_no_sinks():
    with pytest.raises(ConfigError, match="sinks need a folder"):
        simulate(sinks=[Steps()])
    with pytest.raises(ConfigError, match="unknown sink 'tensorbord'; did you mean 'tensorboard'"):
        simulate(folder="runs/x", sinks=["tensorbord"])


def test_each_run_of_a_comparison_has_its_sinks(tmp_path):
    pytest.importorskip("tensorboard")
    methods = {"fadas": fadas.FADAS(), "fedbuff": (fadas.FedBuff(), replace(LOCAL, lr=0.2))}
    sinks = [{"name": "tensorboard", "figures": False}]
    fadas.compare(make_task(), methods, plan=PLAN, folder=tmp_path, sinks=sinks, executor="inline", jobs=2)
    for name in ("fadas-0", "fedbuff-0"):
        assert list(read_scalars(tmp_path / name, "eta")) == [1, 2, 3, 4]
        assert (
            'sinks = [\n    { name = "tensorboard", figures = false },' in (tmp_path / name / "config.toml").read_text()
        )
