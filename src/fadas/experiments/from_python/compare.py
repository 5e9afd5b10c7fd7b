"""`fadas.compare`: several methods and seeds, in parallel, with one result."""

from __future__ import annotations

import inspect
import multiprocessing
import os
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import torch

from fadas.algorithms.algorithm import Algorithm
from fadas.core.ledger import Schedule
from fadas.core.metrics import Metric
from fadas.core.update_checks import Checks
from fadas.errors import ConfigError, FadasWarning
from fadas.executors import DEFAULT
from fadas.executors.processes import can_fork
from fadas.experiments.from_python.simulate import make_config
from fadas.experiments.parallel_runs import end_with_parent
from fadas.experiments.run import execute
from fadas.experiments.settings import RunSettings
from fadas.registry import Table
from fadas.runs.folder import Finished, claim
from fadas.runs.reader import Run, read_run
from fadas.runs.sinks import check_sinks, make_sinks
from fadas.simulation import simulator
from fadas.simulation.baselines import plan_for
from fadas.simulation.planner import Plan
from fadas.tasks.task import Task
from fadas.training.sgd import LocalSGD
from fadas.validate import at_least

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

Method = Algorithm | tuple[Algorithm, LocalSGD]
MakeTask = Callable[[int], Task]
MakePlan = Callable[[Algorithm, int], Plan]
_PLAN_KEYS = ("concurrency", "buffer", "clients", "delays", "steps", "updates", "time")


def compare(
    task: Task | MakeTask,
    methods: Mapping[str, Method],
    *,
    plan: Plan | Mapping[str, Any] | MakePlan,
    local: LocalSGD | None = None,
    seeds: Sequence[int] = (0,),
    folder: str | Path | None = None,
    overwrite: bool = False,
    executor: str = DEFAULT,
    device: str = "cpu",
    eval_every: int | str = 1,
    clients_eval_every: int | str | None = None,
    target: float | None = None,
    stop_at_target: bool = False,
    patience: int | None = None,
    keep: Literal["last", "best"] = "last",
    metric: str | Metric | None = None,
    checks: Checks | None = None,
    jobs: int | None = None,
    sinks: Sequence[str | Table] = (),
) -> Results:
    """Run methods with several seeds, some at a time, and return their results.

    Args:
        task: The task, or a function that makes the task of a seed: then each seed has other data.
        methods: The methods by name: an algorithm, or a pair of an algorithm and its local training.
        plan: What all methods have in common. A plan from `fadas.plan` is a template: each method has the same M_c,
            clients, delays and limits, and each seed its own delays. A dict has the keys concurrency, buffer, clients,
            delays, and steps, updates or time. A function of (algorithm, seed) returns any plan.
        local: Local training of the methods that have none of their own. None: `fadas.LocalSGD()`.
        seeds: The seeds. Each method runs once with each.
        folder: Where to keep the runs, such as "runs/mine", each in a folder of its own. Runs that have finished with
            the same settings are not trained again, and interrupted ones continue. None: nowhere.
        overwrite: Train finished runs again.
        executor: Where jobs are trained: a name from `fadas list`.
        device: Where clients train.
        eval_every: The interval between evaluations: a number of server steps, or a text such as "50 updates".
        clients_eval_every: The interval between evaluations on each client's own test data, `Task.client_test`. The
            last model is evaluated in any case. None: clients are not evaluated.
        target: A value of the metric. The results say when each run first reached it.
        stop_at_target: End a run at the first evaluation that reaches the target.
        patience: End a run after this many evaluations in a row without a better value of the metric. None: never.
        keep: Which model a run's folder keeps: that of the last step, or of the best evaluation.
        metric: What the runs are judged by. None: the accuracy if it is measured, else the task's first metric.
        checks: The checks that an update must pass.
        jobs: How many runs to train at the same time. None: one per core. Only Linux trains several.
        sinks: Trackers that also receive each run: "tensorboard", "wandb", "mlflow", or a table with such a name and
            its arguments.

    Raises:
        ConfigError: The parts do not fit together.
        OtherSettings: The folder holds a run with other settings.

    Example:
        >>> results = fadas.compare(
        ...     task,
        ...     {"fadas": fadas.FADAS(eta=0.01), "fedbuff": (fadas.FedBuff(eta=0.5), fadas.LocalSGD(lr=0.1))},
        ...     plan={"concurrency": 25, "buffer": 5, "clients": 50, "updates": 1500},
        ...     seeds=[1, 2, 3],
        ...     folder="runs/mine",
        ... )
        >>> print(results.table())
        >>> results.plot().savefig("accuracy.pdf")
    """
    if not methods:
        raise ConfigError("compare needs at least one method")
    if not seeds or len(set(seeds)) < len(seeds):
        raise ConfigError(f"seeds must be different numbers, got {list(seeds)}")
    at_least(1, jobs=jobs)
    settings = RunSettings(
        steps=1,
        eval_every=eval_every,
        clients_eval_every=clients_eval_every,
        target=target,
        stop_at_target=stop_at_target,
        patience=patience,
        keep=keep,
        seeds=tuple(seeds),
        sinks=check_sinks(sinks, "sinks"),
        **_describe_metric(metric),
    )
    make_sinks(sinks, "sinks")  # a missing extra shows before the first run
    with ExitStack() as stack:
        root = Path(folder) if folder else Path(stack.enter_context(tempfile.TemporaryDirectory())) / "comparison"
        batch = _Batch(task, plan, local or LocalSGD(), root, overwrite, executor, device, settings, metric, checks)
        todo = [
            _Item(name, *(method if isinstance(method, tuple) else (method, None)), seed, place)
            for seed in seeds
            for place, (name, method) in enumerate(methods.items())
        ]
        batch.check(todo)
        _run_all(batch, todo, jobs or min(len(todo), os.cpu_count() or 1))
        ordered = sorted(todo, key=lambda item: (item.place, item.seed))
        return Results([read_run(root / item.name) for item in ordered])


