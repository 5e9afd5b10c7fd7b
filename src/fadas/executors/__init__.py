"""Executors: where jobs are trained, and how many at a time.

| file                | what it holds                                                         |
|---------------------|-----------------------------------------------------------------------|
| `base.py`           | `Executor`, the base class                                            |
| `auto.py`           | the choice of an executor by task and machine                         |
| `inline.py`         | one job at a time, in this process                                    |
| `batched.py`        | all pending jobs in one call                                          |
| `worker_pool.py`    | `Pool`, the base class of executors with workers                      |
| `processes.py`      | worker processes on this machine                                      |
| `ray.py`            | workers in a Ray cluster                                              |
| `cuda.py`           | one GPU, with captured local steps                                    |
| `torch_settings.py` | torch's threads and precision                                         |

To add an executor, write a subclass of `Executor`, or of `Pool` if it has workers, and enter it in `EXECUTORS` below.
"""

from collections.abc import Callable

from fadas.executors.auto import auto
from fadas.executors.base import Executor, executor_traits
from fadas.executors.batched import Batched
from fadas.executors.cuda import Cuda
from fadas.executors.inline import Inline
from fadas.executors.processes import Processes
from fadas.executors.ray import Ray

__all__ = ["DEFAULT", "EXECUTORS", "Batched", "Cuda", "Executor", "Inline", "Processes", "Ray", "auto", "fallbacks"]


# An entry is called as EXECUTORS[name](task, local, seed, device, **options).
EXECUTORS: dict[str, Callable[..., Executor]] = {
    "auto": auto,
    "inline": Inline,
    "batched": Batched,
    "processes": Processes,
    "cuda": Cuda,
    "ray": Ray,
}
DEFAULT = "auto"


def fallbacks() -> list[str]:
    """Return the names of the executors that can train every task."""
    return [name for name, make in EXECUTORS.items() if executor_traits(make).is_fallback]
