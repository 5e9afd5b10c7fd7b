"""A real local Ray with two workers: the same bits as in-process, also when one is killed."""

import os
import signal
import socket
import time

import pytest
import torch

from fadas.algorithms.presets import CA2FL, FADAS, FedBuff
from fadas.core.ledger import Job
from fadas.executors import Cuda, Inline, Ray
from fadas.simulation.simulator import simulate
from fadas.training.flat_module import FlatModule
from fadas.training.sgd import LocalSGD
from helpers.cli import DEMO, run_fadas
from helpers.data_files import in_memory, load_arrays, write_arrays
from helpers.training import (
    LOCAL,
    assert_same_model,
    make_plan,
    make_task,
    make_wide_task,
    measure_steps,
    run_simulation,
    slow_cross_entropy,
)

ray = pytest.importorskip("ray")


@pytest.fixture(scope="module", autouse=True)
def cluster():
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    ray.init(num_cpus=2, num_gpus=1, include_dashboard=False, log_to_driver=False, object_store_memory=100_000_000)
    yield
    ray.shutdown()


def run_inline(task, algorithm):
    return run_simulation(make_plan(algorithm), task, algorithm)


def test_workers_open_data_on_disk(tmp_path):
    task, algorithm = load_arrays(write_arrays(tmp_path / "a")), FADAS()
    p = make_plan(algorithm)
    _, one = run_simulation(p, in_memory(task), algorithm)
    _, two = run_simulation(p, task, algorithm, executor=Ray(task, LOCAL, p.seed, workers=2))
    assert_same_model(one, two)


def test_ray_agrees_with_inline_when_worker_is_killed():
    task, algorithm = make_task(batchnorm=True, sizes=(4, 17, 30, 8)), FADAS()
    task.loss = slow_cross_entropy
    p = make_plan(algorithm)
    executor = Ray(task, LOCAL, p.seed, workers=2)
    simulation = simulate(p, task, algorithm, LOCAL, executor=executor)
    records, most, pids = [], 0, []
    for record in simulation:
        records.append(record)
        most = max(most, len(executor._stored))
        if record.step == 1:
            pids = ray.get([actor.pid.remote() for actor in executor.actors])
        if record.step == 4:
            busy = next(slot for slot, _, _ in executor._under_way.values())
            victim = executor.actors.index(busy)
            time.sleep(0.01)  # its job has started
            os.kill(pids[victim], signal.SIGKILL)
        if record.step == p.steps:
            assert ray.get(executor.actors[victim].pid.remote()) != pids[victim]
    expected_records, expected = run_inline(task, algorithm)
    assert_same_model(simulation.server.model, expected)
    assert measure_steps(records) == measure_steps(expected_records)
    assert 1 <= most <= 6, "a version is stored once, while its jobs run or it is the newest"
    assert not executor._stored
    assert ray.is_initialized(), "an existing cluster must stay"


def test_ray_agrees_with_inline_when_torch_has_threads():
    task, algorithm, threads = make_wide_task(), FADAS(), torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        simulation = simulate(make_plan(algorithm), task, algorithm, LOCAL, executor="ray")
        records, (expected_records, expected) = list(simulation), run_inline(task, algorithm)
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(simulation.server.model.params, expected.params)
    assert measure_steps(records) == measure_steps(expected_records)


def test_ray_agrees_with_inline_in_bfloat16():
    task, algorithm = make_task(), FADAS()
    p = make_plan(algorithm)
    results = []
    for make in (Inline, Ray):
        options = {"workers": 1} if make is Ray else {}
        executor = make(task, LOCAL, p.seed, precision="bf16", **options)
        simulation = simulate(p, task, algorithm, LOCAL, executor=executor)
        results.append(([(r.train_loss, r.metrics) for r in simulation], simulation.server.model.params.tolist()))
    assert results[0] == results[1]
    with pytest.raises(ValueError, match='precision "tf32" needs a CUDA device'):
        Ray(task, LOCAL, p.seed, precision="tf32")


def test_version_is_sent_once():
    task, algorithm = make_task(), CA2FL()
    p = make_plan(algorithm)
    executor = Ray(task, LOCAL, p.seed, workers=2)
    put, inner = [], executor._ray.put
    executor._ray = type("Counting", (), {"put": lambda _, x: put.append(x) or inner(x)})()
    executor._ray.__class__.__getattr__ = lambda _, name: getattr(ray, name)
    simulation = simulate(p, task, algorithm, LOCAL, executor=executor)
    list(simulation)
    versions = {int(p.version[id]) for id in p.arrivals.ravel()}
    assert len(put) == 1 + len(versions)  # the task, and each version that a job starts from
    assert torch.equal(simulation.server.model.params, run_inline(task, algorithm)[1].params)


@pytest.mark.parametrize("told", [True, False])
def test_address_without_cluster_is_refused(monkeypatch, told):
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    with socket.socket() as port:  # bound, so nobody else takes it, but not listening
        port.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{port.getsockname()[1]}"
        if not told:
            monkeypatch.setenv("RAY_ADDRESS", address)
        executor = Ray(make_task(), LOCAL, 0, address=address if told else None)
        with pytest.raises(RuntimeError, match=f"no Ray cluster answers at {address}: .*refused"):
            executor.submit(Job(0, 0, 0), None, 0)


