"""What the benchmarks claim beside speed."""

import gc
import json
import sys
import time

import numpy as np
import pytest
import torch

from fadas.algorithms.algorithm import Algorithm
from fadas.algorithms.optimizers import AMSGrad
from fadas.algorithms.presets import FADAS
from fadas.algorithms.step_sizes import Constant
from fadas.cli.bench import bench_cpu, bench_gpu, bench_plan, bench_ray
from fadas.cli.bench.cpu import alive
from fadas.cli.bench.machine import free_share, peak_memory
from fadas.cli.bench.plan import plain_loop as plain_events
from fadas.cli.bench.workloads import CONCURRENCY, LOCAL, OTHERS, mlp, plain_loop
from fadas.core.ledger import Schedule
from fadas.errors import ConfigError, FadasWarning
from fadas.executors import EXECUTORS
from fadas.simulation.delays import Delays, Uniform
from fadas.simulation.planner import plan
from fadas.simulation.simulator import simulate
from helpers.cli import run_fadas
from helpers.forks import start_server
from helpers.processes import share_one_core


@pytest.mark.parametrize("executor", ["inline", "batched", "processes"])
def test_memory_depends_on_jobs_in_flight_not_on_clients(executor):
    """10,000 clients. Each version is held once and freed with the last job that started from it."""
    clients, concurrency, buffer = 10_000, 40, 8
    task, algorithm = mlp(clients), FADAS()
    p = plan(algorithm.schedule(concurrency, buffer), clients, steps=25, seed=1)
    before = alive()
    simulation = simulate(
        p, task, algorithm, LOCAL, executor=EXECUTORS[executor](task, LOCAL, 1, "cpu"), eval_every=p.steps
    )
    size = simulation.server.model.params.nbytes
    peak = 0
    for record in simulation:
        running = simulation.server.ledger.running.values()
        in_flight = {job.version for job in running} | {record.step}
        held = {id(model) for model in simulation.server.base.values()}
        assert len(held) <= len(in_flight)
        if record.step % 5 == 0:  # finding everything alive is slow
            peak = max(peak, alive() - before)
    # versions in flight, updates done ahead of time, the optimizer's moments, the modules of simulation and executor
    workers = 4 * torch.get_num_threads() if executor == "processes" else 0
    assert peak <= (2 * concurrency + 20 + workers) * size < clients * size / 50
    del simulation
    assert alive() - before < 10 * size


@pytest.fixture(scope="module", autouse=True)
def frozen():
    """The benchmark unfreezes what conftest.py has frozen."""
    yield
    gc.freeze()


@pytest.mark.forks
def test_cpu_benchmark_has_every_workload(monkeypatch):
    monkeypatch.setattr("fadas.cli.bench.cpu._ROUNDS", 1)
    tables = bench_cpu(0.01, seconds=4.0)
    *networks, overhead, memory = tables.values()
    small, *others, share, images, larger = networks
    names = {"plain PyTorch loop, 1 thread", "batched, 1 thread", "auto"}
    assert {row["what"] for row in small} == names | {"inline, 1 thread"}
    assert [{row["what"] for row in rows} for rows in others] == [names] * len(OTHERS)
    assert all(row["ratio"] > 0 for rows in (small, *others, images, larger) for row in rows)
    assert [row["M_c"] for row in share] == [10, CONCURRENCY]
    assert all(row["share_percent"] > 0 for row in share)
    assert [row["workload"] for row in overhead] == ["MLP 32-64-10", "small CNN"]
    assert memory[-1]["clients"] == 10_000
    assert memory[-1]["peak_bytes"] < 2 * memory[0]["peak_bytes"] < memory[-1]["a_copy_per_client"]


@pytest.mark.forks
def test_cpu_benchmark_beside_busy_processes_ends_in_time_and_says_so():
    begin = time.monotonic()
    with share_one_core(2), pytest.warns(FadasWarning, match="a comparison was cut short after .* less certain"):
        tables = [rows for rows in bench_cpu(0.15, seconds=2.0).values() if "what" in rows[0]]
    assert time.monotonic() - begin < 120, "the whole workload takes ten times as long here as on an idle machine"
    assert [len(rows) for rows in tables] == [4, *[3] * len(OTHERS), 4, 4]
    for rows in tables:
        assert all(row["updates_per_s"] > 0 for row in rows)
        assert rows[0]["ratio"] == 1


def test_free_share_beside_two_busy_processes_is_small():
    with share_one_core(2):
        assert 0 < free_share(1, seconds=1.0) < 0.6


def test_benchmark_on_busy_machine_warns(tmp_path):
    start_server()  # its start would take long on a third of a core
    with share_one_core(2):
        done = run_fadas("bench", "plan", "--scale", "0.001", "--json")
    assert done.stderr.startswith("fadas: warning: the machine is busy: only ")
    assert done.stderr.rstrip().endswith("these figures are too low. Repeat the benchmark when nothing else runs")
    result = json.loads(done.stdout)
    assert 0 < result["machine"]["free_share"] < 0.8
    assert next(iter(result["tables"])).startswith("planning against a plain event loop")


def test_plain_loop_stops_after_its_time():
    p = plan(FADAS().schedule(25, 10), 50, steps=60, seed=1)
    assert plain_loop(mlp(), LOCAL, p, seconds=0.0)[1] == 10
    assert plain_loop(mlp(), LOCAL, p)[1] == 600


def test_plain_loop_learns_like_simulator():
    """The baseline does the same work: with the same plan, it ends with a similar loss."""
    task, algorithm = mlp(), Algorithm(optimizer=AMSGrad(bias_correction=True), step_size=Constant(1e-3))
    p = plan(algorithm.schedule(25, 10), 50, steps=60, seed=1)
    simulation = simulate(p, task, algorithm, LOCAL, executor="inline", eval_every=60)
    *_, last = simulation
    module, _ = plain_loop(task, LOCAL, p)
    first = task.evaluate(task.module(1))["loss"]
    assert task.evaluate(module)["loss"] == pytest.approx(last.metrics["loss"], rel=0.03)
    assert last.metrics["loss"] < 0.8 * first


@pytest.mark.forks
def test_ray_benchmark_compares_bits():
    pytest.importorskip("ray")
    (rows,) = bench_ray(0.05).values()
    assert [row["equal"] for row in rows] == ["", "yes", "yes", "yes"]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_gpu_benchmark_without_gpu_is_refused():
    with pytest.raises(ConfigError, match="needs a CUDA device"):
        bench_gpu(0.01)


def test_plain_event_loop_has_delays_of_planner():
    schedule = Schedule(100, 10)
    _, taus = plain_events(schedule, 1000, 20_000)
    planned = plan(schedule, 1000, Delays(Uniform(1.0, 2.0)), updates=20_000).tau
    assert np.mean(taus) == pytest.approx(planned.mean(), rel=0.01)
    assert np.std(taus) == pytest.approx(planned.std(), rel=0.03)


def test_plan_benchmark_compares_with_plain_loop():
    (rows,) = bench_plan(0.001).values()
    assert [row["clients"] for row in rows] == [10_000, 100_000, 1_000_000]
    for row in rows:
        assert row["ratio"] == pytest.approx(row["plain_us_per_update"] / row["us_per_update"])


def test_peak_memory_is_in_mebibytes_and_unknown_on_windows(monkeypatch):
    assert 30 < peak_memory() < 100_000
    monkeypatch.setitem(sys.modules, "resource", None)  # as on Windows
    assert peak_memory() is None
