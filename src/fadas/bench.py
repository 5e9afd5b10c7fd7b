"""Benchmarks: ratios against a plain baseline in the same run, because machines are noisy."""

import resource
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from fadas.build import ConfigError

Rows = list[dict[str, Any]]


def bench_plan(scale: float = 1.0) -> Rows:
    """Planning time, over the number of clients: the cost of an event must not grow with it."""
    from fadas.ledger import Schedule
    from fadas.planner import plan

    updates = int(1_000_000 * scale)
    rows: Rows = []
    for clients in (10_000, 100_000, 1_000_000):
        begin = time.perf_counter()
        plan(Schedule(1000, 100), clients, updates=updates)
        seconds = time.perf_counter() - begin
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        rows.append(
            {
                "clients": clients,
                "updates": updates,
                "seconds": seconds,
                "us_per_update": 1e6 * seconds / updates,
                "peak_mib": peak,
            }
        )
    return rows


def bench_cpu(scale: float = 1.0) -> Rows:
    """Client updates per second on the digits, end to end, with one thread: executors against a plain PyTorch loop."""
    import torch

    from fadas.algorithms import FADAS
    from fadas.client import LocalSGD
    from fadas.planner import plan
    from fadas.simulator import simulate
    from fadas.tasks import TASKS

    task, local, algorithm = TASKS["digits"](seed=1), LocalSGD(lr=0.1, batch_size=10), FADAS()
    updates = max(50, int(1000 * scale))
    timeline = plan(algorithm.schedule(25, 10), 50, updates=updates, seed=1)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        count = timeline.steps * timeline.schedule.buffer
        rates = {"plain PyTorch loop": _rate(lambda: _plain_loop(task, local, timeline), count)}
        for name in ("inline", "batched"):
            run = partial(simulate, timeline, task, algorithm, local, executor=name, eval_every=timeline.steps)
            rates[f"fadas, {name}"] = _rate(lambda run=run: list(run()), count)
    finally:
        torch.set_num_threads(threads)
    base = rates["plain PyTorch loop"]
    return [{"what": name, "updates_per_s": rate, "ratio": rate / base} for name, rate in rates.items()]


def _rate(run: Callable[[], Any], updates: float) -> float:
    """The best of two: the first also warms up."""
    seconds: list[float] = []
    for _ in range(2):
        begin = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - begin)
    return updates / min(seconds)


def _plain_loop(task: Any, local: Any, timeline: Any) -> None:
    """What a researcher writes: a DataLoader and torch.optim.SGD per client, a mean and Adam on the server."""
    import torch
    from torch.nn.utils import parameters_to_vector, vector_to_parameters
    from torch.utils.data import DataLoader, TensorDataset

    module = task.module(timeline.seed)
    x = torch.nn.Parameter(parameters_to_vector(module.parameters()).detach().clone())
    server = torch.optim.Adam([x], lr=1e-3, betas=(0.9, 0.99), amsgrad=True)
    loaders = [DataLoader(TensorDataset(*data), local.batch_size, shuffle=True) for data in task.clients]
    for jobs in timeline.arrivals:
        mean = torch.zeros_like(x)
        for id in jobs:
            vector_to_parameters(x.detach().clone(), module.parameters())
            optimizer = torch.optim.SGD(module.parameters(), local.lr, weight_decay=local.weight_decay)
            for _ in range(local.epochs):
                for inputs, targets in loaders[timeline.client[id]]:
                    optimizer.zero_grad()
                    torch.nn.functional.cross_entropy(module(inputs), targets).backward()
                    optimizer.step()
            mean += (parameters_to_vector(module.parameters()).detach() - x.detach()) / len(jobs)
        x.grad = -mean
        server.step()


def bench_gpu(scale: float = 1.0) -> Rows:
    """CIFAR-10, ResNet-18, the paper's large worst-case setting on one GPU, end to end, after a plain loop.

    Real images where they are found, random ones of the same shape elsewhere. `scale` 1 is the paper's 500 rounds.
    """
    import torch

    from fadas.algorithms import FADAS
    from fadas.client import LocalSGD
    from fadas.planner import plan
    from fadas.simulator import simulate

    if not torch.cuda.is_available():
        raise ConfigError("bench gpu needs a CUDA device")
    task, source = _images()
    local, algorithm = LocalSGD(lr=0.1, epochs=2, batch_size=50), FADAS(1e-4)
    rows: Rows = []

    def measure(what: str, steps: int, executor: Callable[[], Any], eval_every: int) -> None:
        timeline = plan(algorithm.schedule(25, 5), 50, steps=steps, seed=1)
        begin = time.perf_counter()
        made = executor()
        torch.cuda.synchronize()
        ready = time.perf_counter()
        torch.cuda.reset_peak_memory_stats()
        simulation = simulate(timeline, task, algorithm, local, executor=made, device="cuda", eval_every=eval_every)
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
                "set_up_s": ready - begin,
                "peak_gib": torch.cuda.max_memory_allocated() / 2**30,
                "accuracy": last.metrics["accuracy"] if last.metrics else None,
            }
        )

    from fadas.executors import Cuda, Inline

    few = max(1, int(20 * scale))
    measure(f"inline, eager, fp32 ({source})", max(1, few // 5), lambda: Inline(task, local, 1, "cuda"), 10**9)
    for streams, compile in ((1, False), (4, False), (8, False), (12, False), (1, True), (6, True), (10, True)):
        name = f"cuda, {streams} streams{', compiled' if compile else ''}, bf16"
        make = partial(Cuda, task, local, 1, "cuda", "bf16", streams, compile)
        measure(name, few, make, 10**9)
    measure("cuda, 8 streams, bf16, evaluated every round", int(500 * scale), lambda: Cuda(task, local, 1), 1)
    return rows


def _images() -> tuple[Any, str]:
    import torch

    from fadas.task import Subsets
    from fadas.tasks import TASKS
    from fadas.tasks.cifar import CIFAR10

    if CIFAR10.complete():
        return TASKS["cifar10"](seed=1), "CIFAR-10"
    import numpy as np

    from fadas.task import Task
    from fadas.tasks.cifar import crop_and_flip
    from fadas.tasks.models import resnet18
    from fadas.tasks.partition import deal

    generator = torch.Generator().manual_seed(0)
    train, test = (
        (torch.randint(0, 256, (n, 3, 32, 32), dtype=torch.uint8, generator=generator), torch.arange(n) % 10)
        for n in (50_000, 10_000)
    )
    parts = deal(train[1].numpy(), 50, np.random.default_rng(1), "dirichlet", 0.1, 2)

    def transform(inputs: list[Any], source: Any) -> list[Any]:
        images = crop_and_flip(inputs[0], source) if source else inputs[0]
        return [images.float().sub_(128).div_(64)]

    return Task(partial(resnet18, 10), Subsets(train, parts), test=test, transform=transform), "random images"


BENCHES: dict[str, Callable[[float], Rows]] = {"plan": bench_plan, "cpu": bench_cpu, "gpu": bench_gpu}