@dataclass(frozen=True)
class Results:
    """The finished runs of a comparison.

    Attributes:
        runs: The runs, as `fadas.runs.reader.find_runs` returns them.

    Example:
        >>> results = Results(find_runs(Path("runs/mine")))
    """

    runs: list[Run] = field(repr=False)

    def table(self, metric: str | None = None, columns: Sequence[str] = ()) -> str:
        """Return the table of `fadas report` as text, with its notes.

        Args:
            metric: The metric to compare by. None: the one that the runs are judged by.
            columns: Further columns: names of metrics, "train_loss", or "interval".
        """
        from fadas.report.comparison import compare as compare_runs
        from fadas.report.table import table_cells, table_header, table_notes

        comparison = compare_runs(self.runs, metric, columns)
        rows = [[title.replace("\n", " ") for title in table_header(comparison)], *table_cells(comparison)]
        widths = [max(map(len, column)) for column in zip(*rows)]
        lines = ["  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in rows]
        return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:], "", *table_notes(comparison)])

    def __str__(self) -> str:
        return self.table()

    def frame(self, table: str = "runs") -> pd.DataFrame:
        """Return a pandas frame with one row for each run, as `fadas.load_runs` does.

        Args:
            table: "runs", or "steps", "jobs" or "clients" for one row for each of these.
        """
        from fadas.report.frames import frame_of

        return frame_of(self.runs, table)

    def plot(self, against: str = "time", metric: str | None = None) -> Figure:
        """Return a matplotlib figure of a metric, with one curve for each method.

        Args:
            against: The x axis: "time" or "updates".
            metric: The metric, or "train_loss". None: the one that the runs are judged by.
        """
        import matplotlib

        from fadas.report.comparison import TRAIN_LOSS, choose_common_metric
        from fadas.report.figures.curves import STYLE, curves

        if against not in ("time", "updates"):
            raise ConfigError(f'against must be "time" or "updates", got {against!r}')
        sound = [run for run in self.runs if not run.diverged]
        if metric not in (None, TRAIN_LOSS):
            choose_common_metric(self.runs, metric)  # which names those that are measured
        with matplotlib.rc_context(STYLE):
            figure = curves(sound, against, metric) if sound else None
        if figure is None:
            raise ConfigError("there is nothing to plot: every run diverged, or nothing was measured")
        return figure

    def save(self, path: str | Path) -> Path:
        """Write the report to an HTML file, and return the file's path.

        Args:
            path: The file, or a folder for `report.html`.
        """
        from fadas.report.html import write_report

        file = Path(path)
        file = file if file.suffix in (".html", ".htm") else file / "report.html"
        file.parent.mkdir(parents=True, exist_ok=True)
        write_report(self.runs, file)
        return file


@dataclass(frozen=True)
class _Item:
    """One run: a method with a seed."""

    label: str
    algorithm: Algorithm
    local: LocalSGD | None
    seed: int
    place: int

    @property
    def name(self) -> str:
        return f"{self.label}-{self.seed}"


