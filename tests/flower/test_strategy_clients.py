"""Clients of several kinds in Flower's simulation engine: whole models, adapters, deltas, BatchNorm."""

import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

pytest.importorskip("flwr")
pytest.importorskip("ray")
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

import fadas
from fadas.core.ledger import Schedule
from fadas.flower import AsyncStrategy
from helpers.client_apps import ADAPTERS, app, make_data, make_net, train_net
from helpers.folders import read_records

NODES = 3


PATIENCE = 600  # seconds: on a busy machine Ray's workers take minutes to start


BACKEND = {
    "init_args": {"num_cpus": 2, "log_to_driver": False, "object_store_memory": 100_000_000},
    "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
}


@dataclass
class Federation:
    """What came of the deployments: the numbers of the nodes, and results and folders by name."""

    folder: Path
    nodes: list[int] = field(default_factory=list)
    results: dict = field(default_factory=dict)


@pytest.fixture(scope="module")
def federation(tmp_path_factory):
    """Several deployments, one after the other, in one run of the simulation engine, which starts its own Ray."""
    import ray

    assert not ray.is_initialized()
    made, server_app = Federation(tmp_path_factory.mktemp("federation")), ServerApp()

    @server_app.main()
    def _(grid, context):
        while len(nodes := sorted(grid.get_node_ids())) < NODES:  # client k is the k-th node of a complete list
            time.sleep(0.1)
        made.nodes = nodes
        made.results["whole"] = train_whole_model(grid, made.folder / "whole")
        for reply in ("arrays", "delta"):
            for statistics in (False, True):
                folder = made.folder / f"{reply}-{statistics}"
                made.results[reply, statistics] = train_adapters(grid, folder, reply, statistics)

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", "")  # the engine changes it
        run_simulation(server_app, app, NODES, backend_config=BACKEND)
    ray.shutdown()
    return made


def train_whole_model(grid, folder):
    """FedAvg, and then FedBuff with the same clients."""
    initial = make_net().state_dict()

    def evaluate(step, arrays):
        net = make_net()
        net.load_state_dict(arrays.to_torch_state_dict())
        net.eval()
        x, y = make_data(0)
        return MetricRecord({"loss": nn.functional.cross_entropy(net(x), y).item()})

    FedAvg(fraction_evaluate=0.0).start(grid, ArrayRecord(initial), num_rounds=1)
    strategy = AsyncStrategy(fadas.FedBuff(eta=0.5), Schedule(3, 2), folder=folder, poll=0.05)
    return strategy.start(grid, ArrayRecord(initial), 8, timeout=PATIENCE, evaluate_fn=evaluate)


def train_adapters(grid, folder, reply, statistics):
    """FedBuff with clients that send their adapters, or how these changed, and statistics if asked."""
    options = {"reply": reply, "folder": folder, "poll": 0.05}
    strategy = AsyncStrategy(fadas.FedBuff(), Schedule(3, 3), trainable=lambda name: "lora" in name, **options)
    config = ConfigRecord({"delta": reply == "delta", "statistics": statistics})
    arrays = ArrayRecord({name: Array(v) for name, v in make_pretrained().items()})
    return strategy.start(grid, arrays, 4, timeout=PATIENCE, train_config=config)


def read_jobs(folder):
    """The clients of each step and the versions that they started from."""
    records = read_records(folder / "fadas-0")
    return [[(job["client"], t - job["tau"]) for job in record["jobs"]] for t, record in enumerate(records)]


def test_fedavg_client_works_unchanged_and_averages_statistics(federation):
    initial, result = make_net().state_dict(), federation.results["whole"]
    losses = [result.evaluate_metrics_serverapp[step]["loss"] for step in range(9)]
    assert losses[-1] < 0.8 * losses[0]
    assert list(result.train_metrics_clientapp) == list(range(1, 9))

    steps = read_jobs(federation.folder / "whole")
    assert {client for jobs in steps for client, _ in jobs} == set(range(NODES))
    versions = [initial]
    for jobs in steps:
        reports = []
        for client, version in jobs:
            net = make_net()
            net.load_state_dict(versions[version])
            train_net(net, federation.nodes[client])
            reports.append((versions[version], net.state_dict()))
        new = {}
        for name, value in versions[-1].items():
            if name.endswith(("running_mean", "running_var")):
                new[name] = sum(report[name] for _, report in reports) / 2
            elif name.endswith("num_batches_tracked"):
                new[name] = value
            else:
                new[name] = value + 0.5 * sum(report[name] - base[name] for base, report in reports) / 2
        versions.append(new)
    got = result.arrays.to_torch_state_dict()
    assert list(got) == list(initial)
    for name, value in versions[-1].items():
        torch.testing.assert_close(got[name], value, rtol=1e-4, atol=1e-5)


def make_pretrained():
    """A frozen model in two precisions, adapters, and statistics."""
    rng = np.random.default_rng(1)
    return {
        "layer.weight": rng.normal(size=(50, 40)).astype(np.float32),
        "layer.double": rng.normal(size=300),
        "layer.lora_A": np.ones((2, 40), np.float32),
        "layer.lora_B": np.zeros((50, 2), np.float32),
        "norm.running_mean": np.zeros(3, np.float32),
        "norm.running_var": rng.random(3).astype(np.float32),
        "norm.num_batches_tracked": np.array(7),
    }


def test_adapters_or_deltas_are_trained_and_frozen_arrays_kept(federation):
    initial = make_pretrained()
    for reply in ("arrays", "delta"):
        for statistics in (False, True):
            got = {name: array.numpy() for name, array in federation.results[reply, statistics].arrays.items()}
            assert list(got) == list(initial)
            expected = {name: v + 4 * 0.5 if name in ADAPTERS else v for name, v in initial.items()}
            if statistics:
                clients = [client for client, _ in read_jobs(federation.folder / f"{reply}-{statistics}")[-1]]
                mean = np.float32(sum(federation.nodes[client] % 97 for client in clients)) / np.float32(3)
                expected["norm.running_mean"] = np.full(3, mean)
            for name, value in expected.items():
                assert got[name].dtype == value.dtype
                assert np.array_equal(got[name], value), name
