"""The processes executor: several processes on this machine, each with one job at a time.

Workers are forked. They share the task and its data with this process, without a copy and without pickling, so every
task works. Models are exchanged through shared memory.
"""

import mmap
import os
import signal
import sys
import traceback
import weakref
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from multiprocessing.connection import wait
from typing import Any, Literal, NoReturn

import torch
from torch import Tensor

from fadas.core.ledger import Job
from fadas.core.model import Model, Update, Vectors
from fadas.executors.base import choose_format
from fadas.executors.torch_settings import torch_threads
from fadas.executors.worker_pool import Pool, pack_vectors, unpack_vectors
from fadas.tasks.task import Task
from fadas.training.flat_module import FlatModule, MemoryFormat
from fadas.training.one_job import train_job
from fadas.training.sgd import LocalSGD
from fadas.validate import MOST_WORKERS, at_least, at_most

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_WRITE = 1 << 30  # bytes in one call
_ATTEMPTS = 3  # a job that crashes its worker this often, for example because memory runs out, ends the run


Layout = list[tuple[str, torch.dtype, tuple[int, ...], int, int]]  # name, type, shape, position and size of vectors

_NEEDS_FORK = (
    "needs Linux, and a machine whose GPUs are hidden: torch cannot train in forked processes if it sees a GPU. To "
    "hide the GPUs, set the environment variable CUDA_VISIBLE_DEVICES="
)


def can_fork() -> bool:
    """Return whether worker processes can be forked: on Linux, if torch sees no GPU.

    With a GPU, torch's first backward pass starts threads. Processes that are forked later cannot train.
    """
    return sys.platform == "linux" and not torch.cuda.is_available()


class Slot:
    """A worker's place for one job, with shared memory for the start model and then for the result."""

    def __init__(self, worker: "Worker", like: Model) -> None:
        self.worker = worker
        self.params, self.buffers = _shared(like.params), _shared(like.buffers)
        self.vectors = SharedVectors()
        self.job: Job | None = None
        self.start: Model | None = None
        self.attempts = 0


def _shared(like: Tensor) -> Tensor:
    """Return an uninitialised tensor in memory that forked processes share.

    /dev/shm is not used, because a container may have only 64 MB of it.
    """
    if not like.numel():
        return torch.empty_like(like)
    return torch.frombuffer(mmap.mmap(-1, like.nbytes), dtype=like.dtype)


class SharedVectors:
    """Named vectors in a file in memory that forked processes share. It grows as needed."""

    def __init__(self) -> None:
        self._file = os.memfd_create("fadas")
        weakref.finalize(self, os.close, self._file)

    def store(self, vectors: Vectors) -> Layout:
        """Write vectors over what is there. Return what `fetch` needs to find them."""
        layout: Layout = []
        at = 0
        for name, vector in vectors.items():
            content = vector.detach().contiguous().reshape(-1).view(torch.uint8).numpy().data
            for first in range(0, len(content), _WRITE):  # the system writes at most 2 GiB in a call
                os.pwrite(self._file, content[first : first + _WRITE], at + first)
            layout.append((name, vector.dtype, tuple(vector.shape), at, len(content)))
            at += len(content)
        return layout

    def fetch(self, layout: Layout) -> dict[str, Tensor]:
        """Return copies of the vectors."""
        return {name: self._read(dtype, shape, at, size) for name, dtype, shape, at, size in layout}

    def _read(self, dtype: torch.dtype, shape: tuple[int, ...], at: int, size: int) -> Tensor:
        content = bytearray(size)
        for first in range(0, size, _WRITE):
            os.preadv(self._file, [memoryview(content)[first : first + _WRITE]], at + first)
        return torch.frombuffer(content, dtype=dtype).view(shape) if content else torch.empty(shape, dtype=dtype)


