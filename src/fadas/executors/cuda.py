"""One GPU: local steps captured as CUDA graphs, replayed for several clients at a time.

A local step of a small network is hundreds of kernels of microseconds each: launched one by one, they leave the GPU
idle. Captured once and replayed, they do not; and several clients at a time, each on its own stream, fill the rest.
Each stream is fed by a thread of its own that stays a few steps ahead: a full queue would hold up all the others.
"""

import gc
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from queue import SimpleQueue
from typing import Any

import torch
from torch import Tensor, nn

from fadas.core.ledger import Job
from fadas.core.model import Model, Update
from fadas.executors.base import Executor
from fadas.executors.torch_settings import Precision, use_precision
from fadas.tasks.task import Subsets, Task, send
from fadas.training.flat_module import FlatModule
from fadas.training.preflight import random_devices
from fadas.training.sgd import LocalSGD, epoch_rows, job_seed

_AHEAD = 3  # steps that a thread may be ahead of its stream
_MOST = 14  # lanes: torch has 32 streams, and graphs that were captured on the same one share a workspace of cuBLAS


class Cuda(Executor):
    """One GPU: captured local steps, replayed for several clients at a time.

    Jobs start as soon as they are submitted, in that order. Results are tensors that the GPU may still be computing;
    whoever reads their values waits.
    """

    shared_options = (*Executor.shared_options, "compile")

    @classmethod
    def default_precision(cls, device: str) -> Precision:
        """Return bf16 on a GPU."""
        return "bf16" if device.startswith("cuda") else "fp32"

    def __init__(
        self,
        task: Task,
        local: LocalSGD,
        seed: int,
        device: str = "cuda",
        precision: Precision = "bf16",
        streams: int = 8,
        compile: bool = False,
    ) -> None:
        if torch.device(device).type != "cuda":
            raise ValueError(f"the cuda executor needs a CUDA device, not {device!r}")
        if not 1 <= streams <= _MOST:
            raise ValueError(f"streams must be from 1 to {_MOST}, not {streams}")
        if not task.alike:
            raise RuntimeError("clients have examples of different shapes or types")
        drawn = random_devices(FlatModule(task.module(seed), device), task)
        if "cpu" in drawn:
            raise RuntimeError("the module or the loss draws random numbers on the host, which a graph would repeat")
        # Captured dropout takes its seed from the device's one generator: with one stream, each job can set it first.
        self.random = "cuda" in drawn
        streams = 1 if self.random else streams
        self.task, self.local, self.seed, self.device = _on_device(task, device), local, seed, device
        self._autocast = use_precision(precision, device)
        self.forward = _compiled(_forward) if compile else _forward  # once for the modules of all lanes
        with _uncollected():
            self._prepare(task, local, streams, compile)
        self._threads = ThreadPoolExecutor(streams)
        self._jobs: dict[int, Future[tuple[Update, torch.cuda.Event]]] = {}

    def _prepare(self, task: Task, local: LocalSGD, streams: int, compile: bool) -> None:
        """Capture the local steps, for full batches once per lane."""
        short = {local.short_batch(size) for size in task.sizes} - {0}
        # Short batches are rare: a few benches with a graph for each of their sizes serve all lanes in turn.
        self._benches = [Bench(self, sorted(short), _forward) for _ in range(min(2, streams))]
        self._lanes = SimpleQueue[Lane]()
        for _ in range(streams):
            self._lanes.put(Lane(self, Bench(self, [local.batch_size], self.forward)))
        self.evaluation = FlatModule(self.task.module(self.seed), self.device)
        self._evaluated = _compiled(self.evaluation.module) if compile else self.evaluation.module
        self._evaluation_stream = torch.cuda.Stream(self.device)
        if compile:
            self.evaluate(self.evaluation.read())  # the compiler's time is part of the set-up, not of the first round

    def autocast(self) -> AbstractContextManager[Any]:
        return torch.autocast("cuda", torch.bfloat16, enabled=self._autocast)

    def submit(self, job: Job, start: Model, due: int) -> None:
        stream = torch.cuda.current_stream(self.device)
        ready = _record(stream)  # the start model may still be in the making
        self._jobs[job.id] = self._threads.submit(self._run, job, start, stream, ready)

    def _run(
        self, job: Job, start: Model, home: torch.cuda.Stream, ready: torch.cuda.Event
    ) -> tuple[Update, torch.cuda.Event]:
        lane = self._lanes.get()
        try:
            return lane.run(job, start, home, ready)
        finally:
            self._lanes.put(lane)

    def borrow(self) -> "Bench":
        """A bench for a short batch, locked: one whose last borrower is done, if there is one."""
        bench = next((b for b in self._benches if b.free.query() and not b.lock.locked()), self._benches[0])
        bench.lock.acquire()
        self._benches = [*self._benches[1:], self._benches[0]]
        return bench

    def collect(self, job: Job) -> Update:
        update, done = self._jobs.pop(job.id).result()
        torch.cuda.current_stream(self.device).wait_event(done)
        return update

    def evaluate(self, model: Model) -> dict[str, float]:
        stream = self._evaluation_stream
        stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(stream), self.autocast():
            self.evaluation.load(model)
            return self.task.evaluate(self._evaluated, chunk=2500)  # type: ignore[arg-type]

    def close(self) -> None:
        self._threads.shutdown(cancel_futures=True)
        self._jobs.clear()
        torch.cuda.synchronize(self.device)
        self._benches.clear()  # graphs and their memory go now, not when Python next looks for cycles
        while not self._lanes.empty():
            self._lanes.get()


