"""Every experiment's smoke profile runs, for every method, on small data in the official layouts."""

import json

import pytest

from test_cli import fadas
from test_config import EXPERIMENTS

PAPER = [path for path in EXPERIMENTS if path.stem != "demo"]


def test_every_setting_of_the_paper_is_there():
    vision = {f"{d}-{delay}-dir{a}" for d in ("cifar10", "cifar100") for delay in ("mild", "large") for a in (0.1, 0.3)}
    assert {path.stem for path in PAPER} == vision | {"rte-mild", "mrpc-mild", "sst2-mild"}


@pytest.mark.parametrize("path", PAPER, ids=lambda path: path.stem)
def test_smoke(path, data, tmp_path):
    """One process for all methods. The small files are not the published ones, so their checksums are not compared."""
    language = path.stem.endswith("-mild") and not path.stem.startswith("cifar")
    if language:
        pytest.importorskip("peft")
    options = [] if language else ["--set", "task.verify=false", "--set", "task.limit=200"]
    done = fadas("run", path, "--profile", "smoke", *options, "--out", tmp_path, "--json")
    results = [json.loads(line) for line in done.stdout.splitlines()]
    assert [r["algorithm"] for r in results] == [
        "fadas", "fadas-da", "fedbuff", "fedasync", "fedasync-delta", "ca2fl", "fedavg", "fedams"
    ]  # fmt: skip
    for result in results:
        assert result["metrics"]["loss"] > 0
        assert 1 <= result["step"] <= 75
    kept = "adapter/adapter_model.safetensors" if language else "model.safetensors"
    assert (tmp_path / "fadas-1" / kept).exists()
