"""`fadas bench cpu`: a small network, a small CNN, shares of the machine's limit, the engine's time, and memory."""

import gc
import threading
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from fadas.algorithms.presets import FADAS
from fadas.cli.bench.workloads import (
    BUFFER,
    CLIENTS,
    CONCURRENCY,
    LOCAL,
    OTHERS,
    STEPS,
    hand_batched,
    mlp,
    plain_loop,
    small_cnn,
)
from fadas.core.ledger import Job
from fadas.core.model import Model, Update
from fadas.errors import FadasWarning
from fadas.executors import Batched, Executor, Inline, Processes, auto
from fadas.simulation.planner import plan
from fadas.simulation.simulator import Simulation, simulate
from fadas.tasks.task import Task
from fadas.training.sgd import LocalSGD

Row = dict[str, Any]
Candidate = tuple[int, Callable[..., Executor]]  # torch's threads, and what makes the executor
Run = Callable[[float], int]  # (when to stop, in seconds) -> updates
_ROUNDS = 3
_RUN = 500  # server steps, as in the paper
_SECONDS = 45.0  # for a table: on an idle machine, three rounds take less


def bench_cpu(scale: float = 1.0, seconds: float = _SECONDS) -> dict[str, list[Row]]:
    """Compare executors with a plain PyTorch loop on one thread, end to end. Measure overhead and memory.

    Args:
        scale: Multiplies the number of server steps.
        seconds: The time for each comparison with scale 1. On a busy machine, fewer and shorter runs fit into it.

    Returns:
        Tables by title.
    """
    cores = torch.get_num_threads()
    memory = [_memory(clients, max(3, int(30 * scale))) for clients in (100, 1000, 10_000)]
    limit = seconds * max(1.0, scale)
    size = f"{CLIENTS} clients, M_c = {CONCURRENCY}, M = {BUFFER}, {STEPS} local steps"
    small: dict[str, Candidate] = {"batched, 1 thread": (1, Batched), "auto": (cores, auto)}
    tables = {
        f"MLP 32-64-10, {size} of 20": _compare(
            mlp(), LOCAL, max(3, int(_RUN * scale)), {"inline, 1 thread": (1, Inline), **small}, limit
        )
    }
    for name, local in OTHERS.items():
        tables[f"MLP 32-64-10 with {name}, {size} of 20"] = _compare(
            mlp(), local, max(3, int(_RUN * scale)), small, limit
        )
    tables["MLP 32-64-10: share of hand-batched products, 1 thread"] = [
        _share(concurrency, max(3, int(200 * scale)), limit / 4) for concurrency in (10, CONCURRENCY)
    ]
    several: dict[str, Candidate] = {
        f"1 process x {cores} threads": (cores, partial(Inline, threads=cores)),
        f"{cores} processes x 1 thread": (1, partial(Processes, workers=cores)),
        "auto": (cores, auto),
    }
    for rows in (20, 50):
        tables[f"small CNN on 32x32, {size} of {rows}"] = _compare(
            small_cnn(), replace(LOCAL, batch_size=rows), max(1, int(800 / rows * scale)), several, limit
        )
    overhead = [
        _overhead("MLP 32-64-10", mlp(), max(3, int(50 * scale))),
        _overhead("small CNN", small_cnn(), max(1, int(10 * scale))),
    ]
    return {
        **tables,
        "the engine's own time (one thread, in-process)": overhead,
        f"memory: MLP, M_c = {CONCURRENCY}, M = {BUFFER}": memory,
    }


def _compare(task: Task, local: LocalSGD, steps: int, candidates: Mapping[str, Candidate], seconds: float) -> list[Row]:
    """Return the updates per second of the plain loop and each candidate, and their ratio to the plain loop.

    Args:
        task: The task to train on.
        local: What the clients do.
        steps: The number of server steps.
        candidates: The number of torch threads and the executor, by name.
        seconds: The time for all of it.
    """
    algorithm = FADAS()
    timeline = plan(algorithm.schedule(CONCURRENCY, BUFFER), CLIENTS, steps=steps, seed=1)

    def run(threads: int, make: Callable[..., Executor], limit: float) -> int:
        torch.set_num_threads(threads)
        executor = make(task, local, 1)
        simulation = simulate(timeline, task, algorithm, local, executor=executor, eval_every=steps)
        timer = threading.Timer(limit, simulation.stop)
        timer.start()
        try:
            for _ in simulation:
                pass
        finally:
            timer.cancel()
        return simulation.progress.updates

    def plain(limit: float) -> int:
        torch.set_num_threads(1)
        return plain_loop(task, local, timeline, limit)[1]

    runs: dict[str, Run] = {"plain PyTorch loop, 1 thread": plain}
    runs |= {name: partial(run, *candidate) for name, candidate in candidates.items()}
    threads = torch.get_num_threads()
    try:
        plain(0.0)  # one step: torch loads some of its parts when they are first used
        rates = _best_rates(runs, steps * BUFFER, seconds)
    finally:
        torch.set_num_threads(threads)
    base = rates["plain PyTorch loop, 1 thread"]
    return [{"what": name, "updates_per_s": rate, "ratio": rate / base} for name, rate in rates.items()]


