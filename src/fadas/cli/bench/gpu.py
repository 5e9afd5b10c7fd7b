"""`fadas bench gpu`: the paper's CIFAR-10 setting, and an encoder of the size of BERT-base, on one GPU.

Speed is relative to eager training. For the encoder, it is also relative to the GPU's rate of matrix products.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from fadas.algorithms.presets import FADAS
from fadas.cli.bench.workloads import bert, cifar
from fadas.core.ledger import Job
from fadas.errors import ConfigError
from fadas.executors import Cuda, Executor, Inline
from fadas.simulation.planner import plan
from fadas.simulation.simulator import simulate
from fadas.training.sgd import LocalSGD

Row = dict[str, Any]


def bench_gpu(scale: float = 1.0) -> dict[str, list[Row]]:
    """Compare executors with eager training.

    Args:
        scale: Multiplies the workload. With 1, the last run has the paper's 500 rounds, with an evaluation after each.

    Returns:
        Tables by title.

    Raises:
        ConfigError: There is no CUDA device.
    """
    if not torch.cuda.is_available():
        raise ConfigError("bench gpu needs a CUDA device; try bench cpu")
    images, source = _images(scale)
    language, rate = _language(scale)
    return {
        f"ResNet-18, {source}, batch 50, 2 epochs, 50 clients, M_c = 25, M = 5": images,
        f"BERT-base size, LoRA, batch 32 x 128 tokens; matrix rate of this GPU in bf16: {rate:.0f} TFLOP/s": language,
    }


def _images(scale: float) -> tuple[list[Row], str]:
    """Return the rows for the paper's CIFAR-10 setting, and the name of the data."""
    task, source = cifar()
    local, algorithm = LocalSGD(lr=0.1, epochs=2, batch_size=50), FADAS(1e-4)
    rows: list[Row] = []

    def measure(what: str, steps: int, make: Callable[[], Executor], eval_every: int) -> None:
        timeline = plan(algorithm.schedule(25, 5), 50, steps=steps, seed=1)
        begin = time.perf_counter()
        executor = make()
        torch.cuda.synchronize()
        ready = time.perf_counter()
        torch.cuda.reset_peak_memory_stats()
        simulation = simulate(timeline, task, algorithm, local, executor=executor, eval_every=eval_every)
        last = list(simulation)[-1]
        torch.cuda.synchronize()
        seconds = time.perf_counter() - ready
        images = 2 * sum(task.sizes[timeline.client[id]] for id in timeline.arrivals.ravel())
        rows.append(
            {
                "what": what,
                "rounds": steps,
                "seconds": seconds,
                "images_per_s": images / seconds,
                "ratio": images / seconds / rows[0]["images_per_s"] if rows else 1.0,
                "set_up_s": ready - begin,
                "peak_gib": torch.cuda.max_memory_allocated() / 2**30,
                "accuracy": last.metrics["accuracy"] if last.metrics else 0.0,
            }
        )

    rounds = max(1, int(20 * scale))
    never = 10**9  # no evaluation before the last round
    measure("inline, eager, fp32", max(1, rounds // 5), partial(Inline, task, local, 1, "cuda"), never)
    measure("inline, eager, bf16", max(1, rounds // 5), partial(Inline, task, local, 1, "cuda", "bf16"), never)
    for streams, compile in ((1, False), (8, False), (8, True)):
        name = f"cuda, {streams} streams{', compiled' if compile else ''}, bf16"
        measure(name, rounds, partial(Cuda, task, local, 1, "cuda", "bf16", streams, compile), never)
    compiled = partial(Cuda, task, local, 1, "cuda", "bf16", 8, True)
    measure("cuda, 8 streams, compiled, bf16, evaluated", int(500 * scale), compiled, 1)
    return rows, source


def _language(scale: float) -> tuple[list[Row], float]:
    """Return the rows for the encoder, and the GPU's rate of matrix products in TFLOP/s.

    A row has the tokens per second, and the floating-point operations that they need as a share of that rate.
    """
    rate = _matrix_rate()
    local = LocalSGD(lr=0.01, epochs=1, batch_size=32)
    rows: list[Row] = []
    for what, dropout, make in (
        ("inline, eager, fp32", 0.1, partial(Inline, device="cuda")),
        ("inline, eager, bf16", 0.1, partial(Inline, device="cuda", precision="bf16")),
        ("cuda, captured, dropout", 0.1, Cuda),
        ("cuda, captured, dropout, compiled", 0.1, partial(Cuda, compile=True)),
        ("cuda, captured, no dropout, 1 stream", 0.0, partial(Cuda, streams=1)),
        ("cuda, captured, no dropout, 2 streams", 0.0, partial(Cuda, streams=2)),
    ):
        task = bert(dropout)
        flops = _flops(task) / 32  # per example
        executor = make(task, local, 1)
        start = executor.evaluation.read()
        jobs = [Job(id, id % 10, 0) for id in range(max(2, int(20 * scale)))]
        executor.submit(jobs[0], start, 0)
        executor.collect(jobs[0])
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for job in jobs[1:]:
            executor.submit(job, start, job.id)
        for job in jobs[1:]:
            executor.collect(job)
        torch.cuda.synchronize()
        seconds = time.perf_counter() - begin
        executor.close()
        examples = sum(task.sizes[job.client] for job in jobs[1:])
        tera = examples * flops / seconds / 1e12
        rows.append(
            {
                "what": what,
                "tokens_per_s": examples * 128 / seconds,
                "ratio": examples * 128 / seconds / rows[0]["tokens_per_s"] if rows else 1.0,
                "tflop_per_s": tera,
                "percent_of_matrix_rate": 100 * tera / rate,
            }
        )
    return rows, rate


def _matrix_rate(size: int = 8192) -> float:
    """Return the TFLOP/s of a large bf16 matrix product on random numbers."""
    a, b = (torch.randn(size, size, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    for _ in range(5):
        torch.matmul(a, b)
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(20):
        torch.matmul(a, b)
    end.record()
    torch.cuda.synchronize()
    return 20 * 2 * size**3 / (begin.elapsed_time(end) / 1000) / 1e12


def _flops(task: Any) -> float:
    """Return the floating-point operations of one local step on 32 examples, forward and backward, counted by torch."""
    from torch.utils.flop_counter import FlopCounterMode

    module = replace(task).module(1).to("cuda").train()
    ids, types, labels = (column[:32].to("cuda") for column in task.clients[0])
    with FlopCounterMode(display=False) as counter:
        task.loss(module(ids, types), labels).mean().backward()
    return counter.get_total_flops()
