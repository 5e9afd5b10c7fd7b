"""A Ray cluster: one of this machine's own by default, or an existing one.

A worker is a Ray actor that holds the task. Each model version is put into the object store once, from where every
node fetches it once; it is freed when nothing here holds it any more. A worker that dies is restarted by Ray, which
then repeats its job. The server is on this process's CPU, which need not have a GPU where the workers have theirs.
"""

import os
import signal
import socket
import sys
import threading
import time
import traceback
import warnings
import weakref
from collections.abc import Iterator
from threading import Lock
from typing import Any

import torch

from fadas.core.ledger import Job
from fadas.core.model import Model, Update
from fadas.executors.cuda import Cuda
from fadas.executors.inline import Inline
from fadas.executors.torch_settings import Precision, use_precision
from fadas.executors.worker_pool import Pool
from fadas.tasks.task import Task
from fadas.training.sgd import LocalSGD

_RETRIES = 3  # of a job that takes its worker down
_PATIENCE = 120  # seconds for a worker that cannot be reached: Ray takes a while to see that a node is gone
_PLACES = 16  # jobs that a worker with a GPU has at hand: those that it trains together, and the next ones


def _is_cuda(device: str) -> bool:
    return torch.device(device).type == "cuda"


def _check_reachable(address: str) -> None:
    """An error where nothing listens at host:port: Ray would try for a quarter of an hour."""
    host, _, port = address.rpartition(":")
    if host and port.isdecimal() and "://" not in host:
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()
        except (OSError, ValueError, OverflowError) as error:
            raise RuntimeError(f"no Ray cluster answers at {address}: {error}") from None


class Trainer:
    """What runs in a Ray worker. Loads the task once: every call names it, since a restarted worker has none."""

    def __init__(self, path: list[str], local: LocalSGD, seed: int, device: str, options: dict[str, Any]) -> None:
        sys.path += [entry for entry in path if entry not in sys.path]  # the task may come from the user's own modules
        torch.set_num_threads(1)  # a worker has one CPU; and the number of threads may change the last bits
        make = Cuda if _is_cuda(device) else Inline
        self._make, self._lock = lambda task: make(task, local, seed, device, **options), Lock()
        self._executor: Cuda | Inline | None = None

    def pid(self) -> int:
        return os.getpid()

    def train(self, task: list[Any], job: tuple[int, int, int], model: Any) -> tuple[Any, Any, float]:
        try:
            executor = self._ready(task)
            executor.submit(Job(*job), _model(model, executor.device), 0)
            update = executor.collect(Job(*job))
            return update.delta.cpu().numpy(), update.buffers.cpu().numpy(), float(update.metrics["loss"])
        except (Exception, SystemExit) as error:  # as text: not every exception can travel
            reason = f"{type(error).__name__}: {error}".splitlines()[0]
            raise RuntimeError(f"{reason}\n{traceback.format_exc()}") from None

    def evaluate(self, task: list[Any], model: Any) -> dict[str, float]:
        executor = self._ready(task)
        return executor.evaluate(_model(model, executor.device))

    def _ready(self, task: list[Any]) -> Cuda | Inline:
        import ray

        with self._lock:  # with a GPU, several jobs may be the first
            if self._executor is None:
                self._executor = self._make(ray.get(task[0]))
            return self._executor


def _model(arrays: Any, device: str) -> Model:
    return Model(*(torch.tensor(array, device=device) for array in arrays))


