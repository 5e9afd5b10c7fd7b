"""Simulation: play a plan through the server, training each job from its own start version."""

import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from torch import Tensor, nn

from fadas.algorithms import Algorithm
from fadas.client import LocalSGD, check
from fadas.executors import EXECUTORS, Executor
from fadas.ledger import Job
from fadas.model import FlatModule
from fadas.planner import ARRIVED, DROPPED, EXPIRED, Plan
from fadas.server import Server
from fadas.task import Task


@dataclass(frozen=True)
class JobRecord:
    """A job that reached a server step: who trained when, and how stale the result was."""

    id: int
    client: int
    tau: int
    start: float
    end: float


@dataclass(frozen=True)
class Record:
    """One server step: a line of metrics.jsonl."""

    step: int  # the version that the step produced: 1 after the first
    time: float  # virtual
    wall: float  # seconds since the simulation began
    updates: int  # client updates so far
    eta: float
    jobs: tuple[JobRecord, ...]
    train_loss: float
    dropped: int  # jobs so far that ended without an update, by reason
    expired: int
    metrics: dict[str, float] | None = None  # on the test data, when evaluated

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


class Simulation:
    """Iterate over it to run it. `module()`, `state_dict()` and `server` are there at any time, also half-way."""

    def __init__(
        self,
        plan: Plan,
        task: Task,
        algorithm: Algorithm,
        local: LocalSGD,
        executor: Executor,
        device: str,
        eval_every: int,
        target: float | None,
    ) -> None:
        if len(task.clients) != plan.clients:
            raise ValueError(f"the plan is for {plan.clients} clients, the task has {len(task.clients)}")
        if eval_every < 1:
            raise ValueError(f"eval_every must be at least 1, not {eval_every}")
        self.plan, self.task, self.executor = plan, task, executor
        self.eval_every, self.target = eval_every, target
        self._flat = FlatModule(task.module(plan.seed), device)
        check(self._flat, task, local)
        self.server = Server(algorithm, plan.ledger(), self._flat.read())

    def state_dict(self) -> dict[str, Tensor]:
        """The current global model, as the task's module loads it."""
        return self._flat.state_dict(self.server.model)

    def module(self) -> nn.Module:
        """The task's module with the current global model in it."""
        self._flat.load(self.server.model)
        return self._flat.module

    def __iter__(self) -> Iterator[Record]:
        try:
            yield from self._play()
        finally:
            self.executor.close()

    def _play(self) -> Iterator[Record]:
        plan, server = self.plan, self.server
        begin = time.perf_counter()
        updates, losses = 0, list[float | Tensor]()
        ends = {DROPPED: 0, EXPIRED: 0}
        self._submit(server.start())
        for id in plan.ended.tolist():
            outcome = int(plan.outcome[id])
            if outcome != ARRIVED:
                ends[outcome] += 1
                self._submit(server.drop(plan.job(id)))
                continue
            update = self.executor.collect(plan.job(id))
            jobs, step = server.receive(update)
            losses.append(update.metrics["loss"])
            del update  # it would keep its start version alive while this generator sleeps
            self._submit(jobs)
            updates += 1
            if not step:
                continue
            done = step.index + 1
            metrics = None
            if done % self.eval_every == 0 or done == plan.steps:
                metrics = self.executor.evaluate(server.model)
            yield Record(
                step=done,
                time=float(plan.time[step.index]),
                wall=time.perf_counter() - begin,
                updates=updates,
                eta=server.algorithm.step_size(step.delays),
                jobs=tuple(
                    JobRecord(job.id, job.client, tau, float(plan.start[job.id]), float(plan.end[job.id]))
                    for job, tau in zip(step.jobs, step.delays, strict=True)
                ),
                train_loss=float(
                    sum(losses) / len(losses)
                ),  # the first to wait for a device that computes in the background
                dropped=ends[DROPPED],
                expired=ends[EXPIRED],
                metrics=metrics,
            )
            losses.clear()
            if self.target is not None and metrics and metrics.get("accuracy", 0.0) >= self.target:
                return

    def _submit(self, jobs: list[Job]) -> None:
        for job in jobs:
            assert job == self.plan.job(job.id), "the server and the plan disagree"
            if self.plan.needed[job.id]:
                self.executor.submit(job, self.server.base[job.id], int(self.plan.due[job.id]))


def simulate(
    plan: Plan,
    task: Task,
    algorithm: Algorithm,
    local: LocalSGD,
    *,
    executor: str | Executor = "auto",
    device: str = "cpu",
    eval_every: int = 1,
    target: float | None = None,
) -> Simulation:
    """Train `task` along `plan`: an iterable of one `Record` per server step.

    `target` ends the run at the first evaluation that reaches this accuracy.
    """
    if isinstance(executor, str):
        if executor not in EXECUTORS:
            raise ValueError(f"unknown executor {executor!r}; there are {', '.join(EXECUTORS)}")
        executor = EXECUTORS[executor](task, local, plan.seed, device)
    return Simulation(plan, task, algorithm, local, executor, device, eval_every, target)
