"""From a run's settings to its task, plan and simulation."""

from collections.abc import Callable

import torch

from fadas.core.records import Record
from fadas.errors import ConfigError
from fadas.executors.torch_settings import torch_threads
from fadas.experiments.settings import RunConfig
from fadas.runs.serialization import to_json
from fadas.simulation.planner import Plan, plan
from fadas.simulation.preflight import rehearse
from fadas.simulation.simulator import Simulation, simulate
from fadas.tasks import TASKS
from fadas.tasks.task import Task

OnRecord = Callable[[Record], None]


def make_task(config: RunConfig) -> Task:
    """The run's task. A mistake in its settings or data is a ConfigError."""
    try:
        task = config.task()
    except (OSError, ValueError) as error:
        raise ConfigError(f"task: {error}") from error
    except Exception as error:
        if config.tables["task"]["name"] in TASKS:
            raise  # a fault of ours, not of the user's code
        raise ConfigError(f"task: {type(error).__name__}: {error}".splitlines()[0]) from error
    if not isinstance(task, Task):
        raise ConfigError(f"task: {config.tables['task']['name']} makes a {type(task).__name__}, not a Task")
    if len(task.clients) != config.clients:
        raise ConfigError(f"task.clients is {config.clients}, but the task has {len(task.clients)} clients")
    return task


def shared_task(config: RunConfig, tasks: dict[str, Task]) -> Task:
    """The run's task, or the one in `tasks` if it is the same: all methods of an experiment and seed share the data."""
    key = to_json([config.seed, config.tables["task"]])
    if key not in tasks:
        tasks.clear()  # data may be large
        tasks[key] = make_task(config)
    return tasks[key]


def make_plan(config: RunConfig, task: Task | None = None) -> Plan:
    """The run's plan. Only delays that scale with the data need the task."""
    sizes = (task or make_task(config)).sizes if config.delays.scale_by_data else None
    limits = {"steps": config.run.steps, "updates": config.run.updates, "time": config.run.time}
    try:
        return plan(config.schedule, config.clients, config.delays, **limits, seed=config.seed, sizes=sizes)
    except ValueError as error:
        raise ConfigError(f"algorithms.{config.label}: {error}") from None
    except ArithmeticError:
        raise ConfigError("delays: with these parameters, durations are beyond all numbers") from None


def make_simulation(config: RunConfig, task: Task, timeline: Plan) -> Simulation:
    """Everything that can be wrong with a run shows here, before its folder is made."""
    target = config.run.target if config.run.stop_at_target else None
    check_device(config)
    rehearse(config, task)
    try:
        with torch_threads(config.threads or torch.get_num_threads()):  # some executors have as many workers
            executor = config.executor(task, config.local, config.seed)
        return simulate(
            timeline,
            task,
            config.algorithm,
            config.local,
            executor=executor,
            eval_every=config.run.eval_every,
            target=target,
            checks=config.checks,
        )
    except (ValueError, RuntimeError, AssertionError) as error:  # torch's way to refuse a device
        raise ConfigError(f"executor: {str(error).splitlines()[0]}") from None


def check_device(config: RunConfig) -> None:
    try:
        torch.zeros(1, device=config.device).item()
    except Exception as error:  # torch has many ways to refuse a device
        text = str(error).splitlines()[0]
        raise ConfigError(f"executor.device: {config.device!r} cannot be used: {text}") from None
