"""The typed settings of one run: one algorithm, one seed."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from fadas.algorithms.algorithm import Algorithm
from fadas.core.interval import Interval
from fadas.core.ledger import Excess, Refill, Schedule
from fadas.core.metrics import Better, Format, Metric
from fadas.core.update_checks import Checks
from fadas.executors.base import ExecutorTraits
from fadas.registry import Table
from fadas.runs.sinks import SINKS, check_sinks
from fadas.simulation.delays import Delays
from fadas.tasks.weights import StartWeights
from fadas.training.sgd import LocalSGD
from fadas.validate import MOST_BUFFER, MOST_SEEDS, MOST_STEPS, InvalidValue, at_least, at_most, positive, whole_number


@dataclass(frozen=True)
class ScheduleSettings:
    """Who trains when: how many clients at a time, and how many updates a server step takes.

    Args:
        concurrency: M_c, the number of clients that train at the same time.
        buffer: M, the number of updates per server step. FedAsync always takes 1, and synchronous methods take M_c.
        refill: When a free slot gets its next job. "arrival": before the server step. "update": after it. "round":
            after it, together with all other slots. "released": as the authors' released code. None: the method's own
            rule.
        per_client: The largest number of one client's updates in a step. 0: any number.
        excess: What happens to an update above `per_client`. "wait": it waits for the next step. "replace": it
            replaces the client's oldest update in the buffer.

    Example:
        >>> ScheduleSettings(concurrency=25, buffer=5, refill="released", per_client=1, excess="replace")
    """

    concurrency: int
    buffer: int
    refill: Refill | None = None
    per_client: int = 0
    excess: Excess = "wait"

    def __post_init__(self) -> None:
        at_most(MOST_BUFFER, buffer=self.buffer)


@dataclass(frozen=True)
class RunSettings:
    """How long a run is, when it is evaluated and saved, and its seeds.

    A run ends at the first of its limits: steps, updates, time. Set at least one of them.

    Args:
        steps: End the run after this many server steps.
        updates: End the run after this many client updates.
        time: End the run at this virtual time.
        eval_every: The interval between evaluations: a number of server steps, or a text such as "50 updates" or
            "2.5 time". The initial model and the last one are always evaluated.
        clients_eval_every: The interval between evaluations on each client's own test data, written like `eval_every`.
            The last model is evaluated in any case. The task must have such data, see `task.client_test`. None: never.
        metric: What runs are judged by: targets, tables, figures and sweeps. One of the task's metrics, or "loss".
            None: the accuracy if the task measures it, else its first metric.
        better: Which direction of the metric is better. None: what is usual for its name.
        format: How the metric is shown. None: what is usual for its name.
        target: A value of the metric. The report says when each run first reached it.
        stop_at_target: End the run at the first evaluation that reaches the target.
        patience: End the run after this many evaluations in a row without a better value of the metric. None: never.
        keep: Which model the run's folder keeps: that of the last step, or of the best evaluation.
        seeds: The seeds. Each method runs once with each seed.
        checkpoint_every: The number of server steps between checkpoints. 0: no checkpoints.
        tensorboard: Short for "tensorboard" in `sinks`.
        sinks: Trackers that also receive the run: "tensorboard", "wandb", "mlflow", or "module:Name". A table has the
            name and the sink's own settings. Each needs the extra of its name.

    Example:
        >>> RunSettings(steps=500, updates=2500, time=250.0, eval_every=5, target=0.9, seeds=(1, 2))
        >>> RunSettings(steps=500, checkpoint_every=10, patience=20, keep="best")
        >>> RunSettings(updates=2500, clients_eval_every="500 updates")
        >>> RunSettings(time=250.0, eval_every="50 updates", metric="score", better="higher", format="percent")
        >>> RunSettings(steps=500, sinks=("tensorboard", {"name": "wandb", "project": "x"}))
    """

    steps: int | None = None
    updates: int | None = None
    time: float | None = None
    eval_every: int | str = 1
    clients_eval_every: int | str | None = None
    metric: str | None = None
    better: Better | None = None
    format: Format | None = None
    target: float | None = None
    stop_at_target: bool = False
    patience: int | None = None
    keep: Literal["last", "best"] = "last"
    seeds: tuple[int, ...] = (0,)
    checkpoint_every: int = 50
    tensorboard: bool = False
    sinks: tuple[str | dict[str, Any], ...] = field(default=(), hash=False)  # tables cannot be hashed

    def __post_init__(self) -> None:
        if self.steps is None and self.updates is None and self.time is None:
            raise ValueError("set a limit: steps, updates or time")
        at_least(1, steps=self.steps, updates=self.updates, patience=self.patience)
        at_least(0, checkpoint_every=self.checkpoint_every)
        at_most(MOST_STEPS, checkpoint_every=self.checkpoint_every)
        Interval.parse(self.eval_every)
        if self.clients_eval_every is not None:
            Interval.parse(self.clients_eval_every, "clients_eval_every")
        if self.time is not None:
            positive(time=self.time)
        if self.metric is None and (self.better or self.format):
            raise InvalidValue("better" if self.better else "format", "needs a metric: set run.metric too")
        if self.metric is not None:
            Metric(self.metric, self.better, self.format)  # pyright: ignore[reportArgumentType]
        if self.target is not None and self.metric is not None:
            Metric(self.metric, self.better).require_target(self.target)  # pyright: ignore[reportArgumentType]
        if self.stop_at_target and self.target is None:
            raise InvalidValue("stop_at_target", "needs a target")
        at_most(MOST_SEEDS, **{"the number of seeds": len(self.seeds)})
        for seed in self.seeds:
            whole_number(seeds=seed)
        if not self.seeds or any(seed < 0 for seed in self.seeds) or len(set(self.seeds)) < len(self.seeds):
            raise InvalidValue("seeds", f"must be different numbers, none negative, got {list(self.seeds)}")

    @property
    def interval(self) -> Interval:
        """The interval between evaluations."""
        return Interval.parse(self.eval_every)

    def with_sinks(self) -> "RunSettings":
        """Return the settings with each sink as a complete table, also those of short forms such as `tensorboard`."""
        sinks = check_sinks(self.sinks, "run.sinks")
        short = [name for name in SINKS if getattr(self, name, False) and name not in [one["name"] for one in sinks]]
        return replace(self, sinks=(*sinks, *check_sinks(short, "run.sinks")))


@dataclass(frozen=True)
class RunConfig:
    """The settings of one run: one method with one seed. `resolve` makes it.

    Attributes:
        experiment: The experiment's name.
        label: The algorithm's label in the experiment.
        seed: The run's seed.
        place: The algorithm's place among the experiment's algorithms.
        clients: The number of clients.
        algorithm: What the server does with updates.
        schedule: M_c, M and the refill rule.
        delays: How long jobs take, and what goes wrong.
        local: What a client does with a job.
        checks: The checks that an update must pass.
        run: Limits, evaluation, checkpoints.
        make_task: Makes the task.
        task_metrics: The names of ready metrics that the task measures. None: its own.
        weights: The file of weights that training starts from. None: the task's own.
        make_executor: Makes the executor, called with task, local and seed.
        traits: Facts about the executor that are known before it is made.
        train_device: Where clients train.
        threads: The number of torch's threads. None: it follows the size of the model.
        tables: All settings as plain tables: the content of config.toml.
    """

    experiment: str
    label: str
    seed: int
    place: int
    clients: int
    algorithm: Algorithm
    schedule: Schedule
    delays: Delays
    local: LocalSGD
    checks: Checks
    run: RunSettings
    make_task: Callable[[], Any]
    task_metrics: tuple[str, ...] | None
    weights: StartWeights | None
    make_executor: Callable[..., Any]
    traits: ExecutorTraits
    train_device: str
    threads: int | None
    tables: Table

    @property
    def id(self) -> str:
        """The name of the run's folder."""
        return f"{self.label}-{self.seed}"

    @property
    def device(self) -> str:
        """Where the server's models are."""
        return self.traits.server_device(self.train_device)
