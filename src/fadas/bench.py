"""Benchmarks: ratios against a plain baseline in the same run, because machines are noisy."""

import resource
import time
from collections.abc import Callable
from functools import partial
from typing import Any

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
    from fadas.executors import EXECUTORS
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
        for name in EXECUTORS:
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


BENCHES: dict[str, Callable[[float], Rows]] = {"plan": bench_plan, "cpu": bench_cpu}