@dataclass(frozen=True)
class Captured:
    """One local step for batches of one size: its graph, and the tensors it reads its batch from."""

    graph: torch.cuda.CUDAGraph
    batch: Sequence[Tensor]


class Bench:
    """A module with a captured local step for each of some batch sizes."""

    def __init__(self, executor: Cuda, sizes: Sequence[int], forward: Callable[..., Tensor]) -> None:
        self.executor, self._forward = executor, forward
        self.flat = FlatModule(executor.task.module(executor.seed), executor.device)
        local, module = executor.local, self.flat.module
        parameters = [p for p in module.parameters() if p.requires_grad]
        self._optimizer = torch.optim.SGD(parameters, local.lr, weight_decay=local.weight_decay, fused=True)
        self.loss = torch.zeros((), device=executor.device)
        self.lock = threading.Lock()
        self.free = _record(torch.cuda.current_stream(executor.device))  # when the last borrower's step is done
        initial = self.flat.read()
        pool = torch.cuda.graph_pool_handle()  # the graphs of a bench never run at once: they may share their memory
        stream = torch.cuda.Stream(executor.device)
        self.captured = {size: self._capture(size, stream, pool) for size in sizes}
        self.flat.load(initial)

    def _step(self, batch: Sequence[Tensor]) -> None:
        *inputs, targets = batch
        self._optimizer.zero_grad(set_to_none=True)
        with self.executor.autocast():
            loss = self.executor.task.loss(self._forward(self.flat.module, *inputs), targets).mean()
        loss.backward()
        self._optimizer.step()
        self.loss += loss.detach()
        self.flat.tie()  # within the graph: it reads and writes the same buffers every time

    def _capture(self, size: int, stream: torch.cuda.Stream, pool: Any) -> Captured:
        task = self.executor.task
        *inputs, targets = (tensor[:1].to(self.executor.device) for tensor in task.clients[0])
        example = [*task.prepare(inputs, torch.Generator().manual_seed(0)), targets]  # as they are when they train
        batch = [column.expand(size, *column.shape[1:]).clone() for column in example]
        batch = [_as_captured(column) for column in batch]
        self.flat.module.train()
        home = torch.cuda.current_stream(self.executor.device)
        stream.wait_stream(home)
        with torch.cuda.stream(stream):
            for _ in range(3):  # cuDNN and the compiler choose their kernels before the capture
                self._step(batch)
        home.wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, pool=pool, stream=stream, capture_error_mode="thread_local"):
                self._step(batch)
        except BaseException:
            torch.cuda.set_stream(home)  # a capture that fails would leave us on its stream
            raise
        graph.replay()  # the first replay uploads the graph
        return Captured(graph, batch)

    def step(self, batch: Sequence[Tensor]) -> None:
        """One local step on this batch, queued on the current stream."""
        captured = self.captured[len(batch[-1])]
        for static, column in zip(captured.batch, batch):
            static.copy_(column)
        captured.graph.replay()


