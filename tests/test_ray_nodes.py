"""A real Ray of two nodes, each with room for one worker: on this machine, but with object stores of their own."""

import os
import time

import pytest
import torch

from conftest import make_task
from fadas.algorithms.presets import FedBuff
from fadas.executors import Cuda, Inline, Ray
from fadas.simulation.delays import Delays, Large
from fadas.simulation.planner import plan
from fadas.simulation.simulator import simulate
from fadas.training.sgd import LocalSGD

ray = pytest.importorskip("ray")
from ray.cluster_utils import Cluster  # noqa: E402

LOCAL = LocalSGD(lr=0.1, epochs=1, batch_size=6)
GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")


@pytest.fixture
def nodes():
    """Where there is one GPU, both nodes have it: each says that it has one, and cannot know of the other."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    one = {"num_cpus": 1, "num_gpus": 1, "object_store_memory": 100_000_000, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=one)
    cluster.add_node(**one)
    ray.init(address=cluster.address, log_to_driver=False)
    yield
    ray.shutdown()
    cluster.shutdown()


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=GPU)])
def test_a_worker_on_every_node(nodes, device):
    task, algorithm = make_task(batchnorm=True, sizes=(4, 17, 30, 8)), FedBuff()
    p = plan(algorithm.schedule(5, 3), 8, Delays(Large(), dropout=0.1), steps=12, seed=3)
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
            deadline = time.monotonic() + 60
            while ray.available_resources().get("GPU" if device == "cuda" else "CPU", 0):  # nodes report now and then
                assert time.monotonic() < deadline, "a node has room left"
                time.sleep(0.1)
    assert given == {0, 1}, "both have had jobs"
    alone = (Cuda if device == "cuda" else Inline)(task, LOCAL, p.seed, device, **options)
    other = simulate(p, task, algorithm, LOCAL, executor=alone)
    expected = list(other)
    if device == "cpu":
        assert torch.equal(simulation.server.model.params, other.server.model.params)
        assert [r.metrics for r in records] == [r.metrics for r in expected]
    else:  # the server's steps are rounded on the CPU here, on the GPU there
        torch.testing.assert_close(
            simulation.server.model.params, other.server.model.params.cpu(), rtol=1e-2, atol=1e-3
        )