def _share(concurrency: int, steps: int, seconds: float) -> Row:
    """Return the speed of `batched` as a share of the same products written by hand, for M_c jobs at once."""
    task, algorithm, rates = mlp(), FADAS(), [0.0, 0.0]
    timeline = plan(algorithm.schedule(concurrency, BUFFER), CLIENTS, steps=steps, seed=1)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for _ in range(_ROUNDS):
            simulation = simulate(timeline, task, algorithm, LOCAL, executor=Batched(task, LOCAL, 1), eval_every=steps)
            begin = time.perf_counter()
            for _ in simulation:
                if time.perf_counter() > begin + seconds / 2 / _ROUNDS:
                    simulation.stop()
            rates[0] = max(rates[0], simulation.progress.updates / (time.perf_counter() - begin))
            rates[1] = max(rates[1], hand_batched(task, concurrency, seconds / 2 / _ROUNDS))
    finally:
        torch.set_num_threads(threads)
    share = 100 * rates[0] / rates[1]
    return {"M_c": concurrency, "updates_per_s": rates[0], "by_hand_per_s": rates[1], "share_percent": share}


def _best_rates(runs: dict[str, Run], updates: int, seconds: float) -> dict[str, float]:
    """Return the updates per second of each run, in the best of three rounds.

    The runs take turns, so that noise of the machine affects all of them. Beside other programs, threads that wait for
    each other make a run a hundred times as long. Each run therefore ends with its share of the time, and no round
    begins for which there is no time.
    """
    rates = dict.fromkeys(runs, 0.0)
    begin, longest, complete = time.perf_counter(), 0.0, True
    for _ in range(_ROUNDS):
        round_begin = time.perf_counter()
        if round_begin + longest > begin + seconds:
            complete = False
            break
        for name, run in runs.items():
            run_begin = time.perf_counter()
            done = run(seconds / len(runs))
            rates[name] = max(rates[name], done / (time.perf_counter() - run_begin))
            complete = complete and done == updates
        longest = max(longest, time.perf_counter() - round_begin)
    if not complete:
        text = f"a comparison was cut short after {time.perf_counter() - begin:.0f} s, so its figures are less certain"
        warnings.warn(text, FadasWarning, stacklevel=2)
    return rates


class _Clocked(Inline):
    """Counts the seconds spent in training and evaluation. The rest of a run is the engine's."""

    inside = 0.0

    def collect(self, job: Job) -> Update:
        begin = time.perf_counter()
        update = super().collect(job)
        self.inside += time.perf_counter() - begin
        return update

    def evaluate(self, model: Model) -> dict[str, float]:
        begin = time.perf_counter()
        metrics = super().evaluate(model)
        self.inside += time.perf_counter() - begin
        return metrics


def _overhead(name: str, task: Task, steps: int) -> Row:
    """Return the time of plan, ledger, server steps and records, also as a share of the time in training."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        begin = time.perf_counter()
        algorithm = FADAS()
        timeline = plan(algorithm.schedule(CONCURRENCY, BUFFER), CLIENTS, steps=steps, seed=1)
        executor = _Clocked(task, LOCAL, 1)
        list(simulate(timeline, task, algorithm, LOCAL, executor=executor, eval_every=steps))
        total = time.perf_counter() - begin
    finally:
        torch.set_num_threads(threads)
    return {
        "workload": name,
        "training_s": executor.inside,
        "engine_s": total - executor.inside,
        "engine_percent": 100 * (total - executor.inside) / executor.inside,
    }


def _memory(clients: int, steps: int) -> Row:
    """Return the largest size of all tensors after a step, without the data.

    It depends on the number of running jobs, not on the number of clients.
    """
    task, algorithm = mlp(clients), FADAS()
    timeline = plan(algorithm.schedule(CONCURRENCY, BUFFER), clients, steps=steps, seed=1)
    gc.collect()
    gc.freeze()  # `alive` need not look at what exists already: that would take most of the time
    try:
        before = alive()
        simulation = simulate(timeline, task, algorithm, LOCAL, executor=Inline(task, LOCAL, 1), eval_every=steps)
        model = simulation.server.model.params.nbytes
        peak = versions = 0
        for _ in simulation:
            peak = max(peak, alive() - before)
            versions = max(versions, held(simulation))
    finally:
        gc.unfreeze()
    return {
        "clients": clients,
        "model_bytes": model,
        "versions_held": versions,
        "peak_bytes": peak,
        "a_copy_per_client": clients * model,
    }


def held(simulation: Simulation) -> int:
    """Return how many versions of the model the running jobs started from."""
    return len({id(model) for model in simulation.server.base.values()})


def alive() -> int:
    """Return the size in bytes of all tensors that Python's garbage collector sees. Shared memory is counted once."""
    gc.collect()
    tensors = [item for item in gc.get_objects() if issubclass(type(item), torch.Tensor)]
    storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}
    return sum(storages.values())
