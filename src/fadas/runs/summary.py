"""The summary of a run: summary.json."""

import math
from collections import Counter, deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from fadas.core.metrics import ACCURACY, Better, Format, Metric, choose_metric
from fadas.core.records import TAUS, Record, counted_tau_statistics
from fadas.validate import not_negative

LAST = 5  # evaluations: the paper reports the mean and standard deviation over the last five
_LONGEST_NAME = 255  # characters; the names of folders are made of these names


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The results of a run, computed from its records.

    Args:
        step: Server steps.
        updates: Client updates.
        time: When the last step was taken.
        dropped: Jobs that ended without an update.
        expired: Jobs that missed their deadline.
        refused: Updates that the server refused, by reason.
        tau_max: The largest delay.
        tau_avg: The mean over the steps of each step's largest delay.
        tau_med: The median over the steps of each step's largest delay.
        metrics: The last evaluation, if the last step was evaluated.
        privacy: Epsilon and delta spent, with differential privacy.
        accuracy: The mean accuracy over the last five evaluations. None if the run diverged, or is judged by another
            metric.
        accuracy_std: Their standard deviation.
        metric: The metric that the run is judged by. None: the accuracy.
        better: Which direction of this metric is better.
        metric_format: How its values are shown.
        final: Its mean over the last five evaluations. None if the run diverged, or is judged by the accuracy.
        final_std: Their standard deviation.
        best: The best evaluation, if the run keeps the best model or may stop early.
        best_step: The server step of that evaluation.
        target: The target value of the metric, if there was one.
        time_to_target: When an evaluation first reached it. None: never.
        diverged: Why the run ended early, if it diverged.
    """

    step: int
    updates: int
    time: float
    dropped: int
    expired: int
    refused: dict[str, int]
    tau_max: int | float
    tau_avg: float
    tau_med: float
    metrics: dict[str, float | None] | None
    privacy: dict[str, float] | None = None
    accuracy: float | None = None
    accuracy_std: float | None = None
    metric: str | None = None
    better: Better | None = None
    metric_format: Format | None = None
    final: float | None = None
    final_std: float | None = None
    best: float | None = None
    best_step: int | None = None
    target: float | None = None
    time_to_target: float | None = None
    diverged: str | None = None

    @property
    def judged_by(self) -> Metric:
        """The metric that the run is judged by."""
        return Metric(self.metric, self.better, self.metric_format) if self.metric else ACCURACY  # pyright: ignore

    @property
    def score(self) -> float | None:
        """The mean of the metric over the last five evaluations. None if the run diverged or did not measure it."""
        return self.final if self.metric else self.accuracy

    @property
    def score_std(self) -> float | None:
        """The standard deviation of the metric over the last five evaluations."""
        return self.final_std if self.metric else self.accuracy_std

    def as_dict(self) -> dict[str, Any]:
        """Return the fields that are not None, always `metrics`, and `time_to_target` if there is a target."""
        always = {"metrics", "time_to_target"} if self.target is not None else {"metrics"}
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if value is not None or name in always}


@dataclass(frozen=True, kw_only=True)
class Summary(Outcome):
    """The content of summary.json: the identity, results and origin of a run.

    It also has the fields of `Outcome`.

    Args:
        experiment: The experiment's name.
        algorithm: The algorithm's label in the experiment.
        seed: The run's seed.
        place: The algorithm's place in the experiment file.
        wall: Seconds of computing.
        device: The hardware that trained the clients.
        versions: Versions of fadas, torch and Python.
        commit: The commits of the code that trained it.
        key: The key of the jobs' seeds, for a deployment.
    """

    experiment: str
    algorithm: str
    seed: int
    place: int
    wall: float = 0.0
    device: str | None = None
    versions: dict[str, str] | None = None
    commit: str | None = None
    key: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return the content of summary.json. The identity of the run comes first."""
        values = super().as_dict()
        return {**{name: values[name] for name in ("experiment", "algorithm", "seed", "place")}, **values}


