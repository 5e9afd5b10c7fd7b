"""The ray executor: a local Ray cluster by default, or an existing one.

- A worker is a Ray actor that holds the task.
- Each model version is put into the object store once, and every node fetches it once. It is freed when this process
  no longer needs it.
- Ray restarts a worker that dies, and repeats its job.
- The server runs on the CPU of this process. The workers may have GPUs even if this machine has none.
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
from collections.abc import Iterator, Mapping, Sequence
from threading import Lock
from typing import Any, Literal

import torch

from fadas.core.ledger import Job
from fadas.core.model import Model, Update
from fadas.executors.base import choose_format
from fadas.executors.cuda import Cuda
from fadas.executors.inline import Inline
from fadas.executors.torch_settings import Precision, use_precision
from fadas.executors.worker_pool import Pool, pack_vectors, unpack_vectors
from fadas.tasks.task import Task
from fadas.training.flat_module import MemoryFormat
from fadas.training.job_state import SERVER
from fadas.training.sgd import LocalSGD
from fadas.validate import MOST_WORKERS, at_least, at_most

_RETRIES = 3  # how often a job that crashes its worker is repeated
_PATIENCE = 120  # seconds to wait for an unreachable worker: Ray takes a while to notice that a node is gone
_PLACES = 16  # jobs that a worker with a GPU has at hand: those that it trains together, and the next ones


def _is_cuda(device: str) -> bool:
    return torch.device(device).type == "cuda"


def _check_reachable(address: str) -> None:
    """Raise an error if nothing listens at host:port. Ray itself would keep trying for 15 minutes."""
    host, _, port = address.rpartition(":")
    if host and port.isdecimal() and "://" not in host:
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()
        except (OSError, ValueError, OverflowError) as error:
            raise RuntimeError(f"no Ray cluster answers at {address}: {error}") from None


class Trainer:
    """The Ray actor in each worker. It loads the task once.

    Every call passes a reference to the task, because a restarted worker has lost it.

    Args:
        path: The module search path of the driver.
        local: What a client does with a job.
        seed: The run's seed.
        device: "cpu" or "cuda".
        options: Options of the executor in the worker: `Cuda` on a GPU, else `Inline`.
    """

    def __init__(self, path: list[str], local: LocalSGD, seed: int, device: str, options: dict[str, Any]) -> None:
        sys.path += [entry for entry in path if entry not in sys.path]  # the task may come from the user's own modules
        torch.set_num_threads(1)  # a worker has one CPU, and more threads may change the last bits
        make = Cuda if _is_cuda(device) else Inline
        self._make, self._lock = lambda task: make(task, local, seed, device, **options), Lock()
        self._executor: Cuda | Inline | None = None

    def pid(self) -> int:
        """Return the worker's process id."""
        return os.getpid()

    def train(
        self, task: list[Any], job: tuple[int, int, int], model: Any, kept: Any
    ) -> tuple[Any, Any, float, dict[str, Any]]:
        """Train a job. Return the delta, the buffers, the mean loss, and the vectors beside the delta.

        Raises:
            RuntimeError: The job failed. The message holds the reason and the traceback.
        """
        try:
            executor = self._ready(task)
            executor.submit(Job(*job), _make_model(model, executor.device, kept), 0)
            update = executor.collect(Job(*job))
            vectors = {name: vector.cpu().numpy() for name, vector in pack_vectors(update).items()}
            return update.delta.cpu().numpy(), update.buffers.cpu().numpy(), float(update.metrics["loss"]), vectors
        except (Exception, SystemExit) as error:  # as text, because not every exception can be pickled
            reason = f"{type(error).__name__}: {error}".splitlines()[0]
            raise RuntimeError(f"{reason}\n{traceback.format_exc()}") from None

    def evaluate(self, task: list[Any], model: Any) -> dict[str, float]:
        """Return the task's metrics of a model."""
        executor = self._ready(task)
        return executor.evaluate(_make_model(model, executor.device))

    def evaluate_clients(self, task: list[Any], model: Any, clients: Sequence[int] | None) -> dict[str, list[float]]:
        """Return the metrics of a model on each client's own test data."""
        executor = self._ready(task)
        return executor.evaluate_clients(_make_model(model, executor.device), clients)

    def _ready(self, task: list[Any]) -> Cuda | Inline:
        """Return the worker's executor. The first call loads the task and makes the executor."""
        import ray

        with self._lock:  # a worker with a GPU runs several calls at once
            if self._executor is None:
                self._executor = self._make(ray.get(task[0]))
            return self._executor


def _make_model(arrays: Any, device: str, kept: Mapping[str, Any] = {}) -> Model:
    params, buffers, sent = arrays
    vectors = {name: torch.tensor(array, device=device) for name, array in {**sent, **kept}.items()}
    return Model(torch.tensor(params, device=device), torch.tensor(buffers, device=device), vectors)


