"""`fadas.simulate`: a simulation that can be kept in a folder, like one of `fadas run`."""

import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

from safetensors.torch import load_file

from fadas.algorithms.algorithm import Algorithm
from fadas.core.metrics import Metric
from fadas.core.records import Record
from fadas.core.update_checks import Checks
from fadas.errors import ConfigError, FadasWarning
from fadas.executors import DEFAULT, EXECUTORS, Executor
from fadas.executors.base import executor_traits
from fadas.experiments.experiment_file import to_plain
from fadas.experiments.from_python.describe import describe, describe_task, digest_of_run
from fadas.experiments.prepare import require_test_data
from fadas.experiments.run import check_target, iterate
from fadas.experiments.settings import RunConfig, RunSettings
from fadas.registry import Table
from fadas.runs.folder import MODEL, Finished, claim
from fadas.runs.reader import find_runs, read_run
from fadas.runs.sinks import Sink, make_sinks
from fadas.simulation import simulator
from fadas.simulation.planner import Plan
from fadas.simulation.simulator import Simulation
from fadas.tasks.task import Task
from fadas.training.sgd import LocalSGD


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
    folder: str | Path | None = None,
    overwrite: bool = False,
    checkpoint_every: int = 50,
    patience: int | None = None,
    keep: Literal["last", "best"] = "last",
    sinks: Sequence[Sink | str | Table] = (),
) -> Simulation:
    """Return a simulation that trains a task along a plan.

    One local step, one server step and one evaluation are tried first, so that errors come before the run.

    With a folder, the run is kept as `fadas run` keeps it: settings, metrics, checkpoints, the model and a summary. The
    report of all runs beside it is written to `report.html` in the folder above. A run that was interrupted continues
    from its last checkpoint. A run that has finished with the same settings is not trained again: its records and its
    model are read.

    Args:
        plan: The timeline, from `fadas.plan`.
        task: Model, data and loss.
        algorithm: What the server does with updates.
        local: What a client does with a job.
        executor: Where jobs are trained: a name from `fadas list`, or an executor.
        device: Where an executor that is given by name trains.
        eval_every: The interval between evaluations: a number of server steps, or a text such as "50 updates" or
            "2.5 time".
        clients_eval_every: The interval between evaluations on each client's own test data, `Task.client_test`, written
            like `eval_every`. The last model is evaluated in any case. None: clients are not evaluated.
        target: End the run at the first evaluation in which the metric reaches this value.
        metric: What the run is judged by: the name of one of the task's metrics, or for names of your own
            `fadas.Metric("score", better="higher")`. None: the accuracy if it is measured, else the first metric.
        checks: The checks that an update must pass. None: the default checks.
        folder: Where to keep the run, such as "runs/mine/fadas-1". None: nowhere.
        overwrite: Replace a run in the folder.
        checkpoint_every: The number of server steps between checkpoints.
        patience: End the run after this many evaluations in a row without a better value of the metric. It needs a
            folder.
        keep: Which model the folder keeps: that of the last step, or of the best evaluation.
        sinks: Trackers that also receive the run: "tensorboard", "wandb", "mlflow", a table with such a name and its
            arguments, or an object with the methods of `fadas.runs.sinks.Sink`. They need a folder.

    Returns:
        The simulation. Iterate over it to train.

    Raises:
        ConfigError: The parts do not fit together, or the result would not be repeatable.
        OtherSettings: The folder holds a run with other settings. It is raised when the iteration begins.

    Example:
        >>> plan = fadas.plan(fadas.Schedule(concurrency=8, buffer=4), clients=20, updates=400)
        >>> for record in fadas.simulate(plan, task, fadas.FADAS(), fadas.LocalSGD(), folder="runs/mine/fadas-1"):
        ...     print(record.step, record.metrics)
    """
    simulation = simulator.simulate(
        plan, task, algorithm, local,
        executor=executor, device=device, eval_every=eval_every, target=target, metric=metric, checks=checks,
        clients_eval_every=clients_eval_every,
    )  # fmt: skip
    if folder is None:
        if patience is not None or keep != "last" or overwrite or sinks:
            raise ConfigError('patience, keep, overwrite and sinks need a folder: set folder="runs/mine/fadas-1"')
        check_target(simulation, target, metric is not None, "target")
        return simulation
    receivers = make_sinks(sinks, "sinks")
    path, chosen = Path(folder), None if metric is None else simulation.metric
    settings = RunSettings(
        steps=plan.steps,
        eval_every=eval_every,
        clients_eval_every=clients_eval_every,
        metric=chosen and chosen.name,
        better=chosen and chosen.better,
        format=chosen and chosen.format,
        target=target,
        stop_at_target=target is not None,
        patience=patience,
        keep=keep,
        seeds=(plan.seed,),
        checkpoint_every=checkpoint_every,
    )
    config = make_config(path, simulation, algorithm, local, executor, device, settings, checks)
    simulation.recorder = lambda one: _record(one, config, path, overwrite, receivers)
    return simulation