class Ray(Pool[Any]):
    """A Ray cluster: local by default, `address` or RAY_ADDRESS for an existing one.

    With device = "cuda" a worker per GPU. `workers` defaults to the cluster's CPUs or, for CUDA, GPUs. `precision` and
    `compile` are as for the executors that the workers have: inline, or cuda.
    """

    shared_options = Cuda.shared_options

    @classmethod
    def default_precision(cls, device: str) -> Precision:
        """Return the precision of the executor in each worker: cuda or inline."""
        return Cuda.default_precision(device)

    @classmethod
    def server_device(cls, device: str) -> str:
        """Return "cpu": the server is in this process, which need not have a GPU."""
        return "cpu"

    @classmethod
    def hardware(cls, device: str) -> str:
        """Return the kind of workers."""
        return f"Ray, {device}"

    def __init__(
        self,
        task: Task,
        local: LocalSGD,
        seed: int,
        device: str = "cpu",
        address: str | None = None,
        workers: int | None = None,
        precision: Precision | None = None,
        compile: bool = False,
    ) -> None:
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # Ray's coming default: else it warns
        try:
            import ray
        except ImportError:
            raise ValueError("the ray executor needs the extra: pip install -e '.[ray]' in a checkout") from None
        if workers is not None and workers < 1:
            raise ValueError(f"workers must be at least 1, not {workers}")
        super().__init__(task, local, seed)
        if torch.bfloat16 in (self._flat.params.dtype, self._flat.buffers.dtype):
            raise ValueError('models in bfloat16 do not travel through Ray; precision = "bf16" trains others so')
        self._ray, self._cuda, self._count = ray, _is_cuda(device), workers
        told = address or os.environ.get("RAY_ADDRESS")
        self._address = None if told == "local" else told
        # Refused here, not in every worker; and evaluated as inline does. With GPUs, the workers see to both.
        self._autocast = not self._cuda and use_precision(precision or "fp32", device)
        own: dict[str, Any] = {} if precision is None else {"precision": precision}
        self._options = (device, {**own, "compile": compile} if self._cuda else own)
        self._connected = False
        self._task: list[Any] = []
        self.actors: list[Any] = []
        self._stored: dict[int, Any] = {}  # what is in the object store, by the model's identity
        self._under_way: dict[Any, tuple[Any, Job, Model]] = {}
        self._out_of_reach: dict[int, float] = {}  # by job: since when

    def submit(self, job: Job, start: Model, due: int) -> None:
        self._start()
        super().submit(job, start, due)

    def _start(self) -> None:
        """Begin, where that has not been done: a cluster is not asked for anything before there is work."""
        if self.actors:
            return
        ray = self._ray
        if not ray.is_initialized():
            address = self._address or "local"  # else Ray joins whatever cluster was last begun on this machine
            _check_reachable(address)
            ours = signal.getsignal(signal.SIGTERM)  # which Ray would replace by one that exits
            ray.init(address, log_to_driver=False, include_dashboard=False, configure_logging=False)
            if threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGTERM, ours)
            self._connected = True
        kind = "GPU" if self._cuda else "CPU"
        there = int(ray.cluster_resources().get(kind, 0))
        free = self._free_places(kind, there) if self._address else there  # others may be at work there
        count = self._count or (max(1, free) if there else 0)
        if not count or count > there:  # Ray would wait for more without a word
            found = f"the Ray cluster has {there} {'GPUs' if self._cuda else 'CPUs'} for {count or 'the'} workers"
            if not (count and self._address):
                raise RuntimeError(found)
            warnings.warn(f"{found}: waiting for it to grow", stacklevel=2)
        elif free < (self._count or there):
            then = ": waiting" if count > free else ""
            warnings.warn(
                f"of the Ray cluster's {there} {kind}s {free} are free for {count} workers{then}", stacklevel=2
            )
        gpu = {"num_gpus": 1, "max_concurrency": _PLACES + 1}  # one for evaluation
        options: dict[str, Any] = {"num_cpus": 1, **(gpu if self._cuda else {})}
        actor = ray.remote(Trainer).options(max_restarts=-1, max_task_retries=_RETRIES, **options)
        self._task = [ray.put(self.task)]  # in a list, a reference stays one: who has the task does not fetch it again
        self.actors = [actor.remote(sys.path, self.local, self.seed, *self._options) for _ in range(count)]
        self._free = [actor for _ in range(_PLACES if self._cuda else 2) for actor in self.actors]

    def _free_places(self, kind: str, there: int) -> int:
        """What nobody else has. Workers that have just been ended still count for a moment."""
        wanted = self._count or there
        for _ in range(10):
            if int(self._ray.available_resources().get(kind, 0)) >= wanted:
                break
            time.sleep(0.3)
        return int(self._ray.available_resources().get(kind, 0))

    def _send(self, slot: Any, job: Job, start: Model) -> None:
        self._under_way[slot.train.remote(self._task, tuple(job), self._store(start))] = (slot, job, start)

    def _receive(self) -> Iterator[tuple[Any, Update]]:
        ready, _ = self._ray.wait(list(self._under_way), num_returns=1)
        for reference in ready:
            slot, job, start = self._under_way.pop(reference)
            try:
                delta, buffers, loss = self._ray.get(reference)
            except self._ray.exceptions.ActorUnavailableError as error:
                since = self._out_of_reach.setdefault(job.id, time.monotonic())
                if time.monotonic() > since + _PATIENCE:
                    raise RuntimeError(f"the Ray worker of {job} cannot be reached: {error}") from None
                time.sleep(1)
                self._send(slot, job, start)
                continue
            except self._ray.exceptions.RayActorError as error:
                raise RuntimeError(f"{job} took its Ray worker down {_RETRIES + 1} times: {error}") from None
            except self._ray.exceptions.RayTaskError as error:  # whose own first line says where, not why
                reason = (str(error.cause) or type(error.cause).__name__).splitlines()[0]
                raise RuntimeError(f"{job} failed in its Ray worker: {reason}") from error
            self._out_of_reach.pop(job.id, None)
            delta, buffers = torch.tensor(delta), torch.tensor(buffers)
            yield slot, Update(job, delta, buffers, start.params, self.task.sizes[job.client], {"loss": loss})

    def _store(self, model: Model) -> Any:
        """A version is put into the object store once, and stays for as long as anyone here holds it."""
        key = id(model)
        if key not in self._stored:
            self._stored[key] = self._ray.put((model.params.numpy(), model.buffers.numpy()))
            weakref.finalize(model, self._stored.pop, key, None)
        return self._stored[key]

    def evaluate(self, model: Model) -> dict[str, float]:
        """Where there are GPUs, on one of them."""
        if not self._cuda:
            with torch.autocast("cpu", torch.bfloat16, enabled=self._autocast):
                return super().evaluate(model)
        self._start()
        return self._ray.get(self.actors[0].evaluate.remote(self._task, self._store(model)))

    def close(self) -> None:
        super().close()
        self._under_way.clear()
        self._stored.clear()
        self._task.clear()
        for actor in self.actors:
            self._ray.kill(actor)
        self.actors.clear()
        if self._connected:
            self._ray.shutdown()
            self._connected = False
