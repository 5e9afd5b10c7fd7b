"""`fadas deploy init --from`: the app trains as the experiment says."""

import sys
import tomllib
from pathlib import Path

import pytest

pytest.importorskip("flwr")

from fadas.core.metrics import Metric
from fadas.experiments.experiment_file import read_experiment
from fadas.experiments.resolve import resolve
from fadas.flower import AsyncStrategy
from fadas.flower.options import (
    algorithm_from_run_config,
    local_from_run_config,
    schedule_from_run_config,
    task_from_run_config,
)
from helpers.cli import call_fadas

EXPERIMENT = """
[task]
name = "digits"
clients = 6
alpha = 0.3
metrics = ["macro_f1", "top2"]
[schedule]
concurrency = 5
buffer = 3
per_client = 1
[delays]
name = "uniform"
[local]
lr = 0.07
epochs = 3
batch_size = 16
weight_decay = 0.0
[run]
updates = 100
eval_every = 4
seeds = [7, 8]
metric = "macro_f1"
format = "number"
target = 0.6
sinks = ["tensorboard", { name = "wandb", project = "x" }]
[algorithms.fadas-da]
eta = 0.02
tau_c = 3
[algorithms.mine]
preset = "fadas"
combine = { name = "trimmed", trim = 1 }
step_size = { name = "warmup", steps = 5, then = "constant" }
[algorithms.robust]
preset = "fedbuff"
combine = { name = "trimmed", trim = 1 }
eta = 0.5
[algorithms.early]
preset = "fadas"
schedule.refill = "update"
[algorithms.near]
preset = "scaffold-async"
local = { mu = 0.1, steps = { name = "uniform", low = 2, high = 5 }, schedule = "sqrt" }
[algorithms.listed]
preset = "fadas"
local.steps = { name = "table", counts = [1, 2, 3, 4, 5, 6] }
[algorithms.local-only]
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("x.toml").write_text(EXPERIMENT)
    return tmp_path


@pytest.mark.parametrize("label", ["fadas-da", "robust", "near"])
def test_app_has_settings_of_experiment(folder, label):
    code, _, err = call_fadas("deploy", "init", "app", "--from", "x.toml", "--only", label)
    assert code == 0, err
    config = tomllib.loads(Path("app/pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
    expected = resolve(read_experiment(Path("x.toml")), label, 7)
    algorithm = algorithm_from_run_config(config)
    assert algorithm == expected.algorithm
    assert schedule_from_run_config(config, algorithm) == expected.schedule
    assert task_from_run_config(config).sizes == expected.make_task().sizes
    assert local_from_run_config(config) == expected.algorithm.local_training(expected.local)
    own = {"lr": 0.07, "epochs": 3, "batch-size": 16, "weight-decay": 0.0, "eval-every": 4}
    own |= {"metric": "macro_f1", "target": 0.6, "sinks": "tensorboard,wandb", "sinks-wandb-project": "x"}
    assert own.items() <= config.items()
    assert list(task_from_run_config(config).measured) == ["macro_f1", "top2"]
    options = AsyncStrategy.from_run_config(config | {"folder": str(folder / "kept")}).options
    assert (options.metric, options.target) == (Metric("macro_f1", "higher", "number"), 0.6)
    assert (config["num-server-rounds"], config["num-partitions"], config["seed"]) == (34, 6, 7)
    assert "num-supernodes=6" in Path("app/README.md").read_text()


def test_own_method_of_experiment_goes_with_the_app(folder, monkeypatch):
    monkeypatch.syspath_prepend(str(folder))
    Path("halves.py").write_text(
        "import fadas\n\ndef Half(eta: float = 1.0):\n    return fadas.FedBuff(eta=eta / 2)\n\n"
        "class Same(fadas.algorithms.Mean):\n    pass\n"
    )
    Path("own.toml").write_text(
        EXPERIMENT + '[algorithms.half]\npreset = "halves:Half"\neta = 0.5\n'
        '[algorithms.same]\npreset = "fadas"\ncombine = "halves:Same"\n'
    )
    for label in ("half", "same"):
        code, out, err = call_fadas("deploy", "init", label, "--from", "own.toml", "--only", label, "--allow-code")
        assert code == 0, err
        assert "halves.py" in out
        assert (folder / label / "halves.py").read_text() == Path("halves.py").read_text()
        assert "| `halves.py` | your own method |" in (folder / label / "README.md").read_text()
        config = tomllib.loads((folder / label / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
        assert algorithm_from_run_config(config) == resolve(read_experiment(Path("own.toml")), label, 7).algorithm
    assert config["algorithm-combine"] == "halves:Same"
    sys.modules.pop("halves")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["--from", "x.toml"],
            "--only must choose one algorithm to deploy: fadas-da, mine, robust, early, near, listed, local-only",
        ),
        (["--only", "fadas-da"], "--only needs --from"),
        (["--from", "x.toml", "--only", "robust", "--task", "names"], "--task and --from cannot be used together"),
        (["--from", "x.toml", "--only", "early"], "an app takes no schedule.refill"),
        (["--from", "x.toml", "--only", "listed"], "local-steps-counts = [1, 2, 3, 4, 5, 6] cannot be a setting"),
        (["--from", "x.toml", "--only", "mine"], "algorithm-step-size-then"),
        (["--from", "x.toml", "--only", "local-only"], 'the baseline "local-only" runs in simulations only'),
    ],
)
def test_what_an_app_cannot_express_is_refused(folder, options, message):
    code, _, err = call_fadas("deploy", "init", "app", *options)
    assert (code, err.count("\n")) == (2, 1)
    assert message in err
    assert not Path("app").exists()
