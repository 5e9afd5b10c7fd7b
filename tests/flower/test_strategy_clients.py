"""Clients of several kinds in Flower's simulation engine: whole models, adapters, deltas, BatchNorm."""

import time

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
from helpers.client_apps import ADAPTERS, adapter_app, make_data, make_net, train_net, whole_model_app
from helpers.folders import read_records

NODES = 3


PATIENCE = 600  # seconds: on a busy machine Ray's workers take minutes to start


BACKEND = {
    "init_args": {"num_cpus": 2, "log_to_driver": False, "object_store_memory": 100_000_000},
    "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
}


@pytest.fixture
def federate(monkeypatch):
    """Run a ServerApp's main with these clients in the simulation engine, which starts its own Ray."""
    import ray

    monkeypatch.setenv("PYTHONPATH", "")  # the engine changes it
    assert not ray.is_initialized()

    def federate(client_app, main):
        server_app = ServerApp()

        @server_app.main()
        def _(grid, context):
            while len(nodes := sorted(grid.get_node_ids())) < NODES:  # client k is the k-th node of a complete list
                time.sleep(0.1)
            main(grid, nodes)

        run_simulation(server_app, client_app, NODES, backend_config=BACKEND)

    yield federate
    ray.shutdown()


def read_jobs(folder):
    """The clients of each step and the versions that they started from."""
    records = read_records(folder / "fadas-0")
    return [[(job["client"], t - job["tau"]) for job in record["jobs"]] for t, record in enumerate(records)]


def test_fedavg_client_works_unchanged_and_averages_statistics(federate, tmp_path):
    initial = make_net().state_dict()
    nodes, results = [], []

    def evaluate(step, arrays):
        net = make_net()
        net.load_state_dict(arrays.to_torch_state_dict())
        net.eval()
        x, y = make_data(0)
        return MetricRecord({"loss": nn.functional.cross_entropy(net(x), y).item()})

    def main(grid, ids):
        nodes.extend(ids)
        FedAvg(fraction_evaluate=0.0).start(grid, ArrayRecord(initial), num_rounds=1)
        strategy = AsyncStrategy(fadas.FedBuff(eta=0.5), Schedule(3, 2), folder=tmp_path, poll=0.05)
        results.append(strategy.start(grid, ArrayRecord(initial), 8, timeout=PATIENCE, evaluate_fn=evaluate))

    federate(whole_model_app, main)
    (result,) = results
    losses = [result.evaluate_metrics_serverapp[step]["loss"] for step in range(9)]
    assert losses[-1] < 0.8 * losses[0]
    assert list(result.train_metrics_clientapp) == list(range(1, 9))

    steps = read_jobs(tmp_path)
    assert {client for jobs in steps for client, _ in jobs} == set(range(NODES))
    versions = [initial]
    for jobs in steps:
        reports = []
        for client, version in jobs:
            net = make_net()
            net.load_state_dict(versions[version])
            train_net(net, nodes[client])
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


def test_adapters_or_deltas_are_trained_and_frozen_arrays_kept(federate, tmp_path):
    initial = make_pretrained()
    nodes, results = [], {}

    def main(grid, ids):
        nodes.extend(ids)
        for reply in ("arrays", "delta"):
            for statistics in (False, True):
                options = {"reply": reply, "folder": tmp_path / f"{reply}-{statistics}", "poll": 0.05}
                strategy = AsyncStrategy(
                    fadas.FedBuff(), Schedule(3, 3), trainable=lambda name: "lora" in name, **options
                )
                config = ConfigRecord({"delta": reply == "delta", "statistics": statistics})
                arrays = ArrayRecord({name: Array(v) for name, v in initial.items()})
                results[reply, statistics] = strategy.start(grid, arrays, 4, timeout=PATIENCE, train_config=config)

    federate(adapter_app, main)
    for (reply, statistics), result in results.items():
        got = {name: array.numpy() for name, array in result.arrays.items()}
        assert list(got) == list(initial)
        expected = {name: v + 4 * 0.5 if name in ADAPTERS else v for name, v in initial.items()}
        if statistics:
            clients = [client for client, _ in read_jobs(tmp_path / f"{reply}-{statistics}")[-1]]
            mean = np.float32(sum(nodes[client] % 97 for client in clients)) / np.float32(3)
            expected["norm.running_mean"] = np.full(3, mean)
        for name, value in expected.items():
            assert got[name].dtype == value.dtype
            assert np.array_equal(got[name], value), name