class Lane:
    """A stream, and the bench that the full batches of its job are trained on."""

    def __init__(self, executor: Cuda, bench: Bench) -> None:
        self.executor, self.bench = executor, bench
        self.stream = torch.cuda.Stream(executor.device)

    @torch.no_grad()
    def run(
        self, job: Job, start: Model, home: torch.cuda.Stream, ready: torch.cuda.Event
    ) -> tuple[Update, torch.cuda.Event]:
        """Queue a whole job on this lane's stream, staying a few steps ahead of it."""
        executor, bench = self.executor, self.bench
        under_way = deque[torch.cuda.Event]()
        with torch.cuda.stream(self.stream):
            self.stream.wait_event(ready)
            data, epochs = epoch_rows(executor.task, executor.local, executor.seed, job, executor.device)
            bench.flat.load(start)
            bench.loss.zero_()
            if executor.random:
                torch.cuda.manual_seed(job_seed(executor.seed, job))
            rows = send(torch.cat(epochs), executor.device)
            data = [_as_captured(column.index_select(0, rows)) for column in data]  # a batch is then a slice
            size = executor.local.batch_size
            lengths = [min(size, len(epoch) - at) for epoch in epochs for at in range(0, len(epoch), size)]
            steps = list(zip(*(column.split(lengths) for column in data), strict=True))
            for batch in steps:
                if len(batch[-1]) in bench.captured:
                    bench.step(batch)
                else:
                    self._short_step(batch)
                under_way.append(_record(self.stream))
                if len(under_way) > _AHEAD:
                    under_way.popleft().synchronize()
            delta, buffers = bench.flat.params - start.params, bench.flat.buffers.clone()
            loss = bench.loss / len(steps)
            for tensor in (start.params, start.buffers):
                tensor.record_stream(self.stream)
            for tensor in (delta, buffers, loss):
                tensor.record_stream(home)  # used there later: its memory is not to be given away before
            done = _record(self.stream)
        examples = executor.task.sizes[job.client]
        return Update(job, delta, buffers, start.params, examples, {"loss": loss}), done

    def _short_step(self, batch: Sequence[Tensor]) -> None:
        """One step on a borrowed bench: the model goes there and comes back."""
        own, other = self.bench, self.executor.borrow()
        try:
            self.stream.wait_event(other.free)
            other.flat.take(own.flat)
            other.loss.copy_(own.loss)
            other.step(batch)
            own.flat.take(other.flat)
            own.loss.copy_(other.loss)
            other.free = _record(self.stream)
        finally:
            other.lock.release()


@contextmanager
def _uncollected() -> Iterator[None]:
    """No garbage is collected within: to destroy another executor's graphs during a capture would spoil it."""
    gc.collect()
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _forward(module: nn.Module, *inputs: Tensor) -> Tensor:
    return module(*inputs)


def _compiled(what: Any) -> Any:
    """Compiled by rules: Inductor would else time several kernels and keep the fastest of this very run."""
    from torch._inductor import config

    return torch.compile(what, options={"deterministic": True} if hasattr(config, "deterministic") else {})


def _as_captured(column: Tensor) -> Tensor:
    """Laid out as the captured steps read it: images with the channels last."""
    return column.contiguous(memory_format=torch.channels_last) if column.dim() == 4 else column


def _record(stream: torch.cuda.Stream) -> torch.cuda.Event:
    event = torch.cuda.Event(blocking=True)  # whoever waits for it on the host leaves the processor to others
    event.record(stream)
    return event


def _on_device(task: Task, device: str) -> Task:
    """The task with its data on the device, once."""
    clients: Any
    if isinstance(task.clients, Subsets):
        parts = [part.to(device) for part in task.clients.parts]
        clients = Subsets([tensor.to(device) for tensor in task.clients.data], parts)
    else:
        clients = [[tensor.to(device) for tensor in data] for data in task.clients]
    test = None if task.test is None else [tensor.to(device) for tensor in task.test]
    return replace(task, clients=clients, test=test)
