"""The typed settings of one run."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fadas.algorithms.algorithm import Algorithm
from fadas.core.ledger import Refill, Schedule
from fadas.core.update_checks import Checks
from fadas.registry import Table
from fadas.simulation.delays import Delays
from fadas.training.sgd import LocalSGD


@dataclass(frozen=True)
class ScheduleSettings:
    concurrency: int
    buffer: int
    refill: Refill | None = None  # none: the algorithm's own


@dataclass(frozen=True)
class RunSettings:
    """The run ends at the first of its limits; with `stop_at_target` also at the first evaluation that reaches it."""

    steps: int | None = None
    updates: int | None = None
    time: float | None = None
    eval_every: int = 1
    target: float | None = None
    stop_at_target: bool = False
    seeds: tuple[int, ...] = (0,)
    checkpoint_every: int = 50  # server steps; 0: never
    tensorboard: bool = False

    def __post_init__(self) -> None:
        if self.steps is None and self.updates is None and self.time is None:
            raise ValueError("one of steps, updates and time must be given")
        for name in ("steps", "updates", "time", "eval_every"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(f"{name} must be positive, not {value}")
        if self.checkpoint_every < 0:
            raise ValueError(f"checkpoint_every must not be negative, not {self.checkpoint_every}")
        if self.target is not None and not 0 < self.target <= 1:
            raise ValueError(f"target must be an accuracy above 0 and at most 1, not {self.target}")
        if self.stop_at_target and self.target is None:
            raise ValueError("stop_at_target needs a target")
        if not self.seeds or any(seed < 0 for seed in self.seeds) or len(set(self.seeds)) < len(self.seeds):
            raise ValueError(f"seeds must be different numbers, none negative, not {list(self.seeds)}")


@dataclass(frozen=True)
class RunConfig:
    """Everything about one run: one algorithm, one seed."""

    experiment: str
    label: str
    seed: int
    place: int  # among the experiment's algorithms
    clients: int
    algorithm: Algorithm
    schedule: Schedule
    delays: Delays
    local: LocalSGD
    checks: Checks
    run: RunSettings
    task: Callable[[], Any]
    executor: Callable[..., Any]
    device: str  # where the server's models are
    threads: int | None
    tables: Table

    @property
    def id(self) -> str:
        return f"{self.label}-{self.seed}"
