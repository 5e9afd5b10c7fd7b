"""The evaluation of a deployment's models: when it is due, and what it measured."""

from collections.abc import Callable

from flwr.app import ArrayRecord, MetricRecord

from fadas.core.interval import Interval, Position
from fadas.core.records import Record

EvaluateFn = Callable[[int, ArrayRecord], MetricRecord | None]


class Evaluator:
    """Calls the user's function for models that are due.

    Args:
        function: Evaluates the model after a server step. None: nothing is evaluated.
        interval: The interval between evaluations.
        steps: The number of server steps of the run. The model after the last one is always evaluated.

    Attributes:
        records: What the function returned, by step.
    """

    def __init__(self, function: EvaluateFn | None, interval: Interval, steps: int) -> None:
        self.records: dict[int, MetricRecord] = {}
        self._function, self._interval, self._steps = function, interval, steps
        self._position = Position(0, 0, 0.0)  # of the last record

    def continue_after(self, step: int, updates: int, time: float) -> None:
        """Continue after a server step of an earlier start."""
        self._position = Position(step, updates, time)

    def is_due(self, record: Record) -> bool:
        """Return whether to evaluate the model of a new record."""
        before, self._position = self._position, Position(record.step, record.updates, record.time)
        if self._function is None:
            return False
        return self._interval.is_due(before, self._position) or record.step == self._steps

    @property
    def is_idle(self) -> bool:
        """Whether there is no function."""
        return self._function is None

    def measure(self, step: int, arrays: ArrayRecord) -> dict[str, float] | None:
        """Return the metrics of a model that are numbers. None: the function returned none."""
        record = self._function(step, arrays) if self._function else None
        if record is None:
            return None
        self.records[step] = record
        return {name: float(value) for name, value in record.items() if isinstance(value, int | float)}
