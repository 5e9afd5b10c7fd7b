"""From a run's settings to its task, plan and simulation."""

import math
import warnings
from collections.abc import Sequence

import torch

from fadas.core.interval import Interval, Position
from fadas.core.metrics import Metric, choose_metric, usual_direction
from fadas.errors import ConfigError, FadasWarning, first_line
from fadas.executors.base import Executor
from fadas.executors.torch_settings import torch_threads
from fadas.experiments.settings import RunConfig, RunSettings
from fadas.runs.serialization import to_json
from fadas.simulation.baselines import plan_for, task_of
from fadas.simulation.planner import Plan, plan
from fadas.simulation.simulator import Simulation, prepare
from fadas.tasks import TASKS
from fadas.tasks.metrics import choose_metrics
from fadas.tasks.task import Task, set_weights
from fadas.training.sgd import LocalSGD
from fadas.validate import MOST_UPDATES, InvalidValue


def make_task(config: RunConfig) -> Task:
    """Return the run's task, with its data loaded.

    Args:
        config: The run's settings, from `resolve`.

    Raises:
        ConfigError: The task's settings or data are wrong.
    """
    name = config.tables["task"]["name"]
    try:
        task = config.make_task()
    except (OSError, ValueError) as error:
        raise ConfigError(f"task: {error}") from error
    except Exception as error:
        if name in TASKS:
            raise  # our own fault, not that of the user's code
        raise ConfigError(f"task: {type(error).__name__}: {error}".splitlines()[0]) from error
    if not isinstance(task, Task):
        raise ConfigError(f"task: {name} makes a {type(task).__name__}, not a Task")
    if len(task.clients) != config.clients:
        raise ConfigError(f"task.clients is {config.clients}, but the task has {len(task.clients)} clients")
    if config.task_metrics:
        task.metrics = choose_metrics(config.task_metrics)
    if config.weights:
        set_weights(task, config.weights, config.seed, "task.weights")
    return task


def shared_task(config: RunConfig, tasks: dict[str, Task]) -> Task:
    """Return the run's task, or the one in `tasks` if it is the same. All methods of a seed share the data."""
    key = to_json([config.seed, config.tables["task"]])
    if key not in tasks:
        tasks.clear()  # data may be large
        tasks[key] = make_task(config)
    return tasks[key]


def make_plan(config: RunConfig, task: Task | None = None) -> Plan:
    """Return the run's plan.

    Args:
        config: The run's settings, from `resolve`.
        task: The run's task, for delays that scale with the data. None: it is made if it is needed.

    Raises:
        ConfigError: No plan is possible with these settings.
    """
    sizes = (task or make_task(config)).sizes if config.delays.scale_by_data else None
    limits = {"steps": config.run.steps, "updates": config.run.updates, "time": config.run.time}
    one = config.algorithm
    try:
        if not one.is_timeless:
            _check_time(config, sizes)
        return plan_for(one, config.schedule, config.clients, config.delays, **limits, seed=config.seed, sizes=sizes)
    except ValueError as error:
        raise ConfigError(f"algorithms.{config.label}: {error}") from None
    except ArithmeticError:
        raise ConfigError("delays: these parameters give infinite durations") from None


def _check_time(config: RunConfig, sizes: Sequence[int] | None) -> None:
    """Refuse a time limit that lets in far too many updates, before planning them takes all the memory.

    The number is estimated from the first updates. Only an estimate beyond all doubt is refused: delays may change.
    """
    if config.run.time is None or config.run.steps is not None or config.run.updates is not None:
        return
    few = {"updates": max(1000, config.schedule.buffer), "time": config.run.time}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FadasWarning)  # the whole plan repeats them
        first = plan(config.schedule, config.clients, config.delays, **few, seed=config.seed, sizes=sizes)
    updates = first.arrivals.size * config.run.time / float(first.time[-1])
    if updates > 100 * MOST_UPDATES.most:
        raise ValueError(
            f"run.time ({config.run.time:g}) leaves time for about {updates:.0e} updates; a plan holds at most "
            f"{MOST_UPDATES}. Set run.updates too"
        )


def make_simulation(config: RunConfig, task: Task, timeline: Plan) -> Simulation:
    """Return the run's simulation, checked and ready to train.

    Args:
        config: The run's settings, from `resolve`.
        task: The run's task, from `make_task`.
        timeline: The run's plan, from `make_plan`.

    Raises:
        ConfigError: A mistake that can be found before the run.

    Example:
        >>> config = resolve(read_experiment(Path("experiment.toml")), "fadas", seed=0)
        >>> task = make_task(config)
        >>> for record in make_simulation(config, task, make_plan(config, task)):
        ...     print(record.step, record.metrics)
    """
    task = task_of(config.algorithm, task, config.seed)
    metric = metric_of(config, task)
    check_device(config)

    def make_executor(local: LocalSGD) -> Executor:
        with torch_threads(config.threads or torch.get_num_threads()):  # some executors have as many workers
            return config.make_executor(task, local, config.seed)

    try:
        return prepare(
            timeline,
            task,
            config.algorithm,
            config.local,
            make_executor,
            config.device,
            eval_every=config.run.interval,
            target=config.run.target if config.run.stop_at_target else None,
            metric=metric,
            checks=config.checks,
            label=config.label,
            clients_eval_every=config.run.clients_eval_every,
        )
    except ConfigError as error:
        raise ConfigError(f"algorithms.{config.label}: {error}") from error
    except (ValueError, RuntimeError, AssertionError) as error:  # torch's ways to refuse a device
        raise ConfigError(f"executor: {first_line(error)}") from None


def metric_of(config: RunConfig, task: Task) -> Metric:
    """Return the metric that a run is judged by.

    Args:
        config: The run's settings.
        task: The run's task.

    Raises:
        ConfigError: The task does not measure it, or the target does not go with it.
    """
    run = config.run
    require_test_data(run, task)
    metric = choose_metric(task.measured, run.metric, run.better, run.format)
    if (usual := usual_direction(metric.name)) and usual != metric.better:
        text = (
            f'run.better = "{metric.better}", but usually {metric.name} is better if it is {usual}; remove run.better'
        )
        warnings.warn(text, FadasWarning, stacklevel=2)
    if run.target is not None:
        try:
            metric.require_target(run.target)
        except InvalidValue as error:
            raise ConfigError(f"run.{error}") from None
    return metric


def require_test_data(run: RunSettings, task: Task) -> None:
    """Raise a ConfigError if a setting needs evaluations, and the task has no test data."""
    if task.test is not None:
        return
    if run.target is not None:
        raise ConfigError(f"run.target = {run.target:g} is never reached: the task has no test data")
    if run.patience is not None:
        raise ConfigError(f"run.patience = {run.patience} never ends a run: the task has no test data")
    if run.keep == "best":
        raise ConfigError('run.keep = "best" keeps no model: the task has no test data')


def count_evaluations(interval: Interval, timeline: Plan, share: float = 1.0) -> int:
    """Return how many evaluations a plan has, or the first part of it. Those of the first and last model do not count.

    Args:
        interval: The interval between evaluations.
        timeline: The plan.
        share: How much of the plan's steps to count.
    """
    step = math.ceil(share * timeline.steps)
    end = Position(step, step * timeline.schedule.buffer, float(timeline.time[step - 1]))
    return min(step, interval.count(end))


def check_device(config: RunConfig) -> None:
    """Raise a ConfigError if torch cannot use the run's device."""
    try:
        torch.zeros(1, device=config.device).item()
    except Exception as error:  # torch has many ways to refuse a device
        raise ConfigError(f"executor.device: {config.device!r} cannot be used: {first_line(error)}") from None
