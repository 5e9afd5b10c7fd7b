"""The app that `fadas deploy init` of fadas 0.1 wrote: it imports from the modules of that time."""

import pytest

pytest.importorskip("flwr")
from typer.testing import CliRunner

from fadas.cli.app import app as cli
from helpers.cli import ROOT
from helpers.deployed_app import forget_app, run_app
from helpers.flower import patch_flower

OLD = ROOT / "tests" / "data" / "app-0.1"


def test_app_of_fadas_0_1_trains_the_same_model_as_a_new_app(monkeypatch, tmp_path):
    patch_flower(monkeypatch)
    CliRunner().invoke(cli, ["deploy", "init", str(tmp_path / "new"), "--task", "digits"])
    models = []
    for app in (OLD, tmp_path / "new"):
        forget_app()
        _, _, folder, _ = run_app(monkeypatch, app, tmp_path / app.name / "runs", **{"num-server-rounds": 4})
        models.append((folder / "model.safetensors").read_bytes())
    forget_app()
    assert models[0] == models[1]


def test_app_of_fadas_0_1_names_the_new_modules_in_warnings(monkeypatch):
    monkeypatch.syspath_prepend(OLD)
    forget_app()
    with pytest.warns(
        DeprecationWarning, match=r"fadas\.client\.train has moved to fadas\.training\.one_job\.train_job"
    ):
        import app.client_app
    assert app.client_app.train is not None
    forget_app()
