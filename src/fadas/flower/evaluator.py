"""The evaluation of a deployment's models: when it is due, and what it measured."""

from collections.abc import Callable, Mapping

from flwr.app import ArrayRecord, MetricRecord

from fadas.core.interval import Interval, Position
from fadas.core.metrics import Metric
from fadas.core.records import Record
from fadas.errors import ConfigError

EvaluateFn = Callable[[int, ArrayRecord], MetricRecord | None]


class Evaluator:
    """Calls the user's function for models that are due.

    Args:
        function: Evaluates the model after a server step. None: nothing is evaluated.
        interval: The interval between evaluations.
        steps: The number of server steps of the run. The model after the last one is always evaluated.
        metric: What the user wants the run to be judged by. None: nothing is said.
        target: A value of the metric to reach.

    Attributes:
        records: What the function returned, by step.
    """

    def __init__(
        self,
        function: EvaluateFn | None,
        interval: Interval,
        steps: int,
        metric: Metric | None = None,
        target: float | None = None,
    ) -> None:
        self._metric, self._target = metric, target
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
        """Return the metrics of a model that are numbers. None: the function returned none.

        Raises:
            ConfigError: The initial model shows that the metric is not measured, or that the target is no goal.
        """
        record = self._function(step, arrays) if self._function else None
        if record is None:
            return None
        self.records[step] = record
        metrics = {name: float(value) for name, value in record.items() if isinstance(value, int | float)}
        if self._metric and not step:
            _check_initial(metrics, self._metric, self._target)
        return metrics


def _check_initial(metrics: Mapping[str, float], metric: Metric, target: float | None) -> None:
    if metric.name not in metrics:
        found = ", ".join(metrics) or "nothing"
        raise ConfigError(f"metric: evaluate_fn does not measure {metric.name!r}; it measures: {found}")
    if target is not None and (why := metric.why_reached(target, metrics)):
        raise ConfigError(f"target = {target:g} is reached before the run: {why}")