def make_config(
    folder: Path,
    simulation: Simulation,
    algorithm: Algorithm,
    local: LocalSGD,
    executor: str | Executor,
    device: str,
    settings: RunSettings,
    checks: Checks | None,
    place: int = 0,
) -> RunConfig:
    """Return the settings of a run that was started from Python.

    Args:
        folder: The run's folder. Its name is that of the run, "fadas-1", and the folder above is the experiment.
        simulation: The simulation, before it starts.
        algorithm: What the server does with updates.
        local: What a client does with a job.
        executor: Where jobs are trained.
        device: Where an executor that is given by name trains.
        settings: Limits, evaluation and checkpoints.
        checks: The checks that an update must pass.
        place: The method's place in tables.

    Raises:
        ConfigError: A setting needs test data, and the task has none.
    """
    plan, task = simulation.plan, simulation.task
    require_test_data(settings, task)
    label = folder.name.removesuffix(f"-{plan.seed}")
    own = simulation.executor
    written = {key: value for key, value in vars(settings).items() if key != "sinks" or value}
    made = EXECUTORS[executor] if isinstance(executor, str) else type(own)
    resolved = {
        "name": folder.resolve().parent.name,
        "task": describe_task(task),
        "delays": describe(plan.delays),
        "checks": describe(checks or Checks()),
        "local": describe(local),
        "executor": {"name": executor if isinstance(executor, str) else type(own).__name__.lower(), "device": device},
        "run": {**written, "digest": digest_of_run(simulation)},
        "algorithms": {label: {**describe(algorithm), "schedule": plan.schedule.as_table()}},
        "schedule": {"concurrency": plan.schedule.concurrency, "buffer": plan.schedule.buffer},
        "precision": str(getattr(own, "precision", "fp32")),
    }
    return RunConfig(
        experiment=resolved["name"],
        label=label,
        seed=plan.seed,
        place=place,
        clients=plan.clients,
        algorithm=algorithm,
        schedule=plan.schedule,
        delays=plan.delays,
        local=local,
        checks=checks or Checks(),
        run=settings,
        make_task=lambda: task,
        task_metrics=None,  # the task has them
        weights=None,
        make_executor=lambda *_: own,
        traits=executor_traits(made),
        train_device=device,
        threads=None,
        tables=to_plain(resolved),
    )


def _record(
    simulation: Simulation, config: RunConfig, folder: Path, overwrite: bool, sinks: Sequence[Sink]
) -> Iterator[Record]:
    """Yield all records of the run: those on disk first, then those of the steps that are still to do."""
    claimed = claim(folder, config.tables, "overwrite" if overwrite else "resume")
    if isinstance(claimed, Finished):
        run = read_run(folder)
        simulation.complete = True
        yield from run.records
        simulation.metrics = run.evaluations[-1][1] if run.evaluations else None
        simulation.clients_metrics = run.last_clients_metrics
        if (folder / MODEL).exists():
            simulation.use_model(load_file(folder / MODEL))
        return
    yield from iterate(config, simulation, claimed, sinks)
    from fadas.report.html import write_report  # which loads matplotlib

    try:
        write_report(find_runs(folder.parent), folder.parent / "report.html")
    except ConfigError as error:  # a run beside this one cannot be read, or is judged by another metric
        warnings.warn(f"no report of {folder.parent}: {error}", FadasWarning, stacklevel=2)
