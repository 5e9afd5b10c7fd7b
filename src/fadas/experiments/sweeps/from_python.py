"""`fadas.sweep`: search the parameters of some algorithms from Python, without an experiment file."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from fadas.algorithms import Algorithm
from fadas.core.metrics import Metric
from fadas.core.update_checks import Checks
from fadas.errors import ConfigError, FadasWarning, unknown_name
from fadas.executors import DEFAULT
from fadas.experiments.sweeps.grids import Range, make_grid
from fadas.experiments.sweeps.halving import HALVING, climb_rungs, remove_checkpoints_behind
from fadas.experiments.sweeps.point_runner import MakeAlgorithm, MakeTask, PointRunner, held_out
from fadas.experiments.sweeps.points import Point, point_file_name
from fadas.experiments.sweeps.ranking import By, Ranked
from fadas.experiments.sweeps.search import WIDENINGS, Search
from fadas.runs.summary import Outcome
from fadas.simulation.planner import Plan
from fadas.tasks.task import Task
from fadas.training.sgd import LocalSGD

Values = Sequence[Any] | Range | Mapping[str, Any]


@dataclass(frozen=True)
class SweepResult:
    """The points of a sweep, from best to worst.

    Args:
        rows: The points of each algorithm.
        metric: The metric that they are judged by.
        algorithms: The best point of each algorithm, as an algorithm.
        local: The local training of each best point.

    Example:
        >>> result.best["fadas"].point
        {'eta': 0.002, 'local.lr': 0.1}
        >>> print(result.table())
    """

    rows: list[Ranked]
    metric: Metric
    algorithms: dict[str, Algorithm]
    local: dict[str, LocalSGD]

    @property
    def best(self) -> dict[str, Ranked]:
        """The best point of each algorithm. An algorithm that always diverged has none."""
        return {row.label: row for row in self.rows if row.best}

    def table(self) -> str:
        """Return the points as a table in plain text."""
        head = ("algorithm", "point", f"validation {self.metric.name}", "")
        cells = [head, *((row.label, row.name, row.score_text(self.metric), row.mark()) for row in self.rows)]
        widths = [max(len(line[column]) for line in cells) for column in range(3)]
        lines = [
            f"{a:<{widths[0]}}  {b:<{widths[1]}}  {score:>{widths[2]}}  {mark}".rstrip() for a, b, score, mark in cells
        ]
        return "\n".join(lines)


def sweep(
    task: Task | MakeTask,
    algorithms: Mapping[str, Algorithm | MakeAlgorithm],
    grids: Mapping[str, Mapping[str, Values]],
    *,
    plan: Plan,
    local: LocalSGD | None = None,
    seeds: Sequence[int] | None = None,
    validation: float = 0.2,
    samples: int | None = None,
    sample_seed: int = 0,
    halving: bool = False,
    by: By = "mean",
    widen: bool = False,
    widen_limit: int = WIDENINGS,
    jobs: int = 1,
    executor: str = DEFAULT,
    device: str = "cpu",
    eval_every: int | str = 1,
    metric: str | Metric | None = None,
    checks: Checks | None = None,
) -> SweepResult:
    """Run the points of some grids and rank them, as `fadas sweep` does. Nothing is written.

    Points are judged on data held out from the training data. The same point gives the same numbers as in an experiment
    file.

    Args:
        task: A function that takes `validation`, the share to hold out, and may take `clients` and `seed`. Or a task:
            that share of each client's examples is held out, and its test data are not used.
        algorithms: An algorithm for each label, or a function that makes it from the point's values.
        grids: For each label, the values to try of each setting: a list, or a range such as
            `{"low": 1e-4, "high": 0.1, "log": True}`. A setting is an argument of the function, a field of the
            algorithm such as "step_size.eta", or a setting of "local." or "schedule.".
        plan: The plan of the runs. Each algorithm gets a plan of its own with the same M_c, M, delays, time and client
            updates. Synchronous methods and FedAsync keep their own M.
        local: Local training. None: the defaults.
        seeds: One run per point for each. None: the seed of the plan.
        validation: The share to hold out.
        samples: Draw this many points of each grid at random. Ranges need it.
        sample_seed: The seed of these draws.
        halving: Run all points an eighth of the way, the best quarter to half, and its best quarter to the end.
        by: Judge a run by the "mean" of its last five evaluations, or by the "last" one.
        widen: Extend a grid where its best point lies on an edge.
        widen_limit: How often each grid is extended at most.
        jobs: How many runs at a time, each in a process of its own. What cannot be sent to another process, such as a
            lambda, runs in this one. A script needs `if __name__ == "__main__":`.
        executor: Where jobs are trained: a name from `fadas list`.
        device: Where to train.
        eval_every: The interval between evaluations.
        metric: What runs are judged by. None: the accuracy if it is measured, else the first metric.
        checks: The checks that an update must pass. None: the default checks.

    Returns:
        The points from best to worst.

    Raises:
        ConfigError: A grid, an algorithm or the task cannot be used.

    Example:
        >>> plan = fadas.plan(fadas.Schedule(concurrency=10, buffer=2), clients=20, updates=300, seed=100)
        >>> task = functools.partial(fadas.TASKS["digits"], clients=20)
        >>> result = fadas.sweep(task, {"fadas": fadas.FADAS}, {"fadas": {"eta": [0.001, 0.004]}}, plan=plan)
        >>> result.best["fadas"].point
    """
    for label in grids:
        if label not in algorithms:
            raise unknown_name("algorithm", label, algorithms)
    if by not in ("mean", "last"):
        raise unknown_name("value of by", by, ("mean", "last"))
    options = {"executor": executor, "device": device, "eval_every": eval_every, "checks": checks}
    make_task = held_out(task, validation, plan.clients)
    runner = PointRunner(make_task, dict(algorithms), plan, local or LocalSGD(), metric, options, keeps=halving)
    chosen = (plan.seed,) if seeds is None else tuple(seeds)
    if not chosen or len(set(chosen)) < len(chosen):
        raise ConfigError(f"seeds must be different numbers, got {list(chosen)}")

    def make_points(label: str, grid: Any) -> list[Point]:
        for point in grid.points:
            runner.parts(label, point)  # an error comes before the first run
        return [
            Point(label, seed, point, root / label / f"{point_file_name(point)}-{seed}", {})
            for point in grid.points
            for seed in chosen
        ]

    made = {label: make_grid(f"grids[{label!r}]", grid, samples, sample_seed) for label, grid in grids.items()}
    if empty := [label for label, grid in made.items() if not grid.points] or (not made and ["any algorithm"]):
        raise ConfigError(f"there is no grid for {empty[0]}")
    known: dict[tuple[str, str, int, float], Outcome] = {}
    with TemporaryDirectory(prefix="fadas-sweep-") as folder:  # of the runs that continue on the next rung
        root = Path(folder)
        search = Search(made, make_points, runner.why_invalid, by, widen_limit if widen else 0)
        rungs = HALVING if halving else (1.0,)
        while todo := search.next_points():
            if not known:
                runner.check_plans(todo)
            if halving:
                runner.check_first_rung(todo, rungs[0])
            run_rung = partial(runner.run_rung, jobs, known)
            for _ in search.record(climb_rungs(todo, rungs, run_rung, by, remove_checkpoints_behind)):
                pass
    ranked = search.ranked()
    hint = "widen_limit allows more" if widen else "widen=True extends the grid there"
    for label, text in search.edges_left():
        warnings.warn(f"{label} is {text}; {hint}", FadasWarning, stacklevel=2)
    best = {row.label: runner.parts(row.label, row.point) for row in ranked if row.best}
    return SweepResult(
        ranked,
        search.metric,
        {label: algorithm for label, (algorithm, _, _) in best.items()},
        {label: own for label, (_, own, _) in best.items()},
    )
