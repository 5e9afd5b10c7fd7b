"""`fadas bench`: how fast this machine is, beside a plain baseline in the same run.

A benchmark is a function whose argument scales the workload. It returns tables by title, each a list of rows. The
workloads are real training. No benchmark fails because it is slow.

Example:
    >>> tables = BENCHES["plan"](0.001)
"""

from collections.abc import Callable
from typing import Any

from fadas.cli.bench.cpu import bench_cpu
from fadas.cli.bench.gpu import bench_gpu
from fadas.cli.bench.plan import bench_plan
from fadas.cli.bench.ray import bench_ray

Tables = dict[str, list[dict[str, Any]]]  # title -> rows, each with its values by column

BENCHES: dict[str, Callable[[float], Tables]] = {
    "plan": bench_plan,
    "cpu": bench_cpu,
    "gpu": bench_gpu,
    "ray": bench_ray,
}
