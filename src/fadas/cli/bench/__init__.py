"""`fadas bench`: what this machine does, as ratios against a plain baseline in the same run. Machines are noisy.

Every benchmark returns tables by name, each a list of rows. The workloads are real training; none is a test with a
time limit.
"""

from collections.abc import Callable
from typing import Any

from fadas.cli.bench.cpu import bench_cpu
from fadas.cli.bench.gpu import bench_gpu
from fadas.cli.bench.plan import bench_plan
from fadas.cli.bench.ray import bench_ray

Tables = dict[str, list[dict[str, Any]]]

BENCHES: dict[str, Callable[[float], Tables]] = {
    "plan": bench_plan,
    "cpu": bench_cpu,
    "gpu": bench_gpu,
    "ray": bench_ray,
}
