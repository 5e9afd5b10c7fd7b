"""The settings of a deployment."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from fadas.algorithms.algorithm import Algorithm
from fadas.core.ledger import Schedule
from fadas.core.update_checks import Checks
from fadas.flower.arrays import Trainable, is_trainable
from fadas.validate import at_least, one_of

Reply = Literal["arrays", "delta"]


@dataclass(frozen=True)
class Options:
    """What an `AsyncStrategy` was given. See there.

    Attributes:
        algorithm: What the server does with updates.
        schedule: M_c, M and the refill rule.
        seed: Seeds the choice of nodes and their training.
        checks: What an update must pass.
        trainable: Tells by its name whether an array is trained.
        reply: What nodes answer with.
        folder: Where the run is kept; None: nowhere.
        name: The name of the run's folder.
        eval_every: Evaluate after this many server steps.
        deadline: Seconds that a node may take for a job.
        patience: Seconds to wait when no node is connected.
        poll: Seconds between two looks for replies.
    """

    algorithm: Algorithm
    schedule: Schedule
    seed: int = 0
    checks: Checks | None = None
    trainable: Trainable = is_trainable
    reply: Reply = "arrays"
    folder: Path | None = None
    name: str = "fadas"
    eval_every: int = 1
    deadline: float = 600.0
    patience: float = 300.0
    poll: float = 0.2

    def __post_init__(self) -> None:
        one_of(("arrays", "delta"), reply=self.reply)
        at_least(1, eval_every=self.eval_every)
        if not (self.deadline > 0 and self.patience >= 0 and 0 < self.poll < math.inf):
            given = f"{self.deadline}, {self.patience} and {self.poll}"
            raise ValueError(f"deadline, patience and poll are seconds, and only patience may be 0; got {given}")