class Ray(Pool[Any]):
    """Workers in a Ray cluster, which may be local or have several nodes.

    Each worker takes one CPU, and with a CUDA device also one GPU.

    Args:
        task: Model, data and loss. It must be picklable.
        local: What a client does with a job.
        seed: The run's seed.
        device: Where the workers train: "cpu" or "cuda".
        address: The address of an existing cluster. None: the environment variable RAY_ADDRESS, or else a new local
            cluster. "local": a new local cluster.
        workers: The number of workers. None: one for each free CPU, or with a CUDA device for each free GPU.
        precision: "fp32", "tf32" (CUDA only) or "bf16". None: the default of the executor in the workers.
        compile: Compile the network, on a GPU.
        memory_format: How images lie in memory: "contiguous" or "channels-last". "auto": channels-last on a CPU for
            networks with ordinary 2d convolutions, which train faster so. The results differ by rounding.

    Raises:
        ValueError: Ray is not installed, or an option is invalid.
        RuntimeError: When the first job is submitted, if no cluster answers or it lacks CPUs or GPUs.

    Example:
        >>> executor = Ray(task, LocalSGD(), seed=0, workers=2, address="192.0.2.1:6390")
        >>> executor.submit(job, start, due=0)
        >>> update = executor.collect(job)
        >>> executor.close()
    """

    shared_options = Cuda.shared_options
    extra = "ray"

    @classmethod
    def default_precision(cls, device: str) -> Precision:
        """Return the precision of the executor in each worker: cuda or inline."""
        return Cuda.default_precision(device)

    @classmethod
    def server_device(cls, device: str) -> str:
        """Return "cpu": the server is in this process, which may have no GPU."""
        return "cpu"

    @classmethod
    def hardware(cls, device: str) -> str:
        """Return what the workers train on, such as "Ray, cpu"."""
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
        memory_format: Literal["auto", MemoryFormat] = "auto",
    ) -> None:
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # Ray's future default; without it, Ray warns
        try:
            import ray
        except ImportError:
            raise ValueError("the ray executor needs Ray: run pip install '.[ray]' in a checkout") from None
        at_least(1, workers=workers)
        at_most(MOST_WORKERS, workers=workers)
        super().__init__(task, local, seed)
        if torch.bfloat16 in (self._flat.params.dtype, self._flat.buffers.dtype):
            raise ValueError('models in bfloat16 cannot be sent to Ray workers; use float32 and precision = "bf16"')
        self._ray, self._cuda, self._count = ray, _is_cuda(device), workers
        given = address or os.environ.get("RAY_ADDRESS")
        self._address = None if given == "local" else given
        # With CPU workers, this process checks the precision before any worker starts, and evaluates in it as inline
        # does. With GPU workers, the workers do both.
        self._autocast = not self._cuda and use_precision(precision or "fp32", device)
        own: dict[str, Any] = {} if precision is None else {"precision": precision}
        self._options = (device, {**own, "compile": compile} if self._cuda else own)
        self.memory_format = "contiguous" if self._cuda else choose_format(memory_format, self._flat)
        self._connected = False
        self._task: list[Any] = []
        self.actors: list[Any] = []
        self._stored: dict[tuple[int, bool], Any] = {}  # models in the object store, by the id of their parameters
        self._under_way: dict[Any, tuple[Any, Job, Model]] = {}
        self._out_of_reach: dict[int, float] = {}  # by job id: since when its worker has been unreachable

    def submit(self, job: Job, start: Model, due: int) -> None:
        """Queue a job. The first job starts the workers."""
        self._start()
        super().submit(job, start, due)

    def _start(self) -> None:
        """Connect to the cluster and start the workers, unless this was done before. Called when there is work."""
        if self.actors:
            return
        ray = self._ray
        if not ray.is_initialized():
            # Without an address, Ray would join the cluster that was started last on this machine.
            address = self._address or "local"
            _check_reachable(address)
            handler = signal.getsignal(signal.SIGTERM)  # Ray replaces it by a handler that exits
            ray.init(address, log_to_driver=False, include_dashboard=False, configure_logging=False)
            if threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGTERM, handler)
            self._connected = True
        kind = "GPU" if self._cuda else "CPU"
        total = int(ray.cluster_resources().get(kind, 0))
        free = self._count_free(kind, total) if self._address else total  # others may be using an existing cluster
        count = self._count or (max(1, free) if total else 0)
        if not count or count > total:  # Ray would wait for more without a message
            found = f"the Ray cluster has {total} {'GPUs' if self._cuda else 'CPUs'} for {count or 'the'} workers"
            if not (count and self._address):
                raise RuntimeError(found)
            warnings.warn(f"{found}: waiting for it to grow", stacklevel=2)
        elif free < (self._count or total):
            then = ": waiting" if count > free else ""
            warnings.warn(
                f"only {free} of the Ray cluster's {total} {kind}s are free for {count} workers{then}", stacklevel=2
            )
        gpu = {"num_gpus": 1, "max_concurrency": _PLACES + 1}  # one for evaluation
        options: dict[str, Any] = {"num_cpus": 1, **(gpu if self._cuda else {})}
        actor = ray.remote(Trainer).options(max_restarts=-1, max_task_retries=_RETRIES, **options)
        self._task = [ray.put(self.task)]  # Ray would resolve a bare reference at every call
        place, given = self._options
        own = given if self._cuda else {**given, "memory_format": self.memory_format}
        self.actors = [actor.remote(sys.path, self.local, self.seed, place, own) for _ in range(count)]
        self._free = [actor for _ in range(_PLACES if self._cuda else 2) for actor in self.actors]

    def _count_free(self, kind: str, total: int) -> int:
        """Return how many CPUs or GPUs are free. Wait a moment for those of workers that have just ended."""
        wanted = self._count or total
        for _ in range(10):
            if int(self._ray.available_resources().get(kind, 0)) >= wanted:
                break
            time.sleep(0.3)
        return int(self._ray.available_resources().get(kind, 0))

    def _send(self, slot: Any, job: Job, start: Model) -> None:
        own = {name: vector.numpy() for name, vector in start.vectors.items() if not name.startswith(SERVER)}
        self._under_way[slot.train.remote(self._task, tuple(job), self._store(start), own)] = (slot, job, start)

    def _receive(self) -> Iterator[tuple[Any, Update]]:
        ready, _ = self._ray.wait(list(self._under_way), num_returns=1)
        for reference in ready:
            slot, job, start = self._under_way.pop(reference)
            try:
                delta, buffers, loss, packed = self._ray.get(reference)
            except self._ray.exceptions.ActorUnavailableError as error:
                since = self._out_of_reach.setdefault(job.id, time.monotonic())
                if time.monotonic() > since + _PATIENCE:
                    raise RuntimeError(f"the Ray worker of {job} was unreachable for {_PATIENCE} s: {error}") from None
                time.sleep(1)
                self._send(slot, job, start)
                continue
            except self._ray.exceptions.RayActorError as error:
                raise RuntimeError(f"{job} crashed its Ray worker {_RETRIES + 1} times: {error}") from None
            except self._ray.exceptions.RayTaskError as error:  # its own first line names the place, not the reason
                reason = (str(error.cause) or type(error.cause).__name__).splitlines()[0]
                raise RuntimeError(f"{job} failed in its Ray worker: {reason}") from error
            self._out_of_reach.pop(job.id, None)
            delta, buffers = torch.tensor(delta), torch.tensor(buffers)
            examples = self.task.sizes[job.client]
            vectors, kept = unpack_vectors({name: torch.tensor(array) for name, array in packed.items()})
            yield slot, Update(job, delta, buffers, start.params, examples, {"loss": loss}, vectors, kept)

    def _store(self, model: Model) -> Any:
        """Return a reference to a version of the model in the object store, with what the server sends beside it.

        The version is stored once, until this process frees its parameters. What clients keep travels with their jobs.
        """
        sent = {name: vector.numpy() for name, vector in model.vectors.items() if name.startswith(SERVER)}
        key = id(model.params), bool(sent)
        if key not in self._stored:
            self._stored[key] = self._ray.put((model.params.numpy(), model.buffers.numpy(), sent))
            weakref.finalize(model.params, self._stored.pop, key, None)
        return self._stored[key]

    def evaluate(self, model: Model) -> dict[str, float]:
        """Return the task's metrics of a model, computed in this process, or with GPUs in a worker."""
        if not self._cuda:
            with torch.autocast("cpu", torch.bfloat16, enabled=self._autocast):
                return super().evaluate(model)
        self._start()
        return self._ray.get(self.actors[0].evaluate.remote(self._task, self._store(model)))

    def evaluate_clients(self, model: Model, clients: Sequence[int] | None = None) -> dict[str, list[float]]:
        """Return the metrics of a model on each client's own test data, as `evaluate` computes those of the task."""
        if not self._cuda:
            with torch.autocast("cpu", torch.bfloat16, enabled=self._autocast):
                return super().evaluate_clients(model, clients)
        self._start()
        return self._ray.get(self.actors[0].evaluate_clients.remote(self._task, self._store(model), clients))

    def close(self) -> None:
        """End the workers, forget all jobs and updates, and leave the cluster if this executor joined it."""
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
