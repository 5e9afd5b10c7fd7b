"""The cuda executor: one GPU, with local steps captured as CUDA graphs and replayed for several clients at a time.

A local step of a small network is hundreds of kernels that take microseconds each. Launched one by one, they leave the
GPU idle most of the time.

- A CUDA graph captures the kernels of a step once. Replaying the graph launches all of them together.
- Several clients train at the same time, each on its own stream. They use the rest of the GPU.
- Each stream has its own thread, which stays only a few steps ahead. A full queue would block all other streams.
"""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any

import torch
from torch import Tensor, nn

from fadas.core.ledger import Job
from fadas.core.model import Model, Update
from fadas.executors.base import Executor
from fadas.executors.torch_settings import Precision, compiled, uncollected, use_precision
from fadas.tasks.task import Task, evaluate_clients, on_device, send
from fadas.training.flat_module import FlatModule
from fadas.training.job_state import final_vectors, initial_state
from fadas.training.preflight import random_devices
from fadas.training.sgd import TAKEN, LocalSGD, epoch_rows, job_seed

_AHEAD = 3  # how many steps a thread may be ahead of its stream
_MOST = 14  # lanes: torch has 32 streams, and graphs captured on the same stream share a cuBLAS workspace


class Cuda(Executor):
    """One GPU, with captured local steps that are replayed for several clients at a time.

    Jobs start as soon as they are submitted, in the order of submission. The tensors of an update may still be in
    computation on the GPU. Reading their values waits for the GPU.

    Args:
        task: Model, data and loss. Its clients' examples must have one shape. The data are copied to the GPU, except
            data that stay on disk: of those, each job's are.
        local: What a client does with a job.
        seed: The run's seed.
        device: Where to train: "cuda", "cuda:1", ...
        precision: "fp32", "tf32" or "bf16".
        streams: How many clients train at the same time. Networks with dropout always use one stream.
        compile: Compile the network. It pays when a run is long.

    Raises:
        ValueError: The device is not a CUDA device, or the number of streams is out of range.
        RuntimeError: The local steps cannot be captured, for example because they read a value on the host.

    Example:
        >>> executor = Cuda(task, LocalSGD(), seed=0, device="cuda", streams=4)
        >>> executor.submit(job, start, due=0)
        >>> update = executor.collect(job)
    """

    shared_options = (*Executor.shared_options, "compile")

    @classmethod
    def find_obstacle(cls) -> str:
        """Return why this executor cannot run on this machine; "" if it can."""
        return "" if torch.cuda.is_available() else "needs a CUDA device, and torch sees none"

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
            raise ValueError(f"the cuda executor needs a CUDA device, got {device!r}")
        if not 1 <= streams <= _MOST:
            raise ValueError(f"streams must be from 1 to {_MOST}, got {streams}")
        if not task.alike:
            raise RuntimeError("clients have examples of different shapes or types")
        drawn = random_devices(FlatModule(task.module(seed), device), task)
        if "cpu" in drawn:
            raise RuntimeError("the module or the loss draws random numbers on the host, which a graph would repeat")
        # Captured dropout takes its seed from the device's only generator. Each job sets it, so jobs run one by one.
        self.random = "cuda" in drawn
        streams = 1 if self.random else streams
        self.task, self.seed, self.device = on_device(task, device), seed, device
        self._autocast = use_precision(precision, device)
        self.forward = compiled(_forward) if compile else _forward  # compiled once, for the modules of all lanes
        self._streams, self._compile = streams, compile
        self.use(local)
        self._threads = ThreadPoolExecutor(streams)
        self._jobs: dict[int, Future[tuple[Update, torch.cuda.Event]]] = {}

    def use(self, local: LocalSGD) -> None:
        """Capture the local steps, and train in this way from now on."""
        if not local.elementwise:
            raise RuntimeError(f"{type(local).__name__} cannot be captured in a graph")
        self.local = local
        with uncollected():
            self._prepare(local, self._streams, self._compile)

    def _prepare(self, local: LocalSGD, streams: int, compile: bool) -> None:
        """Capture the local steps: for full batches once per lane, for short batches on a few shared benches."""
        short = {local.short_batch(size) for size in self.task.sizes} - {0}
        # Short batches are rare. All lanes share a few benches, which have a graph for each short batch size.
        self._benches = [Bench(self, sorted(short), _forward) for _ in range(min(2, streams))]
        self._lanes = SimpleQueue[Lane]()
        for _ in range(streams):
            self._lanes.put(Lane(self, Bench(self, [local.batch_size], self.forward)))
        self.evaluation = FlatModule(self.task.module(self.seed), self.device)
        self._evaluated = compiled(self.evaluation.module) if compile else self.evaluation.module
        self._evaluation_stream = torch.cuda.Stream(self.device)
        if compile:
            self.evaluate(self.evaluation.read())  # compile now, and not during the first round

    def autocast(self) -> AbstractContextManager[Any]:
        """Return torch's autocast to bfloat16, enabled if the precision is "bf16"."""
        return torch.autocast("cuda", torch.bfloat16, enabled=self._autocast)

    def submit(self, job: Job, start: Model, due: int) -> None:
        """Hand a job to the next free lane."""
        stream = torch.cuda.current_stream(self.device)
        ready = _record(stream)  # the GPU may still be computing the start model
        self._jobs[job.id] = self._threads.submit(self._run, job, start, stream, ready)

    def _run(
        self, job: Job, start: Model, home: torch.cuda.Stream, ready: torch.cuda.Event
    ) -> tuple[Update, torch.cuda.Event]:
        """Train a job on a free lane. Return the update, and the event that marks its completion on the GPU."""
        lane = self._lanes.get()
        try:
            return lane.run(job, start, home, ready)
        finally:
            self._lanes.put(lane)

    def borrow(self) -> "Bench":
        """Lock a bench for a short batch and return it. Prefer one whose last borrower is done."""
        bench = next((b for b in self._benches if b.free.query() and not b.lock.locked()), self._benches[0])
        bench.lock.acquire()
        self._benches = [*self._benches[1:], self._benches[0]]
        return bench

    def collect(self, job: Job) -> Update:
        """Return the update of a submitted job. The current stream will wait for its tensors."""
        update, done = self._jobs.pop(job.id).result()
        torch.cuda.current_stream(self.device).wait_event(done)
        return update

    def evaluate(self, model: Model) -> dict[str, float]:
        """Return the task's metrics of a model, computed on a separate stream."""
        stream = self._evaluation_stream
        stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(stream), self.autocast():
            self.evaluation.load(model)
            return self.task.evaluate(self._evaluated, chunk=2500)  # type: ignore[arg-type]

    def evaluate_clients(self, model: Model, clients: Sequence[int] | None = None) -> dict[str, list[float]]:
        """Return the metrics of a model on each client's own test data, computed on a separate stream."""
        stream = self._evaluation_stream
        stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(stream), self.autocast():
            self.evaluation.load(model)
            # not the compiled module: blocks of clients differ in size, and each size would be compiled
            return evaluate_clients(self.task, self.evaluation.module, 2500, clients)

    def close(self) -> None:
        """Cancel the jobs that have not started, wait for the others, and release the graphs."""
        self._threads.shutdown(cancel_futures=True)
        self._jobs.clear()
        torch.cuda.synchronize(self.device)
        self._benches.clear()  # free the graphs' memory now, and not when Python next collects garbage
        while not self._lanes.empty():
            self._lanes.get()