@dataclass(frozen=True)
class _Batch:
    """What all runs of a comparison share."""

    task: Task | MakeTask
    plan: Plan | Mapping[str, Any] | MakePlan
    local: LocalSGD
    root: Path
    overwrite: bool
    executor: str
    device: str
    settings: RunSettings
    metric: str | Metric | None
    checks: Checks | None

    def check(self, todo: Sequence[_Item]) -> None:
        """Find mistakes before the first run."""
        for item in todo:
            if not isinstance(item.algorithm, Algorithm):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise ConfigError(f"{item.label} must be an algorithm, got {item.algorithm!r}")
            if not item.label or "/" in item.label:
                raise ConfigError(f"a method's name becomes the name of a folder, so it cannot be {item.label!r}")
        for item in todo:
            if item.place == 0 or item.seed == todo[0].seed:
                self.make_plan(item)  # also warns of what is odd about the delays

    def make_plan(self, item: _Item) -> Plan:
        """Return the plan of a run."""
        given, algorithm = self.plan, item.algorithm
        if isinstance(given, Plan):
            schedule = algorithm.schedule(given.schedule.concurrency, given.schedule.buffer)
            schedule = replace(schedule, per_client=given.schedule.per_client, excess=given.schedule.excess)
            steps, time = given.limits
            updates = None if steps is None else steps * given.schedule.buffer
            limits = {"updates": updates, "time": time, "sizes": given.sizes}
            return _plan(item, schedule, {"clients": given.clients, "delays": given.delays, **limits})
        if isinstance(given, Mapping):
            if unknown := [key for key in given if key not in _PLAN_KEYS]:
                raise ConfigError(f"plan has no key {unknown[0]!r}; known: {', '.join(_PLAN_KEYS)}")
            options = dict(given)
            if missing := [key for key in ("concurrency", "buffer", "clients") if key not in options]:
                raise ConfigError(f"plan needs the key {missing[0]!r}")
            schedule = algorithm.schedule(options.pop("concurrency"), options.pop("buffer"))
            if getattr(options.get("delays"), "scale_by_data", False):
                options["sizes"] = self.make_task(item.seed).sizes
            return _plan(item, schedule, options)
        return given(algorithm, item.seed)

    def make_task(self, seed: int) -> Task:
        """Return the task of a seed."""
        if isinstance(self.task, Task):
            return self.task
        takes_seed = "seed" in inspect.signature(self.task).parameters
        make = cast(Callable[..., Task], self.task)
        return make(seed=seed) if takes_seed else make(seed)

    def run(self, item: _Item) -> None:
        """Train one run, unless it has finished."""
        folder, local = self.root / item.name, item.local or self.local
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FadasWarning)  # the check has shown them
            timeline = self.make_plan(item)
        simulation = simulator.simulate(
            timeline, self.make_task(item.seed), item.algorithm, local,
            executor=self.executor, device=self.device, eval_every=self.settings.eval_every, metric=self.metric,
            checks=self.checks, clients_eval_every=self.settings.clients_eval_every,
            target=self.settings.target if self.settings.stop_at_target else None,
        )  # fmt: skip
        settings = replace(self.settings, steps=timeline.steps, seeds=(item.seed,))
        config = make_config(
            folder, simulation, item.algorithm, local, self.executor, self.device, settings, self.checks, item.place
        )
        claimed = claim(folder, config.tables, "overwrite" if self.overwrite else "resume")
        if isinstance(claimed, Finished):
            simulation.executor.close()
            return
        execute(config, simulation, claimed)


def _plan(item: _Item, schedule: Schedule, options: Mapping[str, Any]) -> Plan:
    try:
        return plan_for(item.algorithm, schedule, seed=item.seed, **options)
    except ValueError as error:
        raise ConfigError(f"{item.label}: {error}") from None


def _describe_metric(metric: str | Metric | None) -> dict[str, Any]:
    if isinstance(metric, Metric):
        return {"metric": metric.name, "better": metric.better, "format": metric.format}
    return {"metric": metric}


_forked: tuple[_Batch, Sequence[_Item], int] | None = None  # what forked processes inherit, instead of pickling it


def _run_all(batch: _Batch, todo: Sequence[_Item], jobs: int) -> None:
    """Train all runs, some at a time in forked processes, which need no pickling of the user's objects."""
    global _forked
    if jobs == 1 or not can_fork() or batch.device != "cpu":
        for item in todo:
            batch.run(item)
        return
    _forked = batch, todo, max(1, (os.cpu_count() or 1) // jobs)
    try:
        fork = multiprocessing.get_context("fork")
        with ProcessPoolExecutor(min(jobs, len(todo)), fork, initializer=end_with_parent) as pool:
            futures = {pool.submit(_run_forked, number): item for number, item in enumerate(todo)}
            try:
                for future in as_completed(futures):
                    future.result()
            except BrokenProcessPool:
                raise ConfigError("a process of the comparison died: out of memory?") from None
            except BaseException:
                pool.shutdown(wait=True, cancel_futures=True)
                raise
    finally:
        _forked = None


def _run_forked(number: int) -> None:
    assert _forked
    batch, todo, threads = _forked
    torch.set_num_threads(threads)
    batch.run(todo[number])
