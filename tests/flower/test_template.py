"""The app that `fadas deploy init` writes: its own code, server and clients, in this process."""

import copy
import json

import pytest
import torch
from typer.testing import CliRunner

pytest.importorskip("flwr")
from safetensors.torch import load_file

from fadas.cli.app import app as cli
from helpers.deployed_app import forget_app, run_app
from helpers.flower import patch_flower

# A frozen encoder, statistics, a buffer with an unusual name, a weight under two names, a head.
NETWORK = """
import torch
from torch import nn

import fadas
from fadas.training.sgd import LocalSGD


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8)).requires_grad_(False)
        self.tied = self.encoder[0]
        self.norm = nn.BatchNorm1d(8)
        self.register_buffer("centre", torch.full((8,), 0.3))
        self.head = nn.Linear(8, 2)
        self.again = self.head

    def forward(self, x):
        return self.again(self.norm(self.encoder(x) - self.centre))


def make_task(config, node=None):
    x = torch.randn(8, 40, 6, generator=torch.Generator().manual_seed(3))
    data = [(part, (part[:, 0] > 0).long()) for part in x]
    return fadas.Task(Network, data[:7], test=data[7])


def local_training(config):
    return LocalSGD(lr=0.3, epochs=2, batch_size=20)
"""


@pytest.fixture
def deploy(monkeypatch, tmp_path):
    """Run an app's ServerApp with nodes that run its ClientApp. Return both models and the names of sent arrays."""
    patch_flower(monkeypatch)

    def deploy(task, change, learns, **settings):
        done = CliRunner().invoke(cli, ["deploy", "init", str(tmp_path / "federation"), "--task", task])
        assert done.exit_code == 0, done.output
        path = tmp_path / "federation" / "app" / "task.py"
        path.write_text(change(path.read_text()))
        task, config, folder, sent = run_app(monkeypatch, tmp_path / "federation", tmp_path / "runs", **settings)
        after, module = load_file(folder / "model.safetensors"), task.module(config["seed"])
        check_deployment(
            module, after, sent, task, json.loads((folder / "summary.json").read_text())["metrics"], learns
        )
        return module.state_dict(), after, sent

    yield deploy
    forget_app()


def check_deployment(module, after, sent, task, metrics, learns):
    """Trained weights have learned. Frozen weights have neither changed nor been sent."""
    before, trained = module.state_dict(), copy.deepcopy(module)
    parameters = dict(module.named_parameters(remove_duplicate=False))
    frozen = {name for name, p in parameters.items() if not p.requires_grad}
    assert frozen
    assert set.union(*sent) == after.keys() == before.keys() - frozen
    assert all(0 < (after[name] - before[name]).abs().max() < 5.0 for name in parameters.keys() - frozen)
    trained.load_state_dict(after, strict=False)
    assert task.evaluate(trained) == metrics, "the server's frozen weights must stay the initial ones"
    assert metrics["loss"] < 0.9 * task.evaluate(module)["loss"] or not learns


def test_frozen_weights_are_neither_sent_nor_changed(deploy):
    settings = {"algorithm": "fedbuff", "algorithm-eta": 1.0, "num-server-rounds": 12}
    before, after, _ = deploy("digits", lambda text: NETWORK, learns=True, **settings)
    assert torch.equal(after["centre"], before["centre"]), "a buffer must be averaged, not added up"
    assert torch.equal(after["head.weight"], after["again.weight"])
    for name in ("norm.running_mean", "encoder.1.running_mean"):
        assert not torch.equal(after[name], before[name])


def test_lora_sends_only_adapters_and_head(deploy, data):
    pytest.importorskip("peft")
    _, _, sent = deploy(
        "sst2",
        lambda text: text.replace("](clients", '](encoder="tiny", max_length=20, clients'),
        learns=False,  # a random encoder on made-up sentences
        **{"num-server-rounds": 3, "num-partitions": 7},
    )
    assert all("lora" in name or "classifier" in name for name in set.union(*sent))
