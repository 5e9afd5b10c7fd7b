"""A real Ray, local, two workers: the same bits as in-process, also when one is killed."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from conftest import make_task
from fadas.algorithms import CA2FL, FADAS
from fadas.client import LocalSGD
from fadas.delays import Delays, Large
from fadas.executors import Ray
from fadas.planner import plan
from fadas.simulator import simulate

ray = pytest.importorskip("ray")
DEMO = Path(__file__).parent.parent / "experiments" / "demo.toml"
LOCAL = LocalSGD(lr=0.1, epochs=1, batch_size=6)


@pytest.fixture(scope="module", autouse=True)
def cluster():
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, object_store_memory=100_000_000)
    yield
    ray.shutdown()


def timeline(algorithm, steps=12):
    return plan(algorithm.schedule(5, 3), 8, Delays(Large(), dropout=0.1), steps=steps, seed=3)


def inline(task, algorithm):
    simulation = simulate(timeline(algorithm), task, algorithm, LOCAL, executor="inline")
    return list(simulation), simulation.server.model


def slow(outputs, targets):
    time.sleep(0.02)
    return torch.nn.functional.cross_entropy(outputs, targets)


def test_ray_gives_the_bits_of_inline_also_when_a_worker_is_killed_in_mid_job():
    task, algorithm = make_task(batchnorm=True, sizes=(4, 17, 30, 8)), FADAS()
    task.loss = slow
    p = timeline(algorithm)
    executor = Ray(task, LOCAL, p.seed, workers=2)
    simulation = simulate(p, task, algorithm, LOCAL, executor=executor)
    records, most, pids = [], 0, []
    for record in simulation:
        records.append(record)
        most = max(most, len(executor._versions))
        if record.step == 1:
            pids = ray.get([actor.pid.remote() for actor in executor.actors])
        if record.step == 4:
            busy = next(slot for slot, _, _ in executor._under_way.values())
            victim = executor.actors.index(busy)
            time.sleep(0.01)  # its job has begun
            os.kill(pids[victim], signal.SIGKILL)
        if record.step == p.steps:
            assert ray.get(executor.actors[victim].pid.remote()) != pids[victim]
    expected_records, expected = inline(task, algorithm)
    assert torch.equal(simulation.server.model.params, expected.params)
    assert torch.equal(simulation.server.model.buffers, expected.buffers)
    assert [(r.train_loss, r.metrics) for r in records] == [(r.train_loss, r.metrics) for r in expected_records]
    assert 1 <= most <= 5, "a version is stored once, and only while its jobs run"
    assert not executor._versions
    assert ray.is_initialized(), "a cluster that was there before stays"


def test_a_version_travels_once():
    task, algorithm = make_task(), CA2FL()
    p = timeline(algorithm)
    executor = Ray(task, LOCAL, p.seed, workers=2)
    put, inner = [], executor._ray.put
    executor._ray = type("Counting", (), {"put": lambda _, x: put.append(x) or inner(x)})()
    executor._ray.__class__.__getattr__ = lambda _, name: getattr(ray, name)
    simulation = simulate(p, task, algorithm, LOCAL, executor=executor)
    list(simulation)
    versions = {int(p.version[id]) for id in p.arrivals.ravel()}
    assert len(put) <= 1 + 2 * len(versions) * 2  # the task; parameters and buffers; a version may be needed again
    assert torch.equal(simulation.server.model.params, inline(task, algorithm)[1].params)


def test_a_run_on_an_existing_cluster_by_its_address(tmp_path):
    def metrics(name, *options):
        command = [sys.executable, "-m", "fadas.cli", "run", DEMO, "--only", "fadas", "--set", "run.steps=5", "--json"]
        done = subprocess.run([*command, "--out", tmp_path / name, *options], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        lines = (tmp_path / name / "fadas-1" / "metrics.jsonl").read_text().splitlines()
        return [{**json.loads(line), "wall": 0} for line in lines]

    address = ray.get_runtime_context().gcs_address
    on_ray = metrics("ray", "--executor", "ray", "--set", f'executor.address="{address}"')
    assert on_ray == metrics("inline", "--executor", "inline")
    assert len(on_ray) == 5


def test_what_fails_in_a_worker_says_so():
    task = make_task()

    def fragile(outputs, targets):
        raise ArithmeticError("cannot go on")

    task.loss = fragile
    p = timeline(FADAS())
    with pytest.raises(ArithmeticError, match="cannot go on"):
        list(simulate(p, task, FADAS(), LOCAL, executor=Ray(task, LOCAL, p.seed, workers=1)))


def test_bad_options():
    with pytest.raises(ValueError, match="workers"):
        Ray(make_task(), LOCAL, 0, workers=0)
