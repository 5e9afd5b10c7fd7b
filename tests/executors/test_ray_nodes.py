"""A real Ray of two nodes on this machine, each with its own object store and room for one worker."""

import os

import pytest
import torch

from fadas.algorithms.presets import FedBuff
from fadas.executors import Cuda, Inline, Ray
from fadas.simulation.simulator import simulate

pytest.importorskip("ray")
import ray
from ray.cluster_utils import Cluster

from helpers.processes import wait_until
from helpers.training import LOCAL, make_plan, make_task

GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")


@pytest.fixture
def nodes():
    """Two nodes. Both claim the same GPU, if there is one, and do not know of each other."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    one = {"num_cpus": 1, "num_gpus": 1, "object_store_memory": 100_000_000, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=one)
    cluster.add_node(**one)
    ray.init(address=cluster.address, log_to_driver=False)
    yield
    ray.shutdown()
    cluster.shutdown()


def is_full(device):
    """Whether the cluster reports no free place. Nodes report now and then."""
    return not ray.available_resources().get("GPU" if device == "cuda" else "CPU", 0)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=GPU)])
def test_every_node_gets_worker_and_bits_agree(nodes, device):
    task, algorithm = make_task(batchnorm=True, sizes=(4, 17, 30, 8)), FedBuff()
    p = make_plan(algorithm)
    options = {"precision": "fp32"} if device == "cuda" else {}
    executor = Ray(task, LOCAL, p.seed, device, **options)
    given, send = set(), executor._send
    executor._send = lambda slot, job, start: (given.add(executor.actors.index(slot)), send(slot, job, start))
    simulation = simulate(p, task, algorithm, LOCAL, executor=executor)
    records = []
    for record in simulation:
        records.append(record)
        if record.step == 1:
            assert len(set(ray.get([actor.pid.remote() for actor in executor.actors]))) == 2
            wait_until(lambda: is_full(device), timeout=60, what="no node was full")
    assert given == {0, 1}, "both must get jobs"
    alone = (Cuda if device == "cuda" else Inline)(task, LOCAL, p.seed, device, **options)
    other = simulate(p, task, algorithm, LOCAL, executor=alone)
    expected = list(other)
    if device == "cpu":
        assert torch.equal(simulation.server.model.params, other.server.model.params)
        assert [r.metrics for r in records] == [r.metrics for r in expected]
    else:  # Ray's server steps run on the CPU, those of the CUDA executor on the GPU
        torch.testing.assert_close(
            simulation.server.model.params, other.server.model.params.cpu(), rtol=1e-2, atol=1e-3
        )
