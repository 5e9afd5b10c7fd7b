"""`fadas bench`: what this machine does, as ratios against a plain baseline in the same run. Machines are noisy.

Every benchmark returns tables by name, each a list of rows. The workloads are real training; none is a test with a
time limit.
"""

from collections.abc import Callable
from typing import Any

from fadas.benchmarks.cluster import bench_ray
from fadas.benchmarks.cpu import bench_cpu
from fadas.benchmarks.gpu import bench_gpu
from fadas.benchmarks.planning import bench_plan

Tables = dict[str, list[dict[str, Any]]]

BENCHES: dict[str, Callable[[float], Tables]] = {
    "plan": bench_plan,
    "cpu": bench_cpu,
    "gpu": bench_gpu,
    "ray": bench_ray,
}
