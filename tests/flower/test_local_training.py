"""Every way of local training gives the same numbers in a deployment as in a simulation."""

import json
from dataclasses import replace

import pytest
import torch
from typer.testing import CliRunner

pytest.importorskip("flwr")
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from safetensors.torch import load_file

from fadas import training
from fadas.algorithms import FADAS, SCAFFOLD, FedNova
from fadas.algorithms.companions import ControlVariates
from fadas.cli.app import app as cli
from fadas.core.ledger import Job, Step
from fadas.core.model import Model, ServerState
from fadas.errors import ConfigError
from fadas.flower import local_from_run_config, train_and_reply
from fadas.flower.arrays import ArrayLayout, is_trainable
from fadas.flower.messages import job_seed, parse_reply, train_message
from fadas.flower.options import algorithm_from_run_config
from fadas.training.flat_module import FlatModule
from fadas.training.job_state import start_of_job
from fadas.training.one_job import train_job
from helpers.deployed_app import forget_app, run_app
from helpers.flower import patch_flower
from helpers.folders import read_records
from helpers.training import make_task

SETTINGS = {
    "scaffold": {"algorithm": "scaffold-async", "local-steps": 4},
    "fednova with momentum": {
        "algorithm": "fednova", "local-name": "momentum", "local-beta": 0.8,
        "local-steps": "uniform", "local-steps-low": 1, "local-steps-high": 6, "local-steps-per": "client",
    },
    "fedlalr": {"algorithm": "fedlalr", "local-name": "amsgrad", "lr": 0.01, "local-schedule": "sqrt"},
    "kept moments": {"algorithm": "fedbuff", "local-name": "adam", "lr": 0.01, "local-keep": True, "local-warmup": 2},
    "fedprox": {"algorithm": "fedprox", "local-mu": 0.5, "local-clip": 0.3, "local-decoupled": True},
}  # fmt: skip


@pytest.mark.parametrize("name", SETTINGS)
def test_app_reaches_the_numbers_of_one_by_one_training(name, monkeypatch, tmp_path):
    patch_flower(monkeypatch)
    done = CliRunner().invoke(cli, ["deploy", "init", str(tmp_path / "app"), "--task", "digits"])
    assert done.exit_code == 0, done.output
    given = {"num-partitions": 7, "num-server-rounds": 5, "concurrency": 3, "task-hidden": 8, "algorithm-eta": 1.0}
    given = {**given, **SETTINGS[name]}
    if name == "fedlalr":
        given["algorithm-eta"] = 0.5
    jobs = []

    def train_and_note(flat, task, local, seed, job, start):
        jobs.append(job)
        return train_job(flat, task, local, seed, job, start)

    monkeypatch.setattr("fadas.flower.client.train_job", train_and_note)
    try:
        task, config, folder, _ = run_app(monkeypatch, tmp_path / "app", tmp_path / "runs", **given)
    finally:
        forget_app()
    key = bytes.fromhex(json.loads((folder / "summary.json").read_text())["key"])
    algorithm, local = algorithm_from_run_config(config), local_from_run_config(config)
    assert local == algorithm.local_training(local)
    flat = FlatModule(task.module(config["seed"]))
    x = flat.read()
    states = [ServerState(0, Model(x.params, x.buffers, algorithm.exchange.sent(x, {})))]
    records, kept, updates = read_records(folder), {}, {}
    for job in jobs:
        while job.version >= len(states):
            states.append(take_step(algorithm, states[-1], records, updates))
        own = local.for_job(job, task.sizes[job.client], config["seed"])
        start = start_of_job(states[job.version].model, kept.get(job.client, {}))
        updates[job.id] = train_job(flat, task, own, job_seed(key, job.id), job, start)
        kept[job.client] = updates[job.id].kept
    while len(states) <= len(records):
        states.append(take_step(algorithm, states[-1], records, updates))
    final = load_file(folder / "model.safetensors")
    for parameter, value in flat.state_dict(states[-1].model).items():
        assert torch.equal(final[parameter], value), parameter
    assert not torch.equal(states[-1].model.params, x.params)


def take_step(algorithm, state, records, updates):
    """The server's next step, from the updates that its record names."""
    chosen = [updates[job["id"]] for job in records[state.version]["jobs"]]
    return algorithm.apply(state, Step(state.version, tuple(u.job for u in chosen)), chosen, 7)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"lr": 0.1, "epochs": 3, "batch-size": 8, "weight-decay": 0.0}, training.LocalSGD(0.1, 3, 8, 0.0)),
        ({"lr": 0.1, "local-steps": 0}, training.LocalSGD(0.1)),
        ({"lr": 0.1, "local-steps": 7, "local-mu": 0.2}, training.LocalSGD(0.1, steps=7, mu=0.2)),
        ({"lr": 0.1, "local-name": "nesterov", "local-beta": 0.5}, training.Nesterov(0.1, beta=0.5)),
        (
            {"lr": 0.1, "local-schedule": "cosine", "local-schedule-steps": 9},
            training.LocalSGD(0.1, schedule=training.Cosine(9)),
        ),
        ({"algorithm": "fedprox", "lr": 0.1, "algorithm-mu": 0.3}, training.LocalSGD(0.1, mu=0.3)),
        ({"algorithm": "scaffold", "lr": 0.1}, training.LocalSGD(0.1, companion=ControlVariates())),
        ({"algorithm-companion": "control-variates"}, training.LocalSGD(companion=ControlVariates())),
    ],
)
def test_settings_of_an_app_are_those_of_an_experiment(config, expected):
    assert local_from_run_config(config) == expected


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"local-name": "adma"}, "unknown local 'adma'; did you mean 'adam'"),
        ({"local-clipp": 0.1}, "unknown key 'local-clipp'; did you mean 'local-clip'"),
        ({"local-mu": -1.0}, "local-mu must be at least 0, got -1"),
        ({"local-companion": "proximal"}, "unknown key 'local-companion'"),
        ({"local-schedule-steps": 5}, "local-schedule is missing: local-schedule-steps needs it"),
        ({"algorithm": "scaffold", "local-name": "adam"}, 'need local-name = "sgd"'),
    ],
)
def test_bad_settings_of_an_app_are_named(config, message):
    with pytest.raises(ConfigError, match=message):
        local_from_run_config(config)


