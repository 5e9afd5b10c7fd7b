"""Planning time over the number of clients: the cost of an event must not grow with it."""

import resource
import time
from typing import Any

from fadas.ledger import Schedule
from fadas.planner import plan


def bench_plan(scale: float = 1.0) -> dict[str, list[dict[str, Any]]]:
    updates = int(1_000_000 * scale)
    rows: list[dict[str, Any]] = []
    for clients in (10_000, 100_000, 1_000_000):
        begin = time.perf_counter()
        plan(Schedule(1000, 100), clients, updates=updates)
        seconds = time.perf_counter() - begin
        rows.append(
            {
                "clients": clients,
                "updates": updates,
                "seconds": seconds,
                "us_per_update": 1e6 * seconds / updates,
                "ratio": seconds / rows[0]["seconds"] if rows else 1.0,
                "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
            }
        )
    return {"planning, M_c = 1000, M = 100": rows}
