"""Simulation: play a plan through the server, training each job from its own start version."""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from torch import Tensor, nn

from fadas.algorithms.algorithm import Algorithm
from fadas.core.interval import Interval, Position
from fadas.core.ledger import Job
from fadas.core.metrics import Metric, choose_metric
from fadas.core.model import Update, Vectors
from fadas.core.progress import Progress, Span, mean_loss
from fadas.core.records import Record, initial_record
from fadas.core.server import TOO_EARLY, Received, Server
from fadas.core.update_checks import Checks, all_finite
from fadas.errors import ConfigError, Diverged, Unsuitable, unknown_name
from fadas.executors import DEFAULT, EXECUTORS, Executor, fallbacks
from fadas.executors.base import executor_traits
from fadas.executors.torch_settings import torch_threads
from fadas.simulation.baselines import OwnModels, task_of
from fadas.simulation.faulty_updates import apply_faults
from fadas.simulation.planner import ARRIVED, EXPIRED, Plan, replan
from fadas.simulation.preflight import check_run, clients_interval
from fadas.tasks.task import Task
from fadas.training.flat_module import FlatModule
from fadas.training.job_state import start_of_job
from fadas.training.sgd import LocalSGD


@dataclass
class SimulationProgress(Progress):
    """The position in a run. With the plan, the models and the optimizer's memory it determines the rest."""

    position: int = 0  # in the plan's endings
    wall: float = 0.0  # seconds of computing
    refusals: list[int] = field(default_factory=list[int])  # positions of refused updates
    retractions: dict[int, list[int]] = field(default_factory=dict[int, list[int]])  # positions -> earlier jobs refused
    since: int = 0  # updates refused since the last accepted one
    recorded: int = 0  # updates at the last record


