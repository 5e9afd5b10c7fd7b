"""The strategy: asynchronous federated learning with Flower, on the same `Server` as the simulator.

Flower's own strategies send a round of messages, wait for all replies and aggregate. This one keeps `concurrency` nodes
training, takes replies one by one as they come, and takes a server step after every `buffer` of them.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from logging import INFO, WARNING
from pathlib import Path
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.common.logger import log
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from fadas.algorithms.algorithm import Algorithm
from fadas.algorithms.presets import FADAS
from fadas.core.ledger import Schedule
from fadas.core.metrics import Metric
from fadas.core.update_checks import Checks
from fadas.flower.arrays import Trainable, is_trainable
from fadas.flower.federation import Federation
from fadas.flower.options import (
    Options,
    Reply,
    algorithm_from_run_config,
    find_misspelt,
    prepare_sinks,
    schedule_from_run_config,
    shown_settings,
    sinks_from_run_config,
    with_default_checks,
    with_default_limit,
)
from fadas.registry import Table
from fadas.runs.sinks import Sink
from fadas.validate import at_least, whole_number

_FROM_RUN_CONFIG: dict[str, Callable[[Any], Any]] = {
    "seed": int,
    "deadline": float,
    "patience": float,
    "eval-every": lambda value: int(value) if str(value).isdigit() else value,
    "target": float,
    "folder": str,
}


class AsyncStrategy(Strategy):
    """A Flower strategy for asynchronous federated learning. One round is one server step.

    Nodes answer a train message as for Flower's FedAvg: with their trained arrays and metrics. `num-examples` and
    `train_loss` are read from the metrics.

    Args:
        algorithm: What the server does with updates; default: `fadas.FADAS()`.
        schedule: M_c, M and the refill rule; default: 8 nodes, a step after every 4 updates. With a robust combine rule
            a step takes one update of each client, unless `per_client` says otherwise.
        seed: The seed of the choice of nodes.
        checks: The checks that an update must pass. The default of `norm_factor` is 20, except with differential
            privacy, which clips deltas itself. The default of `examples_factor` is 10 if the combine rule weighs by
            examples. 0 turns either of them off.
        trainable: A function that says by an array's name whether it is trained. The other arrays are averaged over
            the step, and nodes may leave them out. Default: all are trained except BatchNorm's statistics.
        reply: What nodes answer with: "arrays", or "delta" for the difference from the arrays they received.
        folder: The folder to keep the run in: metrics as the simulator writes them, and a checkpoint after every
            update. Starting again with the same folder resumes the run. None: nothing is kept.
        sinks: Trackers that also receive the run: "tensorboard", "wandb", "mlflow", a table with such a name and its
            arguments, or an object with the methods of `fadas.runs.sinks.Sink`. They need a folder.
        name: The name of the run's folder within `folder`.
        eval_every: The interval between calls of `evaluate_fn`: a number of server steps, or a text such as
            "50 updates" or "60 seconds".
        metric: What the run is judged by: a name among the metrics that `evaluate_fn` returns, or for names of your own
            `fadas.Metric("score", better="higher")`. None: the accuracy if it is measured, else the first metric.
        target: A value of the metric. The report says when the run first reached it.
        deadline: The seconds that a node may take for a job.
        patience: The seconds to wait when no node is connected.
        poll: The seconds between polls.

    Example:
        >>> strategy = AsyncStrategy(fadas.FADAS(eta=0.01), fadas.Schedule(concurrency=8, buffer=4), folder="runs/mine")
        >>> result = strategy.start(grid, initial_arrays, num_rounds=100, evaluate_fn=evaluate)
    """

    def __init__(
        self,
        algorithm: Algorithm | None = None,
        schedule: Schedule | None = None,
        *,
        seed: int = 0,
        checks: Checks | None = None,
        trainable: Trainable = is_trainable,
        reply: Reply = "arrays",
        folder: str | Path | None = None,
        sinks: Sequence[Sink | str | Table] = (),
        name: str = "fadas",
        eval_every: int | str = 1,
        metric: str | Metric | None = None,
        target: float | None = None,
        deadline: float = 600.0,
        patience: float = 300.0,
        poll: float = 0.2,
    ) -> None:
        whole_number(seed=seed)
        algorithm = algorithm or FADAS()
        if schedule is not None and (schedule.refill == "round") != (algorithm.refill == "round"):
            text = 'the schedule has refill = "%s", but the algorithm "%s"; use algorithm.schedule(concurrency, buffer)'
            log(WARNING, text, schedule.refill, algorithm.refill)
        self.options = Options(
            algorithm=algorithm,
            schedule=with_default_limit(schedule or algorithm.schedule(8, 4), algorithm),
            seed=int(seed),  # Flower's records do not take NumPy's integers
            checks=with_default_checks(checks or Checks(), algorithm),
            trainable=trainable,
            reply=reply,
            folder=Path(folder).absolute() if folder else None,
            sinks=prepare_sinks(sinks),
            name=name,
            eval_every=eval_every,
            metric=Metric(metric) if isinstance(metric, str) else metric,
            target=target,
            deadline=deadline,
            patience=patience,
            poll=poll,
        )

    @classmethod
    def from_run_config(cls, config: Mapping[str, Any], **options: Any) -> "AsyncStrategy":
        """Return the strategy that a Flower app's run config describes.

        Args:
            config: The run config. `algorithm` is the name of a preset, `algorithm-*` are its parameters.
                `algorithm-combine`, `algorithm-optimizer` and `algorithm-step-size` exchange a part of it, and
                `algorithm-combine-*` are parameters of the part. `concurrency`, `buffer` and `per-client` are the
                schedule. `sinks` holds names of sinks, with commas between them, and `sinks-wandb-*` are arguments of
                the sink "wandb". `seed`, `deadline`, `patience`, `eval-every`, `metric`, with its `better` and
                `format`, `target` and `folder` are options of the strategy.
            options: Other options of the strategy.

        Example:
            >>> AsyncStrategy.from_run_config({"algorithm": "fadas-da", "algorithm-tau-c": 8, "concurrency": 8})
        """
        algorithm = algorithm_from_run_config(config)
        schedule = schedule_from_run_config(config, algorithm)
        if name := str(config.get("metric", "")):
            better, format = config.get("better") or None, config.get("format") or None
            options["metric"] = Metric(name, better, format)  # pyright: ignore[reportArgumentType]
        # In a run config an empty string says "not set"; 0 is a number like any other.
        given: dict[str, Any] = {
            key.replace("-", "_"): kind(config[key])
            for key, kind in _FROM_RUN_CONFIG.items()
            if config.get(key, "") != ""
        }
        if sinks := sinks_from_run_config(config):
            given["sinks"] = sinks
        for key, likely in find_misspelt(config).items():
            log(WARNING, "%s is not a setting of fadas; did you mean %s?", key, likely)
        if not (given.get("folder") or options.get("folder")):
            log(WARNING, "folder is not set: no model is kept, and the run cannot be resumed; set an absolute path")
        name = str(config.get("algorithm", "fadas")).rpartition(":")[2]  # of "mine:Method" the last part
        strategy = cls(algorithm, schedule, name=name, **{**given, **options})
        strategy.options = replace(strategy.options, app=shown_settings(config))
        return strategy

    def summary(self) -> None:
        """Log the algorithm and the schedule."""
        log(INFO, "\t├──> %s", self.options.algorithm)
        log(INFO, "\t└──> %s, deadline %.0f s", self.options.schedule, self.options.deadline)

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        timeout: float = math.inf,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None = None,
    ) -> Result:
        """Train until `num_rounds` server steps are done.

        Args:
            grid: Flower's grid.
            initial_arrays: The initial model.
            num_rounds: The number of server steps.
            timeout: Stop after this many seconds without a server step.
            train_config: Settings that are sent to nodes with every train message.
            evaluate_config: Ignored: nodes get no evaluate messages.
            evaluate_fn: A function of (step, arrays) that evaluates the model after a server step.

        Returns:
            The final arrays, and the metrics of every step.

        Raises:
            Diverged: Training diverged.
        """
        at_least(1, num_rounds=num_rounds)
        if evaluate_config is not None:
            log(WARNING, "evaluate_config is ignored: AsyncStrategy sends no evaluate messages; use evaluate_fn")
        self.summary()
        config = train_config or ConfigRecord()
        run = Federation(self.options, grid, initial_arrays, config, evaluate_fn, num_rounds)
        return run.play(timeout)

    # Flower's synchronous hooks: AsyncStrategy never waits for a round, so there is nothing for them to do.

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> list[Message]:
        """Not used."""
        raise NotImplementedError("AsyncStrategy sends messages one by one: use start()")

    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> tuple[None, None]:
        """Not used."""
        raise NotImplementedError("AsyncStrategy takes replies one by one: use start()")

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> list[Message]:
        """Send no evaluate messages."""
        return []

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> None:
        """Not used."""
        return
