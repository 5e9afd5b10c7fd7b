"""Run the points of `fadas.sweep`: algorithms, local training and plans from a point's values, without a folder."""

import inspect
import pickle
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import partial
from math import ceil
from typing import Any

import torch

from fadas.algorithms import Algorithm
from fadas.core.interval import Interval
from fadas.core.ledger import Schedule
from fadas.core.metrics import Metric, choose_metric
from fadas.errors import ConfigError, Diverged, FadasWarning, unknown_name
from fadas.executors.torch_settings import torch_threads
from fadas.experiments.from_python.simulate import make_config
from fadas.experiments.parallel_runs import run_in_processes
from fadas.experiments.prepare import count_evaluations
from fadas.experiments.resolve import PARTS
from fadas.experiments.run import SMALL, execute_until
from fadas.experiments.settings import RunSettings
from fadas.experiments.sweeps.points import Point, outcome_at
from fadas.experiments.sweeps.ranking import Result
from fadas.registry import build
from fadas.runs.folder import Finished, claim
from fadas.runs.summary import Outcome, Tally
from fadas.simulation.baselines import plan_for
from fadas.simulation.planner import Plan
from fadas.simulation.simulator import Simulation, simulate
from fadas.tasks.files.holding_out import hold_out
from fadas.tasks.task import Task
from fadas.training.sgd import LocalSGD

MakeTask = Callable[..., Task]
MakeAlgorithm = Callable[..., Algorithm]
_SECTIONS = ("local", "schedule")