class Tally:
    """The results of a run so far, from records that are added one by one and not kept.

    Memory does not grow with the run. The delays are counted by value, because the median needs all of them.

    Args:
        target: A value of the metric to reach.
        metric: The metric that the run is judged by. None: chosen at the first evaluation, as for a new run.

    Attributes:
        best: The best value so far.
        best_step: The server step of the best value.
        since_best: The number of evaluations since the best one.

    Example:
        >>> tally = Tally(target=0.9)
        >>> for record in simulation:
        ...     tally.add(record)
        >>> print(tally.outcome().accuracy)
    """

    def __init__(self, target: float | None = None, metric: Metric | None = None) -> None:
        self._target, self._metric = target, metric
        self._taus: Counter[int] = Counter()  # how many steps have this largest delay
        self._values: deque[float] = deque(maxlen=LAST)
        self._reached: float | None = None  # when an evaluation first reached the target
        self._last: Record | None = None
        self._empty = True
        self.best: float | None = None
        self.best_step = 0
        self.since_best = 0

    @property
    def step(self) -> int:
        """The number of the last step; 0 before the first one."""
        return self._last.step if self._last else 0

    @property
    def is_empty(self) -> bool:
        """Whether no record was added, not even that of the initial model."""
        return self._empty

    def add(self, record: Record) -> None:
        """Take the next record."""
        self._empty = False
        if record.step:
            self._last = record
            self._taus[max(job.tau for job in record.jobs)] += 1
        self._take_evaluation(record)

    @property
    def lacks_evaluation(self) -> bool:
        """Whether the model was not evaluated after the last step."""
        return self._last is not None and self._last.metrics is None

    def add_evaluation(self, metrics: dict[str, float] | None) -> Record:
        """Add an evaluation to the last record, which lacks one. Return the new record."""
        assert self._last is not None
        self._last = replace(self._last, metrics=metrics)
        self._take_evaluation(self._last)
        return self._last

    def _take_evaluation(self, record: Record) -> None:
        if record.metrics is None:
            return
        metric = self._metric = self._metric or choose_metric(name for name in record.metrics if name != "loss")
        if (value := metric.value(record.metrics)) is None:
            self.since_best += 1
            return
        if record.step:  # the initial model is no result of the run
            self._values.append(value)
        if self.best is None or metric.is_better(value, self.best):
            self.best, self.best_step, self.since_best = value, record.step, 0
        else:
            self.since_best += 1
        if self._target is not None and self._reached is None and metric.reaches(value, self._target):
            self._reached = record.time

    def outcome(self, diverged: str | None = None, with_best: bool = False) -> Outcome:
        """Return the results so far.

        Args:
            diverged: Why the run diverged. Such a run has no result.
            with_best: Also say what the best evaluation was.
        """
        last, metric = self._last, self._metric or ACCURACY
        mean, deviation = _mean_and_deviation(self._values if diverged is None else ())
        if metric.is_accuracy:
            judged: dict[str, Any] = {"accuracy": mean, "accuracy_std": deviation}
        else:
            judged = {"metric": metric.name, "better": metric.better, "metric_format": metric.format}
            judged |= {"final": mean, "final_std": deviation}
        if with_best and self.best is not None:
            judged |= {"best": self.best, "best_step": self.best_step}
        return Outcome(
            step=self.step,
            updates=last.updates if last else 0,
            time=last.time if last else 0.0,
            dropped=last.dropped if last else 0,
            expired=last.expired if last else 0,
            refused=last.refused if last else {},
            privacy=last.privacy if last else None,
            metrics=dict(last.metrics) if last and last.metrics is not None else None,
            **counted_tau_statistics(self._taus),
            **judged,
            target=self._target if diverged is None else None,
            time_to_target=self._reached if diverged is None else None,
            diverged=diverged,
        )


def _mean_and_deviation(values: Collection[float]) -> tuple[float | None, float | None]:
    if not values:
        return None, None
    mean = sum(values) / len(values)
    return mean, math.sqrt(sum((value - mean) ** 2 for value in values) / len(values))


def require_possible(summary: Summary) -> None:
    """Raise a ValueError if no run can have this summary."""
    require_counts(step=summary.step, updates=summary.updates, place=summary.place)
    require_losses(summary)
    not_negative(time=summary.time, wall=summary.wall, accuracy_std=summary.accuracy_std or 0.0)
    not_negative(final_std=summary.final_std or 0.0)
    require_counts(best_step=summary.best_step or 0)
    summary.judged_by  # noqa: B018  # raises an error for an unknown metric without a direction
    not_negative(time_to_target=summary.time_to_target or 0.0)
    not_negative(**{name: getattr(summary, name) for name in TAUS})
    require_seeds([summary.seed])
    if summary.diverged == "":
        raise ValueError("diverged must say why")
    for name in ("experiment", "algorithm"):
        if len(getattr(summary, name)) > _LONGEST_NAME:
            raise ValueError(f"{name} must have at most {_LONGEST_NAME} characters")


def require_losses(so_far: Outcome | Record) -> None:
    """Refuse impossible numbers of lost jobs, and an impossible loss of privacy."""
    require_counts(dropped=so_far.dropped, expired=so_far.expired)
    require_counts(**{f"refused.{reason}": count for reason, count in so_far.refused.items()})
    not_negative(**{f"privacy.{name}": value for name, value in (so_far.privacy or {}).items()})


def require_counts(minimum: int = 0, **values: int) -> None:
    """Refuse numbers below the minimum, and numbers that figures, which use floats, cannot draw exactly."""
    for name, value in values.items():
        if not minimum <= value <= 2**53:
            raise ValueError(f"{name} must be from {minimum} to 2^53, got {str(value)[:20]}")


def require_seeds(seeds: Sequence[int]) -> None:
    """Refuse negative seeds, and seeds of more than 64 bits."""
    for seed in seeds:
        if not 0 <= seed < 2**64:
            raise ValueError(f"a seed must be from 0 to 2^64 - 1, got {str(seed)[:20]}")


def summarise(
    records: Iterable[Record], target: float | None = None, diverged: str | None = None, metric: Metric | None = None
) -> Outcome:
    """Return the results of a run, computed from its records.

    Args:
        records: The run's records.
        target: A value of the metric to reach.
        diverged: Why the run diverged. Such a run has no result.
        metric: The metric that the run is judged by. None: chosen at the first evaluation.
    """
    tally = Tally(target, metric)
    for record in records:
        tally.add(record)
    return tally.outcome(diverged)


def measured_accuracy(record: Record) -> float | None:
    """Return the accuracy after a step, if it was measured and is a number."""
    return ACCURACY.value(record.metrics)