class Worker:
    """A forked process with two slots. It trains their jobs in the order in which they were sent."""

    def __init__(self, pool: "Processes") -> None:
        self.pool = pool
        self.slots = [Slot(self, pool.initial) for _ in range(2)]
        self.under_way: deque[Slot] = deque()
        self.start()

    def start(self) -> None:
        """Fork the process."""
        parent_pipe, child_pipe = torch.multiprocessing.get_context("fork").Pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)  # the parent's handlers are not for the worker
        try:
            self.pid = os.fork()
            if not self.pid:
                parent_pipe.close()
                self._work(child_pipe)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        child_pipe.close()
        self.pipe = parent_pipe

    def _work(self, pipe: Any) -> NoReturn:
        """Train jobs in the forked process until the pipe closes. Exit without the parent's clean-up handlers."""
        code = 1
        try:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes; the parent ends its workers
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
            _reopen_streams()
            # Close the pipe ends inherited from the parent. Otherwise the other workers would not notice its death.
            for worker in self.pool.workers:
                worker.pipe.close()
            torch.set_num_threads(1)  # more threads would wait for each other, and change the last bits
            pool = self.pool
            flat = FlatModule(pool.task.module(pool.seed))
            flat.memory_format = pool.memory_format
            while True:
                place, job, layout = pipe.recv()
                slot = self.slots[place]
                start = Model(slot.params.clone(), slot.buffers.clone(), slot.vectors.fetch(layout))
                try:
                    update = train_job(flat, pool.task, pool.local, pool.seed, Job(*job), start)
                except BaseException as error:  # also SystemExit: the parent reports the reason
                    # The reason comes before the traceback, because messages show one line.
                    reason = f"{type(error).__name__}: {error}".splitlines()[0]
                    pipe.send((place, None, [], f"{reason}\n{traceback.format_exc()}"))
                    continue
                slot.params.copy_(update.delta)
                slot.buffers.copy_(update.buffers)
                layout = slot.vectors.store(pack_vectors(update))
                pipe.send((place, float(update.metrics["loss"]), layout, ""))
        except (EOFError, BrokenPipeError):
            code = 0
        finally:
            os._exit(code)

    def send(self, slot: Slot) -> None:
        """Send a slot's job to the process."""
        assert slot.job is not None
        assert slot.start is not None
        slot.params.copy_(slot.start.params)
        slot.buffers.copy_(slot.start.buffers)
        layout = slot.vectors.store(slot.start.vectors)
        self.under_way.append(slot)
        with suppress(ConnectionError):  # the worker has died: `Processes._receive` will replace it
            self.pipe.send((self.slots.index(slot), tuple(slot.job), layout))

    def replace(self) -> None:
        """Start a new process in place of one that has died, and send its jobs again."""
        self.stop()
        lost = list(self.under_way)
        self.under_way.clear()
        if lost:
            lost[0].attempts += 1
            if lost[0].attempts >= _ATTEMPTS:
                raise RuntimeError(
                    f"{lost[0].job} crashed its worker process {_ATTEMPTS} times; if memory runs out, try fewer workers"
                )
        self.start()
        for slot in lost:
            self.send(slot)

    def stop(self) -> None:
        """Kill the process, if there is one."""
        if self.pid:
            self.pipe.close()
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        self.pid = 0


def _reopen_streams() -> None:
    """Replace stdout and stderr, which may be wrapped by the parent's progress display.

    A fork may have copied the display's locks in a locked state, and then a print of the user's code would hang.
    """
    with suppress(OSError):  # stdout or stderr may be closed
        sys.stdout, sys.stderr = (open(number, "w", buffering=1, closefd=False) for number in (1, 2))  # noqa: SIM115


