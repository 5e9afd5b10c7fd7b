"""An asynchronous strategy for Flower, on the same `Server` as the simulator.

Flower's own strategies send a round, wait for all of it and aggregate. This one keeps `concurrency` nodes busy, takes
replies one by one as they come, and steps after every `buffer` of them.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from logging import INFO, WARNING
from pathlib import Path
from typing import Any, Literal

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.common.logger import log
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from fadas.algorithms.algorithm import Algorithm
from fadas.algorithms.presets import ALGORITHMS
from fadas.core.ledger import Schedule
from fadas.core.update_checks import Checks
from fadas.flower.arrays import Trainable, trainable
from fadas.flower.federation import Federation
from fadas.registry import build, lookup
from fadas.validate import whole_number


class AsyncStrategy(Strategy):
    """`AsyncStrategy(fadas.FADAS(), Schedule(8, 4)).start(grid, arrays, num_rounds=100)`: one round is one server step.

    Clients answer a train message with their trained `arrays` and metrics, as for Flower's FedAvg; or, with
    `reply="delta"`, with the trained arrays' difference from what they were sent. They may leave out arrays that
    `trainable(name)` excludes; those that they send are averaged over the step. `deadline` is the seconds that a node
    may take for a job, `patience` how long to wait when there is no node at all. With `folder`, everything is kept
    there: metrics as the simulator writes them (`fadas report` draws them), and a checkpoint after every update, from
    which a new start with the same folder goes on.
    """

    def __init__(
        self,
        algorithm: Algorithm | None = None,
        schedule: Schedule | None = None,
        *,
        seed: int = 0,
        checks: Checks | None = None,
        trainable: Trainable = trainable,
        reply: Literal["arrays", "delta"] = "arrays",
        folder: str | Path | None = None,
        name: str = "fadas",
        eval_every: int = 1,
        deadline: float = 600.0,
        patience: float = 300.0,
        poll: float = 0.2,
    ) -> None:
        self.algorithm = algorithm or ALGORITHMS["fadas"]()
        self.schedule = schedule or self.algorithm.schedule(8, 4)
        whole_number(seed=seed)
        self.seed = int(seed)  # of NumPy's, Flower's records take none
        self.checks, self.trainable, self.reply = checks, trainable, reply
        self.folder, self.name = None if folder is None else Path(folder), name
        self.eval_every, self.deadline, self.patience, self.poll = eval_every, deadline, patience, poll
        if reply not in ("arrays", "delta"):
            raise ValueError(f"reply must be 'arrays' or 'delta', not {reply!r}")
        if eval_every < 1:
            raise ValueError(f"eval_every must be at least 1, not {eval_every}")
        if not (deadline > 0 and patience >= 0 and poll > 0):
            given = f"{deadline}, {patience} and {poll}"
            raise ValueError(f"deadline, patience and poll are seconds, and only patience may be 0; not {given}")

    @classmethod
    def from_run_config(cls, config: Mapping[str, Any], **options: Any) -> "AsyncStrategy":
        """From a Flower app's run config: `algorithm` names a preset, `algorithm-*` are its parameters."""
        label = str(config.get("algorithm", "fadas"))
        prefix = "algorithm-"
        table = {key[len(prefix) :].replace("-", "_"): v for key, v in config.items() if key.startswith(prefix)}
        algorithm = build(lookup(ALGORITHMS, "algorithm", label), table, "algorithm")
        schedule = algorithm.schedule(int(config.get("concurrency", 8)), int(config.get("buffer", 4)))
        known = {"seed": int, "deadline": float, "patience": float, "eval-every": int, "folder": str}
        # nothing but an empty string says "not given" in a run config; 0 is a number like any other
        given = {key.replace("-", "_"): kind(config[key]) for key, kind in known.items() if config.get(key, "") != ""}
        return cls(algorithm, schedule, name=label, **{**given, **options})

    def summary(self) -> None:
        log(INFO, "\t├──> %s", self.algorithm)
        log(INFO, "\t└──> %s, deadline %.0f s", self.schedule, self.deadline)

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
        """Train until `num_rounds` server steps are done, or (where it is given) for `timeout` seconds none was.

        Where training diverges, it raises `fadas.Diverged`.
        The model is evaluated by `evaluate_fn` alone: clients get no evaluate messages.
        """
        if num_rounds < 1:
            raise ValueError(f"num_rounds must be at least 1, not {num_rounds}")
        if evaluate_config is not None:
            log(WARNING, "evaluate_config is ignored: AsyncStrategy sends no evaluate messages; use evaluate_fn")
        self.summary()
        run = Federation(self, grid, initial_arrays, train_config or ConfigRecord(), evaluate_fn, num_rounds)
        return run.play(timeout)

    # Flower's synchronous hooks: a round never waits, so there is nothing for them to do.

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> list[Message]:
        raise NotImplementedError("AsyncStrategy sends messages one by one: use start()")

    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> tuple[None, None]:
        raise NotImplementedError("AsyncStrategy takes replies one by one: use start()")

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> list[Message]:
        return []

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> None:
        return None