@dataclass(frozen=True)
class PointRunner:
    """Runs the points of a sweep from Python. It is sent to worker processes.

    Args:
        make_task: Makes the task of a seed, from `held_out`.
        algorithms: What makes the algorithm of each label.
        plan: The plan of the runs.
        local: Local training.
        metric: What runs are judged by.
        options: The other arguments of `fadas.simulate`.
        keeps: Whether runs are kept in the folders of their points, so that they continue on the next rung.
    """

    make_task: MakeTask
    algorithms: dict[str, Algorithm | MakeAlgorithm]
    plan: Plan
    local: LocalSGD
    metric: str | Metric | None
    options: Mapping[str, Any]
    keeps: bool = False

    def parts(self, label: str, point: Mapping[str, Any]) -> tuple[Algorithm, LocalSGD, dict[str, Any]]:
        """Return the algorithm, the local training and the settings of the schedule at a point."""
        own: dict[str, Any] = {}
        sections: dict[str, dict[str, Any]] = {name: {} for name in _SECTIONS}
        for key, value in point.items():
            section, _, rest = key.partition(".")
            if rest and section in sections:
                sections[section][rest] = value
            else:
                own[key] = value
        for section, known in (("local", _names(self.local)), ("schedule", _names(self.plan.schedule))):
            if unknown := [key for key in sections[section] if key not in known]:
                raise unknown_name("key", f"{section}.{unknown[0]}", [f"{section}.{name}" for name in known])
        made = self.algorithms[label]
        try:
            algorithm = (
                _with_fields(made, own, label) if isinstance(made, Algorithm) else build(made, own, label, PARTS)
            )
            if not isinstance(algorithm, Algorithm):
                raise ConfigError(f"{label}: its function made a {type(algorithm).__name__}, not an Algorithm")
            local = replace(self.local, **sections["local"])
            self._schedule(algorithm, sections["schedule"])
        except ConfigError:
            raise
        except ValueError as error:
            raise ConfigError(f"{label}: {error}") from None
        return algorithm, local, sections["schedule"]

    def why_invalid(self, label: str, point: Mapping[str, Any]) -> str | None:
        """Return why a point cannot be run, or None if it can."""
        try:
            self.parts(label, point)
        except ConfigError as error:
            return str(error)
        return None

    def _schedule(self, algorithm: Algorithm, changes: Mapping[str, Any]) -> Schedule:
        """Return an algorithm's schedule: that of the plan, but for the method's own M and refill rule."""
        base = self.plan.schedule
        own = algorithm.schedule(changes.get("concurrency", base.concurrency), changes.get("buffer", base.buffer))
        refill = base.refill if own.refill == "arrival" else own.refill
        given = {"per_client": base.per_client, "excess": base.excess, "refill": refill}
        return replace(own, **{**given, **{key: changes[key] for key in changes if key != "concurrency"}})

    def timeline(self, point: Point, task: Task | None = None) -> Plan:
        """Return the plan of a run."""
        algorithm, _, changes = self.parts(point.label, point.point)
        base, (steps, time) = self.plan, self.plan.limits
        schedule = self._schedule(algorithm, changes)
        updates = None if steps is None else steps * base.schedule.buffer
        sizes = (task or self.make_task(point.seed)).sizes if base.delays.scale_by_data else None
        try:
            limits = {"updates": updates, "time": time, "sizes": sizes}
            return plan_for(algorithm, schedule, base.clients, base.delays, seed=point.seed, **limits)
        except ValueError as error:
            raise ConfigError(f"{point.label}: {error}") from None

    def check_plans(self, points: Sequence[Point]) -> None:
        """Warn of odd delays, and raise an error if no plan is possible: for each seed and for each algorithm once."""
        first = points[0]
        seeds = {point.seed: point for point in reversed(points) if point.label == first.label}
        labels = {point.label: point for point in reversed(points) if point.seed == first.seed}
        for point in {(point.label, point.seed): point for point in (*seeds.values(), *labels.values())}.values():
            self.timeline(point)

    def check_first_rung(self, todo: Sequence[Point], share: float) -> None:
        """Raise an error if the first rung ends before the first evaluation."""
        interval = Interval.parse(self.options["eval_every"])
        for point in todo:
            timeline = self.timeline(point)
            if not count_evaluations(interval, timeline, share):
                steps = ceil(share * timeline.steps)
                text = f"{share:.1%} of a run is {steps} steps; eval_every must be at most {steps}"
                raise ConfigError(f"{point.label}, {point.name}: {text}")

    def run_rung(
        self, jobs: int, known: dict[tuple[str, str, int, float], Outcome], rung: Sequence[Point]
    ) -> Iterator[Result]:
        """Yield the result of each point up to its share. Points that were run before are known."""
        todo = [point for point in rung if _key(point) not in known]
        yield from ((point, known[_key(point)]) for point in rung if _key(point) in known)
        with closing(run_in_processes(self.run, todo, self._processes(jobs))) as results:
            for point, result in results:
                if isinstance(result, Exception):
                    raise result
                known[_key(point)] = result
                yield point, result

    def _processes(self, jobs: int) -> int:
        if jobs == 1:
            return 1
        try:
            pickle.dumps(self)
        except (pickle.PicklingError, TypeError, AttributeError) as error:
            text = f"sweep: runs one at a time, because not all can be sent to another process: {error}"
            warnings.warn(text, FadasWarning, stacklevel=2)
            return 1
        return jobs

    def run(self, point: Point) -> Outcome:
        """Return the outcome of a run up to its share."""
        algorithm, local, _ = self.parts(point.label, point.point)
        task = self.make_task(point.seed)
        if task.test is None:
            raise ConfigError("a sweep ranks points by a metric, but the task has no test data to measure it on")
        if len(task.clients) != self.plan.clients:
            raise ConfigError(f"the plan has {self.plan.clients} clients, but the task has {len(task.clients)}")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FadasWarning)  # `check_plans` has shown them
            timeline = self.timeline(point, task)
        metric = self.metric if isinstance(self.metric, Metric) else choose_metric(task.measured, self.metric)
        simulation: Any = simulate(timeline, task, algorithm, local, metric=metric, **self.options)
        if self.keeps:
            return self._run_in_folder(point, simulation, algorithm, local)
        tally = Tally(metric=metric)
        small = simulation.server.model.params.numel() < SMALL
        with torch_threads(1 if small else torch.get_num_threads()), closing(iter(simulation)) as records:
            try:
                for record in records:
                    tally.add(record)
            except Diverged as error:
                return tally.outcome(str(error))
        if tally.lacks_evaluation:
            tally.add_evaluation(simulation.metrics)
        return tally.outcome()

    def _run_in_folder(self, point: Point, simulation: Simulation, algorithm: Algorithm, local: LocalSGD) -> Outcome:
        """Continue a run in its folder, up to its share. A checkpoint is left there for the rest."""
        metric, every = simulation.metric, self.options["eval_every"]
        judged: Any = {"metric": metric.name, "better": metric.better, "format": metric.format}
        settings = RunSettings(
            simulation.plan.steps, eval_every=every, seeds=(point.seed,), checkpoint_every=0, **judged
        )
        executor, device, checks = (self.options[key] for key in ("executor", "device", "checks"))
        config = make_config(point.folder, simulation, algorithm, local, executor, device, settings, checks)
        claimed = claim(point.folder, config.tables, "resume")
        if isinstance(claimed, Finished):
            simulation.executor.close()
            return claimed.summary
        enough = None if point.share == 1 else point.share * simulation.plan.arrivals.size
        outcome = execute_until(config, simulation, claimed, enough)
        return outcome if enough is None else outcome_at(point.folder, enough, metric) or outcome


