"""Simulation: play a plan through the server, training each job from its own start version."""

import time
from collections.abc import Iterator

from torch import Tensor, nn

from fadas.algorithms.algorithm import Algorithm
from fadas.core.ledger import Job, Step
from fadas.core.model import Update
from fadas.core.progress import Progress
from fadas.core.records import JobRecord, Record
from fadas.core.server import Server
from fadas.core.update_checks import Checks
from fadas.errors import Diverged
from fadas.executors import EXECUTORS, Executor
from fadas.executors.torch_settings import torch_threads
from fadas.simulation.faulty_updates import apply_faults
from fadas.simulation.planner import ARRIVED, EXPIRED, Plan, replan
from fadas.tasks.task import Task
from fadas.training.flat_module import FlatModule
from fadas.training.preflight import check_repeatable
from fadas.training.sgd import LocalSGD
from fadas.validate import whole_number


class Simulation:
    """Iterate over it to run it. `module()`, `state_dict()` and `server` are there at any time, also half-way.

    `metrics` are those of the current model, where it has been evaluated; after the last step it always has been.
    Where training diverges, the iteration raises `Diverged`.
    `stop()` ends the iteration after the update in hand. Then, and after every record, `snapshot.take` gives all that
    another simulation of the same settings needs to go on from there.
    """

    def __init__(
        self,
        plan: Plan,
        task: Task,
        algorithm: Algorithm,
        local: LocalSGD,
        executor: Executor,
        eval_every: int,
        target: float | None,
        checks: Checks | None = None,
    ) -> None:
        if len(task.clients) != plan.clients:
            raise ValueError(f"the plan is for {plan.clients} clients, the task has {len(task.clients)}")
        whole_number(eval_every=eval_every)
        if eval_every < 1:
            raise ValueError(f"eval_every must be at least 1, not {eval_every}")
        self.plan, self.task, self.executor = plan, task, executor
        self.eval_every, self.target = eval_every, target
        self._flat = FlatModule(task.module(plan.seed), executor.device)
        with torch_threads(1):  # others would only be waited for
            check_repeatable(self._flat, task, local)
        self.server = Server(algorithm, plan.ledger(), self._flat.read(), checks)
        self.progress = Progress()
        self.metrics: dict[str, float] | None = None
        self.stopped = self.complete = False
        self._submitted: set[int] = set()
        self._ready: dict[int, Update] = {}  # by job id: trained before, and kept in a snapshot
        self._left: list[Update] | None = None  # once the executor is closed
        self._begun = False

    @property
    def finished(self) -> list[Update]:
        """Updates that are trained and not yet needed, from executors that might round them differently next time."""
        return [*self._ready.values(), *self.executor.finished()] if self._left is None else self._left

    def state_dict(self) -> dict[str, Tensor]:
        """The current global model, as the task's module loads it."""
        return self._flat.state_dict(self.server.model)

    def module(self) -> nn.Module:
        """The task's module with the current global model in it."""
        self._flat.load(self.server.model)
        return self._flat.module

    def stop(self) -> None:
        self.stopped = True

    def continue_from(self, plan: Plan, progress: Progress, finished: list[Update]) -> None:
        """Go on from elsewhere; the server is there already."""
        self.plan, self.progress = plan, progress
        self._ready = {update.job.id: update for update in finished}
        self._submitted = set(self._ready)

    def __iter__(self) -> Iterator[Record]:
        if self._begun:
            raise RuntimeError(
                "a simulation is played once; another can go on from here: see fadas.simulation.snapshot"
            )
        self._begun = True
        try:
            yield from self._play()
        finally:
            self._left = self.finished  # closing the executor lets go of it
            self.executor.close()

    def _play(self) -> Iterator[Record]:
        server, progress = self.server, self.progress
        begin = time.perf_counter() - progress.wall
        self._submit(sorted(server.ledger.running.values()) if progress.position else server.start())
        while progress.position < len(self.plan.ended) and not self.stopped:
            job = self.plan.job(int(self.plan.ended[progress.position]))
            outcome = int(self.plan.outcome[job.id])
            if outcome != ARRIVED:
                reason = "expired" if outcome == EXPIRED else "dropped"
                setattr(progress, reason, getattr(progress, reason) + 1)
                self._submit(server.drop(job, reason))
                progress.position += 1
                continue
            self._submitted.discard(job.id)
            ready = self._ready.pop(job.id, None)
            update = apply_faults(ready or self.executor.collect(job), self.plan)
            del ready
            with torch_threads(1):  # as beside worker processes: the number of threads rounds long sums
                jobs, step, refused = server.receive(update)
            if refused:
                self._refused(jobs)
                continue
            progress.losses.append(update.metrics["loss"])
            del update  # it would keep its start version alive while this generator sleeps
            self._submit(jobs)
            progress.updates += 1
            progress.since = 0
            progress.position += 1
            if not step:
                continue
            record = self._record(step, begin)
            reached = (record.metrics or {}).get("accuracy", 0.0)
            self.complete = self.target is not None and reached >= self.target
            yield record
            if self.complete:
                return
        self.complete = progress.position >= len(self.plan.ended)
        if self.complete and progress.since > 2 * self.plan.schedule.concurrency:  # no mishap of single clients
            raise Diverged(f"{self.server.none_accepted(self.progress.since)} when its time was over")
        if self.complete and self.metrics is None:  # a refusal has made this step the last one after its record
            self.metrics = self.executor.evaluate(server.model)

    def _record(self, step: Step, begin: float) -> Record:
        plan, done = self.plan, step.index + 1
        evaluated = done % self.eval_every == 0 or done == plan.steps
        self.metrics = self.executor.evaluate(self.server.model) if evaluated else None
        losses = self.progress.losses
        loss = float(sum(losses) / len(losses))  # the first to wait for a device that is still computing
        losses.clear()
        self.progress.wall = time.perf_counter() - begin
        return Record(
            step=done,
            time=float(plan.time[step.index]),
            wall=self.progress.wall,
            updates=self.progress.updates,
            eta=float(self.server.algorithm.step_size(step.delays)),
            jobs=tuple(
                JobRecord(job.id, job.client, tau, float(plan.start[job.id]), float(plan.end[job.id]))
                for job, tau in zip(step.jobs, step.delays, strict=True)
            ),
            train_loss=loss,
            dropped=self.progress.dropped,
            expired=self.progress.expired,
            refused=dict(self.server.refused),
            privacy=self.server.privacy,
            metrics=self.metrics,
        )

    def _refused(self, jobs: list[Job]) -> None:
        """An update did not pass: the future is planned anew from here. What is trained already keeps its result."""
        self.progress.since += 1
        if self.progress.since > self.plan.schedule.patience:
            raise Diverged(self.server.none_accepted(self.progress.since))
        try:
            self.plan = replan(self.plan, self.progress.position, self.server.ledger, jobs)
        except ValueError as error:  # the time limit is too near for a step without this update
            raise Diverged(f"{self.server.none_accepted(self.progress.since)}, and {error}") from None
        self.progress.refusals.append(self.progress.position)
        self.progress.position += 1
        self._submit(sorted(self.server.ledger.running.values()))  # some that no step would have needed are needed now

    def _submit(self, jobs: list[Job]) -> None:
        for job in jobs:
            assert job == self.plan.job(job.id), "the server and the plan disagree"
            if self.plan.needed[job.id] and job.id not in self._submitted:
                self._submitted.add(job.id)
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
    checks: Checks | None = None,
) -> Simulation:
    """Train `task` along `plan`: an iterable of one `Record` per server step.

    `device` is for an executor that is given by name. `target` ends the run at the first evaluation that reaches this
    accuracy. `checks` are those of the server.
    """
    if isinstance(executor, str):
        if executor not in EXECUTORS:
            raise ValueError(f"unknown executor {executor!r}; there are {', '.join(EXECUTORS)}")
        executor = EXECUTORS[executor](task, local, plan.seed, device)
    return Simulation(plan, task, algorithm, local, executor, eval_every, target, checks)
