"""`fadas bench ray`: a local Ray cluster with one worker per core, on the small CNN."""

import time
from typing import Any

import torch

from fadas.algorithms.presets import FADAS
from fadas.cli.bench.workloads import BUFFER, CLIENTS, CONCURRENCY, LOCAL, plain_loop, small_cnn
from fadas.executors import Inline, Processes, Ray
from fadas.simulation.planner import plan
from fadas.simulation.simulator import simulate


def bench_ray(scale: float = 1.0) -> dict[str, list[dict[str, Any]]]:
    """Compare Ray workers with worker processes, in-process training and a plain loop.

    All executors must train the same model, bit for bit.

    Args:
        scale: Multiplies the number of server steps.

    Returns:
        Tables by title.
    """
    task, algorithm, steps, cores = small_cnn(), FADAS(), max(2, int(40 * scale)), torch.get_num_threads()
    timeline = plan(algorithm.schedule(CONCURRENCY, BUFFER), CLIENTS, steps=steps, seed=1)
    rows: list[dict[str, Any]] = []
    reference = None
    torch.set_num_threads(1)
    try:
        base = float("inf")
        for _ in range(2):  # the first run also warms up torch for all of them
            begin = time.perf_counter()
            plain_loop(task, LOCAL, timeline)
            base = min(base, time.perf_counter() - begin)
        updates = steps * BUFFER
        rows.append({"what": "plain PyTorch loop", "updates_per_s": updates / base, "ratio": 1.0, "equal": ""})
        for name, executor in (
            ("inline", Inline(task, LOCAL, 1)),
            (f"{cores} processes", Processes(task, LOCAL, 1, workers=cores)),
            (f"ray, {cores} workers", Ray(task, LOCAL, 1, workers=cores)),
        ):
            simulation = iter(run := simulate(timeline, task, algorithm, LOCAL, executor=executor, eval_every=steps))
            next(simulation)  # not timed: workers start with the first job
            begin = time.perf_counter()
            for _ in range(steps - 1):
                next(simulation)
            seconds = (time.perf_counter() - begin) * steps / (steps - 1)
            next(simulation, None)  # not timed: workers end
            model = run.server.model.params
            reference = model if reference is None else reference
            rows.append(
                {
                    "what": name,
                    "updates_per_s": updates / seconds,
                    "ratio": base / seconds,
                    "equal": "yes" if torch.equal(model, reference) else "NO",
                }
            )
    finally:
        torch.set_num_threads(cores)
    return {"small CNN on 32x32; equal: the same bits as inline": rows}
