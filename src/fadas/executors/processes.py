"""Several processes of this machine, each with one job at a time.

Workers are forked: they share the task and its data with this process, at no cost and without pickling, so any task
will do. Models travel through memory that all processes see.
"""

import mmap
import os
import signal
import sys
import traceback
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing.connection import wait
from typing import Any, NoReturn

import torch
from torch import Tensor

from fadas.core.ledger import Job
from fadas.core.model import Model, Update
from fadas.executors.torch_settings import torch_threads
from fadas.executors.worker_pool import Pool
from fadas.tasks.task import Task
from fadas.training.flat_module import FlatModule
from fadas.training.one_job import train_job
from fadas.training.sgd import LocalSGD

_MOST = 1000  # workers
_ATTEMPTS = 3  # a job that takes its worker down so often (for lack of memory, say) ends the run


def can_fork() -> bool:
    """Where torch sees a GPU, its first backward pass starts threads, and processes forked later cannot train."""
    return sys.platform == "linux" and not torch.cuda.is_available()


class Slot:
    """A worker's place for one job: the model it starts from goes in, what it learned comes out."""

    def __init__(self, worker: "Worker", like: Model) -> None:
        self.worker = worker
        self.params, self.buffers = _shared(like.params), _shared(like.buffers)
        self.job: Job | None = None
        self.start: Model | None = None
        self.attempts = 0


def _shared(like: Tensor) -> Tensor:
    """Memory that forked processes share. Not in /dev/shm, of which a container has but 64 MB."""
    if not like.numel():
        return torch.empty_like(like)
    return torch.frombuffer(mmap.mmap(-1, like.nbytes), dtype=like.dtype)


class Worker:
    """A forked process that trains the jobs in its two slots, in the order in which it is told of them."""

    def __init__(self, pool: "Processes") -> None:
        self.pool = pool
        self.slots = [Slot(self, pool.initial) for _ in range(2)]
        self.under_way: deque[Slot] = deque()
        self.start()

    def start(self) -> None:
        ours, theirs = torch.multiprocessing.get_context("fork").Pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if not self.pid:
            ours.close()
            self._work(theirs)
        theirs.close()
        self.pipe = ours

    def _work(self, pipe: Any) -> NoReturn:
        """The worker's life: train until the pipe ends. Leaves without any clean-up that belongs to the parent."""
        code = 1
        try:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent sees to us
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            _own_streams()
            for other in self.pool.workers:  # the parent's ends: else their workers would outlive the parent with us
                other.pipe.close()
            torch.set_num_threads(1)  # more would wait for each other, and change the last bits
            pool = self.pool
            flat = FlatModule(pool.task.module(pool.seed))
            while True:
                place, job = pipe.recv()
                slot = self.slots[place]
                start = Model(slot.params.clone(), slot.buffers.clone())
                try:
                    update = train_job(flat, pool.task, pool.local, pool.seed, Job(*job), start)
                except BaseException as error:  # sys.exit too: the parent tells why
                    reason = f"{type(error).__name__}: {error}".splitlines()[0]  # first: messages show one line
                    pipe.send((place, None, f"{reason}\n{traceback.format_exc()}"))
                    continue
                slot.params.copy_(update.delta)
                slot.buffers.copy_(update.buffers)
                pipe.send((place, float(update.metrics["loss"]), ""))
        except (EOFError, BrokenPipeError):
            code = 0
        finally:
            os._exit(code)

    def send(self, slot: Slot) -> None:
        assert slot.job is not None
        assert slot.start is not None
        slot.params.copy_(slot.start.params)
        slot.buffers.copy_(slot.start.buffers)
        self.under_way.append(slot)
        with suppress(ConnectionError):  # a dead worker: whoever waits for it finds out and starts another
            self.pipe.send((self.slots.index(slot), tuple(slot.job)))

    def replace(self) -> None:
        """The process has died: another takes its place and does its jobs again."""
        self.stop()
        lost = list(self.under_way)
        self.under_way.clear()
        if lost:
            lost[0].attempts += 1
            if lost[0].attempts >= _ATTEMPTS:
                raise RuntimeError(f"{lost[0].job} took its worker process down {_ATTEMPTS} times: out of memory?")
        self.start()
        for slot in lost:
            self.send(slot)

    def stop(self) -> None:
        if self.pid:
            self.pipe.close()
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        self.pid = 0


def _own_streams() -> None:
    """What user code prints must not pass through the parent's progress display, whose locks a fork may have copied."""
    with suppress(OSError):  # where there is none
        sys.stdout, sys.stderr = (open(number, "w", buffering=1, closefd=False) for number in (1, 2))  # noqa: SIM115


class Processes(Pool[Slot]):
    """Several worker processes on this machine, one job each; by default as many as torch would use threads.

    A worker that dies is replaced, and its job is done again.
    """

    def __init__(self, task: Task, local: LocalSGD, seed: int, device: str = "cpu", workers: int | None = None) -> None:
        if device != "cpu":
            raise ValueError(f"the processes executor is for the CPU, not {device!r}")
        if not can_fork():
            hint = "Linux, and no GPU in sight (CUDA_VISIBLE_DEVICES= hides it): torch cannot train in forks beside one"
            raise ValueError(f"the processes executor needs {hint}")
        if workers is not None and workers < 1:
            raise ValueError(f"workers must be at least 1, not {workers}")
        if workers is not None and workers > _MOST:
            raise ValueError(f"{workers:,} workers are more than a machine can bear ({_MOST} at most)")
        super().__init__(task, local, seed)
        self.initial = self._flat.read()
        self.workers: list[Worker] = []
        self._threads = torch.get_num_threads()
        self._count = workers or self._threads

    def submit(self, job: Job, start: Model, due: int) -> None:
        if not self.workers:  # not before there is work: a process that is never needed would only linger
            self._threads = torch.get_num_threads()  # as they are now, for evaluation and for afterwards
            torch.set_num_threads(1)  # this process's other threads would take the workers' cores, only to wait there
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
                place, loss, problem = worker.pipe.recv()
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
            yield slot, Update(slot.job, delta, buffers, base, examples, {"loss": loss})
            slot.start = None  # its version may be freed

    def evaluate(self, model: Model) -> dict[str, float]:
        with torch_threads(self._threads):
            return super().evaluate(model)

    def close(self) -> None:
        super().close()
        if self.workers:
            torch.set_num_threads(self._threads)
        for worker in self.workers:
            worker.stop()
        self.workers.clear()