def _key(point: Point) -> tuple[str, str, int, float]:
    return point.label, point.name, point.seed, point.share


def _names(settings: Any) -> list[str]:
    return [field.name for field in fields(settings) if field.init]


def _with_fields(part: Any, values: Mapping[str, Any], where: str) -> Any:
    """Return a copy of a part with other fields, given by dotted keys."""
    for key, value in values.items():
        first, _, rest = key.partition(".")
        if not is_dataclass(part) or first not in _names(part):
            known = _names(part) if is_dataclass(part) else []
            raise unknown_name("key", f"{where}.{first}", [f"{where}.{name}" for name in known])
        if rest:
            value = _with_fields(getattr(part, first), {rest: value}, f"{where}.{first}")
        part = replace(part, **{first: value})  # pyright: ignore[reportArgumentType]
    return part


def held_out(task: Task | MakeTask, validation: float, clients: int) -> MakeTask:
    """Return a function of the seed that makes the task with a share of its training data held out.

    A function that needs the number of clients gets that of the plan.
    """
    if not isinstance(validation, int | float) or not 0 < validation < 1:
        raise ConfigError(f"validation must lie between 0 and 1, got {validation}")
    if isinstance(task, Task):
        return partial(_same_task, hold_out_examples(task, validation))
    parameters = inspect.signature(task).parameters
    takes_any = any(one.kind is one.VAR_KEYWORD for one in parameters.values())
    if "validation" not in parameters and not takes_any:
        raise ConfigError("to be swept, a task must take `validation`, a share of the training data to measure on")
    if "clients" in parameters and parameters["clients"].default is inspect.Parameter.empty:
        task = partial(task, clients=clients)
    return _Tasks(task, validation, "seed" in parameters)


def _same_task(task: Task, seed: int) -> Task:
    return task


@dataclass
class _Tasks:
    """Makes the task of each seed once, in each process."""

    make: MakeTask
    validation: float
    takes_seed: bool
    made: dict[int, Task] = field(default_factory=dict[int, Task])

    def __call__(self, seed: int) -> Task:
        if seed not in self.made:
            made: Any = self.make(validation=self.validation, **({"seed": seed} if self.takes_seed else {}))
            if not isinstance(made, Task):
                raise ConfigError(f"the task's function made a {type(made).__name__}, not a Task")
            self.made[seed] = made
        return self.made[seed]

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "made": {}}


def hold_out_examples(task: Task, share: float) -> Task:
    """Return a task that is measured on a share of each client's examples, which these clients no longer have."""
    try:
        kept, held_out = hold_out(task.clients, share, "validation")
    except (ValueError, RuntimeError) as error:  # torch's, if the clients' examples differ in shape
        text = str(error) if str(error).startswith("validation") else f"validation: {error}"
        raise ConfigError(text) from None
    return replace(task, clients=kept, test=held_out)