class Simulation:
    """A run in virtual time. Iterate over it to train: it yields one `Record` per server step.

    Make one with `simulate`, which checks before the run what could go wrong.

    - `server`, `module()` and `state_dict()` can be used at any time.
    - `kept_bytes` is the memory that each client needs between its jobs, for `local.keep` or control variates.
    - `initial` is the record of the initial model: step 0, with its metrics. None: the task measures nothing.
    - `metrics` are those of the current model, if it was evaluated. The last model always is.
    - `clients_metrics` are those of the current model on each client's own test data: one value per client for each
      name. None: clients were not evaluated. With `clients_eval_every` the last model always is.
    - `metric` is what the run is judged by.
    - `stop()` ends the iteration after the current update. After that, and after every record, `fadas.snapshot.take`
      returns what another simulation needs to continue.

    Args:
        plan: The timeline.
        task: Model, data and loss.
        algorithm: What the server does with updates.
        local: What a client does with a job.
        executor: Where jobs are trained.
        eval_every: The interval between evaluations: a number of server steps, or a text such as "50 updates".
        target: End the run at the first evaluation in which the metric reaches this value.
        checks: The checks that an update must pass. None: the default checks.
        metric: What the run is judged by. None: the accuracy if it is measured.
        clients_eval_every: The interval between evaluations on each client's own test data. None: there are none.

    Raises:
        Diverged: While iterating, if training diverges.

    Example:
        >>> simulation = fadas.simulate(plan, task, fadas.FADAS(), fadas.LocalSGD())
        >>> for record in simulation:
        ...     print(record.step, record.metrics)
    """

    def __init__(
        self,
        plan: Plan,
        task: Task,
        algorithm: Algorithm,
        local: LocalSGD,
        executor: Executor,
        eval_every: int | str | Interval,
        target: float | None,
        checks: Checks | None = None,
        metric: Metric | None = None,
        clients_eval_every: Interval | None = None,
    ) -> None:
        self.plan, self.task, self.executor = plan, task, executor
        self.eval_every, self.target = Interval.parse(eval_every), target
        self.clients_eval_every = clients_eval_every
        self.metric = metric or choose_metric(task.measured)
        self._flat = FlatModule(task.module(plan.seed), executor.device)
        self.server = Server(algorithm, plan.ledger(), self._flat.read(), checks)
        self.progress = SimulationProgress()
        self.metrics: dict[str, float] | None = None
        self.clients_metrics: dict[str, list[float]] | None = None
        self.stopped = self.complete = False
        self.own = OwnModels(self.server.model, plan.clients) if algorithm.baseline == "local-only" else None
        self.kept: dict[int, Vectors] = {}  # by client: what it keeps until its next job
        self.kept_bytes = 0
        self._submitted: set[int] = set()
        self._ready: dict[int, Update] = {}  # by job id: trained earlier, and kept in a snapshot
        self._left: list[Update] | None = None  # set when the executor is closed
        self._begun = False
        self.recorder: Callable[[Simulation], Iterator[Record]] | None = None  # keeps the run in a folder

    @cached_property
    def initial(self) -> Record | None:
        """The record of the initial model. The first access, which must come before the run, evaluates it."""
        assert not self._begun
        metrics = self._evaluate()
        return initial_record(metrics) if metrics else None

    @property
    def finished(self) -> list[Update]:
        """Trained updates that are not needed yet, if the executor might round them differently the next time."""
        return [*self._ready.values(), *self.executor.finished()] if self._left is None else self._left

    def state_dict(self) -> dict[str, Tensor]:
        """Return the current global model, as the task's module loads it."""
        return self._flat.state_dict(self.server.model)

    def module(self) -> nn.Module:
        """Return the task's module with the current global model."""
        self._flat.load(self.server.model)
        return self._flat.module

    def stop(self) -> None:
        """End the iteration after the current update."""
        self.stopped = True

    def continue_from(self, plan: Plan, progress: SimulationProgress, finished: list[Update]) -> None:
        """Continue from a snapshot. The server is restored already."""
        self.plan, self.progress = plan, progress
        self._ready = {update.job.id: update for update in finished}
        self._submitted = set(self._ready)

    def use_model(self, state_dict: Mapping[str, Tensor]) -> None:
        """Replace the current global model by one from disk."""
        self._flat.module.load_state_dict(dict(state_dict))
        self.server.state = replace(self.server.state, model=self._flat.read())

    def __iter__(self) -> Iterator[Record]:
        return self.recorder(self) if self.recorder else self.records()

    def records(self) -> Iterator[Record]:
        """Train, and yield one record for each server step. Nothing is written."""
        if self._begun:
            raise RuntimeError("a simulation can be iterated once; to continue elsewhere, see fadas.snapshot")
        self._begun = True
        try:
            yield from self._play()
        finally:
            self._left = self.finished  # closing the executor forgets these updates
            self.executor.close()

    def _play(self) -> Iterator[Record]:
        server, progress = self.server, self.progress
        begin = time.perf_counter() - progress.wall
        running = sorted(server.ledger.running.values())
        self._submit(running if running or progress.position else server.start())  # a snapshot's jobs have started
        while progress.position < len(self.plan.ended) and not self.stopped:
            job = self.plan.job(int(self.plan.ended[progress.position]))
            if self.plan.outcome[job.id] != ARRIVED:
                self._drop(job)
                continue
            update = self._collect(job)
            with torch_threads(1):  # as in worker processes: the number of threads changes the rounding of long sums
                received = server.receive(update)
            if self.own and received.refused is None:
                self.own.keep(update)
            del update  # it would keep its start version alive while this generator sleeps
            progress.removed += len(received.removed)
            if received.refused is None:
                progress.accept()
                progress.since = 0
            if received.refused or received.retracted:
                self._replan(received)
            self._submit(received.jobs)
            progress.position += 1
            if received.step:
                record = self._record(received, begin)
                del received
                yield record
                if self.complete:
                    self._evaluate_clients_last()
                    return
        self._end()

    def _drop(self, job: Job) -> None:
        """A job ends without an update."""
        reason = "expired" if self.plan.outcome[job.id] == EXPIRED else "dropped"
        self.progress.end_job(reason)
        self._submit(self.server.drop(job, reason))
        self.progress.position += 1

    def _collect(self, job: Job) -> Update:
        self._submitted.discard(job.id)
        update = self._ready.pop(job.id, None) or self.executor.collect(job)
        if update.kept and all(all_finite(vector) for vector in update.kept.values()):
            self.kept[job.client] = update.kept  # also if the update is refused: the client does not know yet
        return apply_faults(update, self.plan)

    def _record(self, received: Received, begin: float) -> Record:
        step, eta, progress = received.step, received.eta, self.progress
        assert step is not None
        assert eta is not None
        updates = progress.updates - progress.removed
        before = Position(step.index, progress.recorded, float(self.plan.time[step.index - 1]) if step.index else 0.0)
        now = Position(step.index + 1, updates, float(self.plan.time[step.index]))
        progress.recorded = updates
        evaluated = self.eval_every.is_due(before, now) or now.step == self.plan.steps
        self.metrics = self._evaluate() if evaluated else None
        self.clients_metrics = None
        if (every := self.clients_eval_every) and (every.is_due(before, now) or now.step == self.plan.steps):
            self.clients_metrics = self._evaluate_clients()
        loss = mean_loss(received.updates)  # before the clock is read: it waits for the device
        self.progress.wall = time.perf_counter() - begin
        value = self.metric.value(self.metrics)
        self.complete = self.target is not None and value is not None and self.metric.reaches(value, self.target)
        wall, metrics = progress.wall, self.metrics
        return progress.record(
            self.server, step, eta, self._span, time=now.time, wall=wall, train_loss=loss, metrics=metrics
        )

    def _span(self, job: Job) -> Span:
        return float(self.plan.start[job.id]), float(self.plan.end[job.id])

    def _end(self) -> None:
        """The plan is played to its end, or the run was stopped."""
        self.complete = self.progress.position >= len(self.plan.ended)
        if not self.complete:
            return
        if self.progress.since > 2 * self.plan.schedule.concurrency:  # more than an accident of single clients
            error = self.server.gave_up(self.progress.since)
            raise type(error)(f"{error} when its time was over")
        if self.metrics is None:  # an update refused after this record made it the last
            self.metrics = self._evaluate()
        self._evaluate_clients_last()

    def _evaluate_clients_last(self) -> None:
        """Evaluate the last model on each client's own test data, if that was not due anyway."""
        if self.clients_eval_every and self.clients_metrics is None:
            self.clients_metrics = self._evaluate_clients()

    def _evaluate(self) -> dict[str, float]:
        """Evaluate the current model. Clients that train alone: the mean over their models."""
        evaluate = self.executor.evaluate
        return self.own.evaluate(evaluate) if self.own else evaluate(self.server.model)

    def _evaluate_clients(self) -> dict[str, list[float]]:
        """Evaluate the current model, or that of each client alone, on each client's own test data."""
        evaluate = self.executor.evaluate_clients
        return self.own.evaluate_clients(evaluate) if self.own else evaluate(self.server.model)

    def _replan(self, received: Received) -> None:
        """Updates were refused: plan the future again from here. What is trained already keeps its result."""
        progress, ledger = self.progress, self.server.ledger
        refused = [job.id for job in received.retracted]
        if refused:
            progress.retractions[progress.position] = refused
        if received.refused:
            progress.refusals.append(progress.position)
            refused = [*refused, int(self.plan.ended[progress.position])]
            progress.since += received.refused != TOO_EARLY
        if progress.since > self.plan.schedule.patience:
            raise self.server.gave_up(progress.since)
        try:
            self.plan = replan(self.plan, progress.position, ledger, received.jobs, refused, received.step)
        except ValueError as error:  # the time limit is too near for a step without these updates
            raise Diverged(f"{self.server.gave_up(progress.since)}, and {error}") from None
        self._submit(sorted(ledger.running.values()))  # more jobs may be needed now

    def _submit(self, jobs: list[Job]) -> None:
        for job in jobs:
            assert job == self.plan.job(job.id), "the server and the plan disagree"
            if self.plan.needed[job.id] and job.id not in self._submitted:
                self._submitted.add(job.id)
                base = self.own[job.client] if self.own else self.server.base[job.id]
                start = start_of_job(base, self.kept.get(job.client, {}))
                self.executor.submit(job, start, int(self.plan.due[job.id]))


