"""`fadas bench plan`: planning time by number of clients. The cost of an event must not grow with the clients."""

import heapq
import random
import time
from typing import Any

from fadas.cli.bench.machine import peak_memory
from fadas.core.ledger import Schedule
from fadas.simulation.delays import Delays, Uniform
from fadas.simulation.planner import plan

SCHEDULE = Schedule(1000, 100)


def bench_plan(scale: float = 1.0) -> dict[str, list[dict[str, Any]]]:
    """Compare the planner with a plain event loop.

    The plain loop makes a thousandth of the updates. With a million clients, all of them would take hours.

    Args:
        scale: Multiplies the number of updates: one million with 1.

    Returns:
        Tables by title.

    Example:
        >>> tables = bench_plan(0.001)
    """
    updates = int(1_000_000 * scale)
    rows: list[dict[str, Any]] = []
    for clients in (10_000, 100_000, 1_000_000):
        begin = time.perf_counter()
        plan(SCHEDULE, clients, Delays(Uniform(1.0, 2.0)), updates=updates)
        seconds = time.perf_counter() - begin
        peak = peak_memory()
        plain, _ = plain_loop(SCHEDULE, clients, max(100, updates // 1000))
        rows.append(
            {
                "clients": clients,
                "updates": updates,
                "seconds": seconds,
                "us_per_update": 1e6 * seconds / updates,
                "plain_us_per_update": 1e6 * plain,
                "ratio": plain * updates / seconds,
            }
            | ({"peak_mib": peak} if peak else {})
        )
    return {"planning against a plain event loop, M_c = 1000, M = 100": rows}


def plain_loop(schedule: Schedule, clients: int, updates: int) -> tuple[float, list[int]]:
    """Simulate a timeline as a researcher would: a heap of jobs, and a list of idle clients.

    Args:
        schedule: M_c and M. The refill rule is always "arrival".
        clients: The number of clients.
        updates: The number of client updates.

    Returns:
        Seconds per update after all slots are full, and the delay of each update.
    """
    rng = random.Random(0)
    first = rng.sample(range(clients), schedule.concurrency)
    idle = sorted({*range(clients)} - {*first})
    running = [(rng.uniform(1.0, 2.0), client, 0) for client in first]
    heapq.heapify(running)
    version, buffered, taus = 0, 0, list[int]()
    started = time.perf_counter()
    for _ in range(updates):
        now, client, base = heapq.heappop(running)
        idle.append(client)
        taus.append(version - base)
        chosen = rng.choice(idle)
        idle.remove(chosen)
        heapq.heappush(running, (now + rng.uniform(1.0, 2.0), chosen, version))
        buffered += 1
        if buffered == schedule.buffer:
            version, buffered = version + 1, 0
    return (time.perf_counter() - started) / updates, taus