def make_exchange(algorithm):
    """A task, its layout, and the first job's message and context."""
    task = make_task()
    flat = FlatModule(task.module(0))
    layout = ArrayLayout(ArrayRecord(flat.module.state_dict()), is_trainable)
    x = layout.initial
    x = Model(x.params, x.buffers, algorithm.exchange.sent(x, {}))
    beside = layout.to_vector_records(x)
    message = train_message(Job(0, 2, 0), 11, layout.to_record(x), ConfigRecord(), 5, 60.0, beside)
    return task, layout, x, message, Context(1, 11, {}, RecordDict(), {})


def answer(algorithm, monkeypatch):
    patch_flower(monkeypatch)
    task, layout, x, message, context = make_exchange(algorithm)
    local = algorithm.local_training(training.LocalSGD(0.1, 1, 6))
    return layout, x, train_and_reply(message, context, task, local, client=2).content


@pytest.mark.parametrize("missing", ["fadas-dc", "fadas-steps"])
def test_reply_without_a_vector_is_malformed(missing, monkeypatch):
    algorithm = SCAFFOLD() if missing == "fadas-dc" else FedNova()
    layout, x, content = answer(algorithm, monkeypatch)
    assert parse_reply(Job(0, 2, 0), content, x, layout, "delta", algorithm.exchange).vectors
    if missing == "fadas-dc":
        del content[missing]
    else:
        del content["metrics"][missing]
    with pytest.raises(KeyError, match=missing):
        parse_reply(Job(0, 2, 0), content, x, layout, "delta", algorithm.exchange)


def test_vector_of_another_shape_is_malformed(monkeypatch):
    algorithm = SCAFFOLD()
    layout, x, content = answer(algorithm, monkeypatch)
    name = next(iter(content["fadas-dc"]))
    content["fadas-dc"][name] = Array(content["fadas-dc"][name].numpy()[:1])
    with pytest.raises(ValueError, match="must have the shape"):
        parse_reply(Job(0, 2, 0), content, x, layout, "delta", algorithm.exchange)


def test_message_of_a_method_without_vectors_is_as_before(monkeypatch):
    patch_flower(monkeypatch)
    algorithm = FADAS()
    *_, message, _ = make_exchange(algorithm)
    assert list(message.content) == ["arrays", "config"]


def test_node_stores_nothing_unless_it_keeps_something(monkeypatch):
    patch_flower(monkeypatch)
    for algorithm, local, names in (
        (FADAS(), training.LocalSGD(0.1, 1, 6), set()),
        (SCAFFOLD(), training.LocalSGD(0.1, 1, 6), {"c_i"}),
        (FADAS(), training.Momentum(0.1, 1, 6, keep=True), {"m", "local.t"}),
    ):
        task, _, _, message, context = make_exchange(algorithm)
        reply = train_and_reply(message, context, task, algorithm.local_training(local), client=2)
        assert isinstance(reply, Message)
        assert isinstance(reply.content["metrics"], MetricRecord)
        stored = context.state.array_records.get("fadas-kept", {})
        assert set(stored) == names


class Tied(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = torch.nn.Linear(6, 6), torch.nn.Linear(6, 3)
        self.again = self.first

    def forward(self, x):
        return self.last(self.again(self.first(x).relu()))


def test_vectors_of_tied_weights_come_under_all_names(monkeypatch):
    patch_flower(monkeypatch)
    algorithm, task = SCAFFOLD(), replace(make_task(), model=Tied)
    layout = ArrayLayout(ArrayRecord(Tied().state_dict()), is_trainable)
    x = layout.initial
    x = Model(x.params, x.buffers, algorithm.exchange.sent(x, {}))
    message = train_message(Job(0, 2, 0), 11, layout.to_record(x), ConfigRecord(), 5, 60.0, layout.to_vector_records(x))
    local, context = algorithm.local_training(training.LocalSGD(0.1, 1, 6)), Context(1, 11, {}, RecordDict(), {})
    content = train_and_reply(message, context, task, local, client=2).content
    vector = parse_reply(Job(0, 2, 0), content, x, layout, "delta", algorithm.exchange).vectors["dc"]
    assert vector.shape == x.params.shape
    assert set(content["fadas-dc"]) == {
        f"{part}.{kind}" for part in ("first", "last", "again") for kind in ("weight", "bias")
    }