def simulate(
    plan: Plan,
    task: Task,
    algorithm: Algorithm,
    local: LocalSGD,
    *,
    executor: str | Executor = DEFAULT,
    device: str = "cpu",
    eval_every: int | str = 1,
    clients_eval_every: int | str | None = None,
    target: float | None = None,
    metric: str | Metric | None = None,
    checks: Checks | None = None,
) -> Simulation:
    """Return a simulation that trains a task along a plan.

    One local step, one server step and one evaluation are tried first, so that errors come before the run.

    Args:
        plan: The timeline, from `fadas.plan`.
        task: Model, data and loss.
        algorithm: What the server does with updates.
        local: What a client does with a job.
        executor: Where jobs are trained: a name from `fadas list`, or an executor.
        device: Where an executor that is given by name trains.
        eval_every: The interval between evaluations: a number of server steps, or a text such as "50 updates" or
            "2.5 time".
        clients_eval_every: The interval between evaluations on each client's own test data, `Task.client_test`. The
            last model is evaluated in any case. None: clients are not evaluated.
        target: End the run at the first evaluation in which the metric reaches this value.
        metric: What the run is judged by: the name of one of the task's metrics, or for names of your own
            `fadas.Metric("score", better="higher")`. None: the accuracy if it is measured, else the first metric.
        checks: The checks that an update must pass. None: the default checks.

    Returns:
        The simulation. Iterate over it to train.

    Raises:
        ConfigError: The parts do not fit together, or the result would not be repeatable.

    Example:
        >>> plan = fadas.plan(fadas.Schedule(concurrency=8, buffer=4), clients=20, updates=400)
        >>> for record in fadas.simulate(plan, task, fadas.FADAS(), fadas.LocalSGD()):
        ...     print(record.step, record.metrics)
    """
    if algorithm.is_timeless and isinstance(executor, Executor):
        raise ConfigError("centralised pools the clients' data: give the executor by name")
    task = task_of(algorithm, task, plan.seed)
    judged_by = metric if isinstance(metric, Metric) else choose_metric(task.measured, metric)
    if isinstance(executor, Executor):
        given = executor

        def use(own: LocalSGD) -> Executor:
            if getattr(given, "local", local) != own:  # it may have trained for another algorithm
                given.use(own)
            return given

        return prepare(
            plan,
            task,
            algorithm,
            local,
            use,
            executor.device,
            eval_every,
            target,
            checks,
            judged_by,
            clients_eval_every=clients_eval_every,
        )
    if executor not in EXECUTORS:
        raise unknown_name("executor", executor, EXECUTORS)
    make = EXECUTORS[executor]
    place = executor_traits(make).server_device(device)

    def make_executor(own: LocalSGD) -> Executor:
        return make(task, own, plan.seed, device)

    return prepare(
        plan,
        task,
        algorithm,
        local,
        make_executor,
        place,
        eval_every,
        target,
        checks,
        judged_by,
        clients_eval_every=clients_eval_every,
    )


def prepare(
    plan: Plan,
    task: Task,
    algorithm: Algorithm,
    local: LocalSGD,
    make_executor: Callable[[LocalSGD], Executor],
    device: str,
    eval_every: int | str | Interval = 1,
    target: float | None = None,
    checks: Checks | None = None,
    metric: Metric | None = None,
    label: str = "",
    clients_eval_every: int | str | Interval | None = None,
) -> Simulation:
    """Check a run, make its executor and return its simulation. `device` is where the server's models are.

    The executor gets local training as the algorithm does it.
    """
    metric = metric or choose_metric(task.measured)
    interval = clients_interval(task, clients_eval_every)
    kept = check_run(plan, task, algorithm, local, device, target, metric, label)
    executor = make_executor(algorithm.local_training(local))
    try:
        executor.preflight()
        if interval:
            executor.require_evaluates_clients()
    except Unsuitable as error:
        raise Unsuitable(f"{error}; use another executor: {' or '.join(fallbacks())}") from error
    simulation = Simulation(plan, task, algorithm, local, executor, eval_every, target, checks, metric, interval)
    simulation.kept_bytes = kept
    return simulation
