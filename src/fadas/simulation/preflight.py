"""Checks before a run. Everything that can be checked without training is checked here, in one place.

The checks of single parts live with them: `training.preflight` for the client's side, `core.trial_step` for the
server's, `Executor.preflight` for what an executor cannot train.
"""

import warnings
from dataclasses import replace

from fadas.algorithms.algorithm import Algorithm
from fadas.algorithms.step_sizes import DelayAdaptive
from fadas.core.interval import Interval
from fadas.core.ledger import Job
from fadas.core.metrics import Metric, choose_metric
from fadas.core.model import Update
from fadas.core.trial_step import innermost_step_size, trial_step
from fadas.errors import ConfigError, FadasWarning, first_line, place_of
from fadas.executors.torch_settings import torch_threads
from fadas.runs.checkpoint import require_storable
from fadas.simulation.baselines import check_baseline
from fadas.simulation.planner import Plan
from fadas.tasks.subsets import split_rows
from fadas.tasks.task import Task
from fadas.training.flat_module import FlatModule
from fadas.training.job_state import start_of_job
from fadas.training.one_job import train_job
from fadas.training.preflight import check_local_training
from fadas.training.sgd import LocalSGD


def check_run(
    plan: Plan,
    task: Task,
    algorithm: Algorithm,
    local: LocalSGD,
    device: str,
    target: float | None,
    metric: Metric,
    label: str = "",
) -> int:
    """Refuse what would fail within a run, or would not be repeatable. Warnings name the algorithm by its label.

    Returns:
        How many bytes each client keeps between its jobs.

    Raises:
        ConfigError: The message says what does not fit.
    """
    if len(task.clients) != plan.clients:
        raise ConfigError(f"the plan is for {plan.clients} clients, the task has {len(task.clients)}")
    check_baseline(algorithm, plan)
    choose_metric(task.measured, metric.name, metric.better)
    if target is not None:
        metric.require_target(target)
        if task.test is None:
            raise ConfigError(f"target = {target:g} is never reached: the task has no test data")
    try:
        flat = FlatModule(task.module(plan.seed), device)
    except ConfigError:
        raise
    except Exception as error:  # the module is the user's own
        raise ConfigError(f"cannot be trained: {type(error).__name__}: {first_line(error)}") from error
    local = algorithm.local_training(local)
    with torch_threads(1):  # more threads would only wait for each other
        check_local_training(flat, task, local, plan.seed)
        update = _try_one_step(flat, plan, task, algorithm, local)
    warn_of_idle_cap(plan, algorithm, label)
    return sum(vector.nbytes for vector in update.kept.values())


def clients_interval(task: Task, value: int | str | Interval | None) -> Interval | None:
    """Return the interval between evaluations of clients. None: clients are not evaluated.

    Raises:
        ConfigError: The task has no test data of clients.
    """
    if value is None:
        return None
    if task.client_test is None:
        needs = "clients_eval_every needs test data of each client's own, and the task has none"
        raise ConfigError(f"{needs}. Set task.client_test = 0.2, or give fadas.Task the argument client_test")
    return Interval.parse(value, "clients_eval_every")


def _try_one_step(flat: FlatModule, plan: Plan, task: Task, algorithm: Algorithm, local: LocalSGD) -> Update:
    """Take one local step, one server step and one evaluation, on a little data. Return the client's update."""
    jobs = [Job(k, k % plan.clients, 0) for k in range(plan.schedule.buffer)]
    few = None if task.test is None else next(iter(split_rows(task.test, 2)))
    doing = "trained"
    try:
        start = flat.read()
        sent = replace(start, vectors=algorithm.exchange.sent(start, {}))
        update = train_job(flat, task, replace(local, steps=1), plan.seed, jobs[0], start_of_job(sent, {}))
        after = trial_step(algorithm, start, [replace(update, job=job) for job in jobs], plan.clients)
        require_storable(after.slots)
        doing = "evaluated"
        flat.load(after.model)
        replace(task, test=few).evaluate(flat.module)
        return update
    except ConfigError:
        raise
    except Exception as error:  # module, loss, metrics and the algorithm's parts may be the user's own
        text = first_line(error) if str(error) else "no reason given"
        raise ConfigError(f"cannot be {doing}: {type(error).__name__}: {text}{place_of(error)}") from error


def warn_of_idle_cap(plan: Plan, algorithm: Algorithm, label: str = "") -> None:
    """Warn if the delay-adaptive step size min(eta, 1 / tau_max) never acts in this plan."""
    part = innermost_step_size(algorithm.step_size)
    if not isinstance(part, DelayAdaptive) or part.form != "capped":
        return
    tau_max = int(plan.tau.max())
    if part.eta * tau_max <= 1:
        warnings.warn(
            f'{f"{label}, " if label else ""}seed {plan.seed}: the step size\'s form "capped", min(eta, 1 / tau_max), '
            f"never acts: eta = {part.eta:g}, and the largest delay of the plan is {tau_max}. It acts where "
            'eta > 1 / tau_max; the form "scaled" always does',
            FadasWarning,
            stacklevel=2,
        )
