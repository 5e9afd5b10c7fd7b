"""A deployment that an earlier version interrupted continues."""

import shutil

import pytest

pytest.importorskip("flwr")

import fadas
from helpers.cli import ROOT
from helpers.flower import ONE, TWO, Node

FORMATS = sorted((ROOT / "tests" / "data").glob("format-*/deployment"))


@pytest.mark.parametrize("folder", FORMATS, ids=lambda path: path.parent.name)
def test_interrupted_deployment_continues(play, tmp_path, folder):
    play.folder = tmp_path / "deployment"
    shutil.copytree(folder, play.folder)
    before = (play.folder / "fadas-0" / "metrics.jsonl").read_bytes()
    play({ONE: Node(), TWO: Node()}, steps=12, concurrency=2, buffer=2, algorithm=fadas.FADAS(), check=False)
    after = (play.folder / "fadas-0" / "metrics.jsonl").read_bytes()
    assert after.startswith(before)
    assert (play.last["step"], play.last["updates"]) == (12, 24)