class Processes(Pool[Slot]):
    """Several worker processes on this machine, each with one job at a time.

    A worker that dies is replaced, and its jobs are trained again. Linux only, and only without a visible GPU.

    Args:
        task: Model, data and loss.
        local: What a client does with a job.
        seed: The run's seed.
        device: "cpu". Other devices are refused.
        workers: The number of processes. None: the number of threads that torch would use.
        memory_format: How images lie in memory: "contiguous" or "channels-last". "auto": channels-last on a CPU for
            networks with ordinary 2d convolutions, which train faster so. The results differ by rounding.

    Raises:
        ValueError: The device is not the CPU, processes cannot be forked, or there are too many workers.

    Example:
        >>> executor = Processes(task, LocalSGD(), seed=0, workers=2)
        >>> executor.submit(job, start, due=0)
        >>> update = executor.collect(job)
        >>> executor.close()
    """

    is_fallback = True

    @classmethod
    def find_obstacle(cls) -> str:
        """Return why this executor cannot run on this machine; "" if it can."""
        return "" if can_fork() else _NEEDS_FORK

    def __init__(
        self,
        task: Task,
        local: LocalSGD,
        seed: int,
        device: str = "cpu",
        workers: int | None = None,
        memory_format: Literal["auto", MemoryFormat] = "auto",
    ) -> None:
        if device != "cpu":
            raise ValueError(f'device must be "cpu" for the processes executor, got {device!r}')
        at_least(1, workers=workers)
        at_most(MOST_WORKERS, workers=workers)
        if not can_fork():
            raise ValueError(f"the processes executor {_NEEDS_FORK}")
        super().__init__(task, local, seed)
        self.initial = self._flat.read()
        self.memory_format = choose_format(memory_format, self._flat)
        self.workers: list[Worker] = []
        self._threads = torch.get_num_threads()
        self._count = workers or self._threads

    def submit(self, job: Job, start: Model, due: int) -> None:
        """Queue a job. The first job starts the workers."""
        if not self.workers:
            self._threads = torch.get_num_threads()  # used for evaluation, and restored by `close`
            torch.set_num_threads(1)  # this process's other threads would only wait, on the workers' cores
            for _ in range(self._count):
                self.workers.append(Worker(self))
            self._free = [worker.slots[place] for place in range(2) for worker in self.workers]
        super().submit(job, start, due)

    def _send(self, slot: Slot, job: Job, start: Model) -> None:
        slot.job, slot.start, slot.attempts = job, start, 0
        slot.worker.send(slot)

    def _receive(self) -> Iterator[tuple[Slot, Update]]:
        by_pipe = {worker.pipe: worker for worker in self.workers}
        for pipe in wait(list(by_pipe)):
            worker = by_pipe[pipe]  # type: ignore[index]
            try:
                place, loss, layout, problem = worker.pipe.recv()
            except (EOFError, ConnectionResetError):
                worker.replace()
                continue
            slot = worker.slots[place]
            worker.under_way.remove(slot)
            assert slot.job is not None
            assert slot.start is not None
            if loss is None:
                raise RuntimeError(f"{slot.job} failed in its worker process: {problem}")
            delta, buffers = slot.params.clone(), slot.buffers.clone()
            examples, base = self.task.sizes[slot.job.client], slot.start.params
            vectors, kept = unpack_vectors(slot.vectors.fetch(layout))
            yield slot, Update(slot.job, delta, buffers, base, examples, {"loss": loss}, vectors, kept)
            slot.start = None  # so that its version can be freed

    def evaluate(self, model: Model) -> dict[str, float]:
        """Return the task's metrics of a model, computed in this process with all its threads."""
        with torch_threads(self._threads):
            return super().evaluate(model)

    def evaluate_clients(self, model: Model, clients: Sequence[int] | None = None) -> dict[str, list[float]]:
        """Return the metrics of a model on each client's own test data, computed in this process."""
        with torch_threads(self._threads):
            return super().evaluate_clients(model, clients)

    def close(self) -> None:
        """Kill the workers, and forget all jobs and updates."""
        super().close()
        if self.workers:
            torch.set_num_threads(self._threads)
        for worker in self.workers:
            worker.stop()
        self.workers.clear()
