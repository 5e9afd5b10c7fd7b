"""A Ray cluster: one of this machine's own by default, or an existing one.

A worker is a Ray actor that holds the task. Each model version is put into the object store once, from where every
node fetches it once; it is freed when its last job is done. A worker that dies is restarted by Ray, which then repeats
its job.
"""

import os
import sys
from collections.abc import Iterator
from typing import Any

import torch

from fadas.client import LocalSGD
from fadas.executors.cuda import Cuda
from fadas.executors.inline import Inline
from fadas.executors.pool import Pool
from fadas.ledger import Job
from fadas.model import Model, Update
from fadas.task import Task

_RETRIES = 3  # of a job that takes its worker down


class Trainer:
    """What runs in a Ray worker. Loads the task once."""

    def __init__(self, path: list[str], task: list[Any], local: LocalSGD, seed: int, device: str) -> None:
        import ray

        sys.path += [entry for entry in path if entry not in sys.path]  # the task may come from the user's own modules
        torch.set_num_threads(1)  # a worker has one CPU; and the number of threads may change the last bits
        make = Cuda if torch.device(device).type == "cuda" else Inline
        self._executor, self._device = make(ray.get(task[0]), local, seed, device), device

    def pid(self) -> int:
        return os.getpid()

    def train(self, job: tuple[int, int, int], params: Any, buffers: Any) -> tuple[Any, Any, float]:
        start = Model(*(torch.tensor(array, device=self._device) for array in (params, buffers)))
        self._executor.submit(Job(*job), start, 0)
        update = self._executor.collect(Job(*job))
        return update.delta.cpu().numpy(), update.buffers.cpu().numpy(), float(update.metrics["loss"])


class Ray(Pool[Any]):
    """A Ray cluster: local by default, `address` for an existing one. With device = "cuda" a worker per GPU.

    `workers` defaults to the cluster's CPUs or, for CUDA, GPUs.
    """

    def __init__(
        self,
        task: Task,
        local: LocalSGD,
        seed: int,
        device: str = "cpu",
        address: str | None = None,
        workers: int | None = None,
    ) -> None:
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # Ray's coming default: else it warns
        try:
            import ray
        except ImportError:
            raise ValueError("the ray executor needs the extra: pip install 'fadas[ray]'") from None
        if workers is not None and workers < 1:
            raise ValueError(f"workers must be at least 1, not {workers}")
        super().__init__(task, local, seed)
        self._ray, self._device, self._address, self._count = ray, device, address, workers
        self._connected = False
        self._task: list[Any] = []
        self.actors: list[Any] = []
        self._versions: dict[int, tuple[Model, list[Any], set[int]]] = {}  # what is in the store, and for which jobs
        self._under_way: dict[Any, tuple[Any, Job, Model]] = {}

    def submit(self, job: Job, start: Model, due: int) -> None:
        if not self.actors:
            self._start()
        super().submit(job, start, due)

    def _start(self) -> None:
        ray = self._ray
        if not ray.is_initialized():
            ray.init(self._address, log_to_driver=False, include_dashboard=False, configure_logging=False)
            self._connected = True
        cuda = torch.device(self._device).type == "cuda"
        resources = ray.cluster_resources()
        count = self._count or int(resources.get("GPU" if cuda else "CPU", 0))
        if not count:
            raise RuntimeError(f"the Ray cluster has no {'GPUs' if cuda else 'CPUs'}")
        options: dict[str, Any] = {"num_gpus": 1, "num_cpus": 1, "max_concurrency": 8} if cuda else {"num_cpus": 1}
        actor = ray.remote(Trainer).options(max_restarts=-1, max_task_retries=_RETRIES, **options)
        # In a list, a reference stays one: the worker fetches it when it is ready to. We hold it for those restarted.
        self._task = task = [ray.put(self.task)]
        self.actors = [actor.remote(sys.path, task, self.local, self.seed, self._device) for _ in range(count)]
        places = 16 if cuda else 2
        self._free = [actor for _ in range(places) for actor in self.actors]

    def _send(self, slot: Any, job: Job, start: Model) -> None:
        key = id(start)  # unique while the model is alive, and it is: the entry holds it
        if key not in self._versions:
            arrays = [tensor.cpu().numpy() for tensor in (start.params, start.buffers)]
            self._versions[key] = (start, [self._ray.put(array) for array in arrays], set())
        _, stored, jobs = self._versions[key]
        jobs.add(job.id)
        self._under_way[slot.train.remote(tuple(job), *stored)] = (slot, job, start)

    def _receive(self) -> Iterator[tuple[Any, Update]]:
        ready, _ = self._ray.wait(list(self._under_way), num_returns=1)
        for reference in ready:
            slot, job, start = self._under_way.pop(reference)
            try:
                delta, buffers, loss = self._ray.get(reference)
            except self._ray.exceptions.RayActorError as error:
                raise RuntimeError(f"{job} took its Ray worker down {_RETRIES + 1} times: {error}") from None
            jobs = self._versions[id(start)][2]
            jobs.discard(job.id)
            if not jobs:
                del self._versions[id(start)]
            device = start.params.device
            yield (
                slot,
                Update(
                    job,
                    torch.tensor(delta, device=device),
                    torch.tensor(buffers, device=device),
                    start.params,
                    self.task.sizes[job.client],
                    {"loss": loss},
                ),
            )

    def close(self) -> None:
        super().close()
        self._under_way.clear()
        self._versions.clear()
        self._task.clear()
        for actor in self.actors:
            self._ray.kill(actor)
        self.actors.clear()
        if self._connected:
            self._ray.shutdown()
            self._connected = False