@dataclass(frozen=True)
class Captured:
    """One captured local step, for batches of one size.

    Args:
        graph: The CUDA graph of the step.
        batch: The tensors from which the graph reads its batch.
    """

    graph: torch.cuda.CUDAGraph
    batch: Sequence[Tensor]


class Bench:
    """A module with captured local steps, one for each of the given batch sizes.

    Args:
        executor: The executor that this bench belongs to.
        sizes: The batch sizes.
        forward: A function that calls the module, possibly compiled.
    """

    def __init__(self, executor: Cuda, sizes: Sequence[int], forward: Callable[..., Tensor]) -> None:
        self.executor, self._forward = executor, forward
        self.flat = FlatModule(executor.task.module(executor.seed), executor.device)
        local, module = executor.local, self.flat.module
        parameters = [p for p in module.parameters() if p.requires_grad]
        self._optimizer = torch.optim.SGD(parameters, local.lr, weight_decay=local.weight_decay, fused=True)
        self._start = torch.zeros_like(self.flat.params) if local.mu else self.flat.params
        self._t = torch.zeros((), device=executor.device)
        self._rate = torch.full((), local.lr, device=executor.device)
        self._varies = bool(local.schedule or local.warmup)
        self._graphed = local.with_rate(self._rate) if self._varies else local
        self._state = {name: vector.clone() for name, vector in initial_state(local, self.flat.read()).items()}
        self._addition = torch.zeros_like(self.flat.params) if local.has_addition else None
        self.loss = torch.zeros((), device=executor.device)
        self.lock = threading.Lock()
        self.free = _record(torch.cuda.current_stream(executor.device))  # reached when the last borrower's step is done
        initial = self.flat.read()
        pool = torch.cuda.graph_pool_handle()  # a bench runs one graph at a time, so its graphs can share memory
        stream = torch.cuda.Stream(executor.device)
        self.captured = {size: self._capture(size, stream, pool) for size in sizes}
        self.flat.load(initial)

    def _step(self, batch: Sequence[Tensor]) -> None:
        """Take a local step with ordinary kernel launches. `_capture` records it."""
        *inputs, targets = batch
        local = self.executor.local
        if local.is_plain:
            self._optimizer.zero_grad(set_to_none=True)
        else:
            self.flat.grads.zero_()
        with self.executor.autocast():
            loss = self.executor.task.loss(self._forward(self.flat.module, *inputs), targets).mean()
        loss.backward()
        if local.is_plain:
            self._optimizer.step()
        else:
            self._take(self._graphed)
        self.loss += loss.detach()
        self.flat.tie()  # inside the graph, which must use the same buffers every time

    @torch.no_grad()
    def _take(self, local: LocalSGD) -> None:
        """Take the step of any elementwise optimizer. What changes is a tensor: the graph would freeze a number."""
        params, grads = self.flat.params, self.flat.grads
        self._t += 1
        local.prepare(params, grads, self._start)
        if self._addition is not None:
            grads.add_(self._addition)
        local.decay(params, grads)
        local.step(params, grads, self._state, self._t)

    def begin(self, start: Model, local: LocalSGD) -> None:
        """Load the model that a job starts from, and the job's vectors.

        Args:
            start: The model.
            local: What the client does in this job.
        """
        self.flat.load(start)
        self.loss.zero_()
        state = initial_state(local, start)
        self._t.fill_(state[TAKEN]) if TAKEN in state else self._t.zero_()
        for name, vector in self._state.items():
            vector.copy_(state[name])
        if self._addition is not None and local.companion and (extra := local.companion.addition(state)) is not None:
            self._addition.copy_(extra)
        if local.mu:
            self._start.copy_(start.params)

    def set_rate(self, rate: float) -> None:
        """Use this learning rate in the next step, if the graph reads it."""
        if self._varies:
            self._rate.fill_(rate)

    def final_state(self) -> dict[str, Tensor]:
        """Return a copy of the job's vectors."""
        return {name: vector.clone() for name, vector in self._state.items()}

    def copy_from(self, other: "Bench") -> None:
        """Copy the state of a job from another bench."""
        self.flat.copy_from(other.flat)
        self.loss.copy_(other.loss)
        self._t.copy_(other._t)
        self._rate.copy_(other._rate)
        if self._addition is not None and other._addition is not None:
            self._addition.copy_(other._addition)
        for name, vector in self._state.items():
            vector.copy_(other._state[name])
        if self.executor.local.mu:
            self._start.copy_(other._start)

    def _capture(self, size: int, stream: torch.cuda.Stream, pool: Any) -> Captured:
        """Capture a local step for batches of one size."""
        task = self.executor.task
        *inputs, targets = (tensor.to(self.executor.device) for tensor in task.examples(0, slice(1)))
        example = [*task.prepare(inputs, torch.Generator().manual_seed(0)), targets]  # augmented, as in training
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
            torch.cuda.set_stream(home)  # a failed capture leaves its own stream as the current one
            _release_generator(self.executor.device)
            raise
        graph.replay()  # the first replay uploads the graph
        return Captured(graph, batch)

    def step(self, batch: Sequence[Tensor]) -> None:
        """Queue a local step on this batch on the current stream."""
        captured = self.captured[len(batch[-1])]
        for static, column in zip(captured.batch, batch):
            static.copy_(column)
        captured.graph.replay()


