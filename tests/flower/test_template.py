"""The app that `fadas deploy init` writes: its own code, server and clients, in this process."""

import copy
import json
import sys
import tomllib

import pytest
import torch
from typer.testing import CliRunner

pytest.importorskip("flwr")
from safetensors.torch import load_file

import fadas
from fadas.cli.app import app as cli
from helpers.cli import ROOT
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
        lambda text: text,
        learns=False,  # a random encoder on made-up sentences
        **{"num-server-rounds": 3, "num-partitions": 7, "task-encoder": "tiny", "task-max-length": 20},
    )
    assert all("lora" in name or "classifier" in name for name in set.union(*sent))


@pytest.fixture
def project(monkeypatch, tmp_path):
    """A project that `fadas init` wrote, and an app beside it with the project's task."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    for command in (["init", "."], ["deploy", "init", "../federation", "--task", "task:make_task"]):
        done = CliRunner().invoke(cli, command)
        assert done.exit_code == 0, done.output
    yield tmp_path / "project"
    forget_app()
    sys.modules.pop("task", None)


def test_app_trains_task_of_project(monkeypatch, tmp_path, project):
    patch_flower(monkeypatch)
    app = tmp_path / "federation"
    assert (app / "task.py").read_text() == (project / "task.py").read_text()
    monkeypatch.chdir(tmp_path)  # the app finds its own copy
    settings = {"num-server-rounds": 20, "num-partitions": 7, "lr": 0.05}
    task, config, folder, _ = run_app(monkeypatch, app, tmp_path / "runs", **settings)
    assert config["task"] == "task:make_task"
    assert sys.modules["task"].__file__ == str(app / "task.py")
    assert next(p.shape for p in task.module().parameters()) == (16, 30)
    assert json.loads((folder / "summary.json").read_text())["metrics"]["accuracy"] > 0.85


def test_app_requires_what_is_on_an_index(tmp_path):
    CliRunner().invoke(cli, ["deploy", "init", str(tmp_path / "app")])
    asked = tomllib.loads((tmp_path / "app" / "pyproject.toml").read_text())["project"]["dependencies"]
    ours = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    known = [*ours["dependencies"], *ours["optional-dependencies"]["flower"]]
    assert set(asked) <= set(known), "the ranges must be those of fadas"
    assert any(one.startswith("flwr") for one in asked)


@pytest.mark.parametrize(
    ("task", "message"),
    [
        ("task:make_tusk", "unknown function 'task:make_tusk'; did you mean 'task:make_task'?"),
        ("tusk:make_task", "cannot read tusk.py in the current folder"),
        ("app.task:make_task", "the app has a package called app"),
    ],
)
def test_deploy_init_refuses_task_that_app_could_not_import(project, task, message):
    (project / "app").mkdir()
    (project / "app" / "task.py").write_text("def make_task(): ...")
    done = CliRunner().invoke(cli, ["deploy", "init", "other", "--task", task])
    assert message in str(done.exception)
    assert not (project / "other").exists()


def test_names_of_a_package_are_copied_with_it(project):
    (project / "mine" / "data").mkdir(parents=True)
    for path in ("mine/__init__.py", "mine/data/__init__.py"):
        (project / path).write_text("")
    (project / "mine" / "data" / "blobs.py").write_text("import functools\nsmall = functools.partial(dict)\n")
    done = CliRunner().invoke(cli, ["deploy", "init", "other", "--task", "mine.data.blobs:small"])
    assert done.exit_code == 0, done.exception
    copied = {path.relative_to(project / "other").as_posix() for path in (project / "other" / "mine").rglob("*.py")}
    assert copied == {"mine/__init__.py", "mine/data/__init__.py", "mine/data/blobs.py"}


def test_modules_that_a_task_imports_are_copied_with_it(project):
    (project / "tools").mkdir()
    (project / "tools" / "__init__.py").write_text("from . import deep\n")
    (project / "tools" / "deep.py").write_text("import helper\n")
    (project / "helper.py").write_text("import numpy, task\n")
    (project / "unused.py").write_text("")
    task = (project / "task.py").read_text()
    (project / "task.py").write_text(f"{task}\n\ndef late():\n    from tools.deep import helper\n")
    assert CliRunner().invoke(cli, ["deploy", "init", "copied", "--task", "task:make_task"]).exit_code == 0
    copied = {path.relative_to(project / "copied").as_posix() for path in (project / "copied").rglob("*.py")}
    assert {path for path in copied if not path.startswith("app/")} == {
        "task.py",
        "helper.py",
        "tools/__init__.py",
        "tools/deep.py",
    }


def test_task_of_app_takes_seed_only_where_it_has_one(monkeypatch):
    from fadas.flower import task_from_run_config

    config = {"num-partitions": 5, "seed": 3}
    assert len(task_from_run_config({**config, "task": "names", "task-words": 50}).clients) == 5  # takes no seed
    sizes = [task_from_run_config({**config, "task": "digits", "seed": seed}).sizes for seed in (3, 4)]
    assert sizes[0] != sizes[1]
    with pytest.raises(fadas.ConfigError, match=r"unknown key 'task.wards'; did you mean 'task.words'"):
        task_from_run_config({**config, "task": "names", "task-wards": 50})
    with pytest.raises(fadas.ConfigError, match="cannot import task 'nowhere:task' in the app"):
        task_from_run_config({**config, "task": "nowhere:task"})