def test_without_address_ray_starts_own_cluster(monkeypatch):
    def refuse(address, **options):
        raise RuntimeError(f"asked for {address}")

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", refuse)
    with pytest.raises(RuntimeError, match="asked for local"):
        Ray(make_task(), LOCAL, 0).submit(Job(0, 0, 0), None, 0)
    assert Ray(make_task(), LOCAL, 0, address="local")._address is None, "a local cluster does not grow"


def test_run_uses_existing_cluster_by_address(tmp_path):
    def read_metrics(name, *options):
        command = ["run", DEMO, "--only", "fadas", "--set", "run.steps=5", "--json"]
        run_fadas(*command, "--out", tmp_path / name, *options)
        return (tmp_path / name / "fadas-1" / "metrics.jsonl").read_bytes()

    address = ray.get_runtime_context().gcs_address
    settings = ["--set", f'executor.address="{address}"', "--set", "executor.workers=1"]
    on_ray = read_metrics("ray", "--executor", "ray", *settings)
    assert on_ray == read_metrics("inline", "--executor", "inline")
    assert on_ray.count(b"\n") == 6, "the initial model and five steps"


def test_second_run_on_cluster_gets_all_workers():
    address = ray.get_runtime_context().gcs_address
    for _ in range(2):
        executor = Ray(make_task(), LOCAL, 0, address=address)
        try:
            executor.submit(Job(0, 0, 0), FlatModule(make_task().module(0)).read(), 0)
            executor.collect(Job(0, 0, 0))
            assert len(executor.actors) == 2
        finally:
            executor.close()


def test_worker_failure_is_reported():
    task = make_task()
    inner, parent = task.loss, os.getpid()

    def fail_in_worker(outputs, targets):  # the preflight, in this process, finds nothing wrong
        if os.getpid() != parent:
            raise ArithmeticError("cannot go on")
        return inner(outputs, targets)

    task.loss = fail_in_worker
    p = make_plan(FADAS())
    with pytest.raises(RuntimeError, match=r"^Job\(.*\) failed in its Ray worker: ArithmeticError: cannot go on$"):
        list(simulate(p, task, FADAS(), LOCAL, executor=Ray(task, LOCAL, p.seed, workers=1)))


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_more_workers_than_places_are_refused(device):
    """Ray would let them wait forever."""
    task = make_task()
    model = FlatModule(task.module(0)).read()
    with pytest.raises(RuntimeError, match=r"has \d [CG]PUs for 3 workers"):
        Ray(task, LOCAL, 0, device, workers=3).submit(Job(0, 0, 0), model, 0)


def test_worker_evaluates_like_inline():
    """As with GPUs. The cluster pretends to have one."""
    task = make_task(batchnorm=True)
    model = FlatModule(task.module(0)).read()
    executor = Ray(task, LOCAL, 0, workers=1)
    executor._cuda = True
    assert executor.evaluate(model) == Inline(task, LOCAL, 0).evaluate(model)
    executor.close()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("options", [{"precision": "fp32"}, {"compile": True}], ids=str)
def test_gpu_workers_agree_with_cuda_executor(options):
    task, algorithm = make_task(batchnorm=True, sizes=(4, 17, 30, 8)), FedBuff()
    p = make_plan(algorithm)
    results = []
    for executor in (Ray(task, LOCAL, p.seed, "cuda", **options), Cuda(task, LOCAL, p.seed, "cuda", **options)):
        simulation = simulate(p, task, algorithm, LOCAL, executor=executor)
        results.append((list(simulation), simulation.server.model))
    (records, one), (others, two) = results
    # Ray's server steps run on the CPU, those of the CUDA executor on the GPU.
    torch.testing.assert_close(one.params, two.params.cpu(), rtol=1e-2, atol=1e-3)
    assert [r.metrics["loss"] for r in records] == pytest.approx([r.metrics["loss"] for r in others], rel=1e-2)


def test_bad_options_are_refused():
    with pytest.raises(ValueError, match="workers must be at least 1, got 0"):
        Ray(make_task(), LOCAL, 0, workers=0)


def test_ray_keeps_sigterm_handler_and_refuses_bfloat16_models():
    task = make_task()
    before = signal.getsignal(signal.SIGTERM)
    executor = Ray(task, LocalSGD(steps=1), 0, workers=1)
    try:
        executor.submit(Job(0, 0, 0), FlatModule(task.module(0)).read(), 0)
        assert signal.getsignal(signal.SIGTERM) is before, "fadas writes a checkpoint on SIGTERM"
        executor.collect(Job(0, 0, 0))
    finally:
        executor.close()
    model = task.model
    task.model = lambda: model().bfloat16()
    with pytest.raises(ValueError, match="models in bfloat16 cannot be sent to Ray workers"):
        Ray(task, LocalSGD(steps=1), 0)