class Lane:
    """A stream with its bench, on which full batches are trained.

    Args:
        executor: The executor that this lane belongs to.
        bench: The bench.
    """

    def __init__(self, executor: Cuda, bench: Bench) -> None:
        self.executor, self.bench = executor, bench
        self.stream = torch.cuda.Stream(executor.device)

    @torch.no_grad()
    def run(
        self, job: Job, start: Model, home: torch.cuda.Stream, ready: torch.cuda.Event
    ) -> tuple[Update, torch.cuda.Event]:
        """Queue all steps of a job on this lane's stream, at most a few steps ahead of the GPU.

        Args:
            job: The job.
            start: The model to start from.
            home: The stream on which the update will be used.
            ready: The event after which the start model can be read.

        Returns:
            The update, and the event after which its tensors can be read.
        """
        executor, bench = self.executor, self.bench
        under_way = deque[torch.cuda.Event]()
        with torch.cuda.stream(self.stream):
            self.stream.wait_event(ready)
            examples = executor.task.sizes[job.client]
            local = executor.local.for_job(job, examples, executor.seed)
            data, epochs = epoch_rows(executor.task, local, executor.seed, job, executor.device)
            bench.begin(start, local)
            if executor.random:
                torch.cuda.manual_seed(job_seed(executor.seed, job))
            rows = send(torch.cat(epochs), executor.device)
            data = [_as_captured(column.index_select(0, rows)) for column in data]  # so that each batch is a slice
            size = executor.local.batch_size
            lengths = [min(size, len(epoch) - at) for epoch in epochs for at in range(0, len(epoch), size)]
            steps = list(zip(*(column.split(lengths) for column in data), strict=True))
            for t, batch in enumerate(steps, 1):
                bench.set_rate(local.lr * local.warmup_factor(t))
                if len(batch[-1]) in bench.captured:
                    bench.step(batch)
                else:
                    self._short_step(batch)
                under_way.append(_record(self.stream))
                if len(under_way) > _AHEAD:
                    under_way.popleft().synchronize()
            delta, buffers = bench.flat.params - start.params, bench.flat.buffers.clone()
            loss = bench.loss / len(steps)
            state = bench.final_state() if local.has_vectors else {}
            if TAKEN in start.vectors:
                state[TAKEN] = start.vectors[TAKEN]
            vectors, kept = final_vectors(local, state, delta, len(steps)) if local.has_vectors else ({}, {})
            _mark_used((start.params, start.buffers, *start.vectors.values()), self.stream)
            _mark_used((delta, buffers, loss, *vectors.values(), *kept.values()), home)
            done = _record(self.stream)
        return Update(job, delta, buffers, start.params, examples, {"loss": loss}, vectors, kept), done

    def _short_step(self, batch: Sequence[Tensor]) -> None:
        """Take a step on a borrowed bench. The model is copied there and back."""
        own, other = self.bench, self.executor.borrow()
        try:
            self.stream.wait_event(other.free)
            other.copy_from(own)
            other.step(batch)
            own.copy_from(other)
            other.free = _record(self.stream)
        finally:
            other.lock.release()


def _forward(module: nn.Module, *inputs: Tensor) -> Tensor:
    return module(*inputs)


def _as_captured(column: Tensor) -> Tensor:
    """Return a column in the memory layout of the captured steps: images have their channels last."""
    return column.contiguous(memory_format=torch.channels_last) if column.dim() == 4 else column


def _record(stream: torch.cuda.Stream) -> torch.cuda.Event:
    """Record an event on a stream."""
    event = torch.cuda.Event(blocking=True)  # a thread that waits for it does not use the CPU meanwhile
    event.record(stream)
    return event


def _release_generator(device: str) -> None:
    """Make random numbers usable that a failed capture leaves reserved for graphs: a successful one releases them."""
    with torch.cuda.graph(torch.cuda.CUDAGraph(), stream=torch.cuda.Stream(device), capture_error_mode="thread_local"):
        torch.zeros((), device=device)  # torch warns of an empty graph


def _mark_used(tensors: Sequence[Tensor], stream: torch.cuda.Stream) -> None:
    """Keep the memory of these tensors from being reused before this stream is done with it."""
    for tensor in tensors:
        if tensor.is_cuda:  # the number of local steps that a client keeps is on the host
            tensor.record_stream(stream)
