"""The summary of a run: summary.json."""

import math
from collections import Counter, deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass, fields, replace
from typing import Any

from fadas.core.records import Record, counted_tau_statistics

_LAST = 5  # evaluations: the paper reports the mean and standard deviation over the last five


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
        accuracy: The mean over the last five evaluations. None if the run diverged or measured no accuracy.
        accuracy_std: Their standard deviation.
        target: The target accuracy, if there was one.
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
    target: float | None = None
    time_to_target: float | None = None
    diverged: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return the fields that are not None, always `metrics`, and `time_to_target` if there is a target."""
        always = {"metrics", "time_to_target"} if self.target is not None else {"metrics"}
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if value is not None or name in always}


@dataclass(frozen=True, kw_only=True)
class Summary(Outcome):
    """The content of summary.json: the identity, results and origin of a run.

    Args:
        experiment: The experiment's name.
        algorithm: The algorithm's label in the experiment.
        seed: The run's seed.
        place: The algorithm's place in the experiment file.
        wall: Seconds of computing.
        device: The hardware that trained the clients.
        versions: Versions of fadas, torch and Python.
        commit: The commits of the code that trained it.
        key: Of a deployment: the key of its jobs' seeds.
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
        target: An accuracy to reach.

    Example:
        >>> tally = Tally(target=0.9)
        >>> for record in simulation:
        ...     tally.add(record)
        >>> print(tally.outcome().accuracy)
    """

    def __init__(self, target: float | None = None) -> None:
        self._target = target
        self._taus: Counter[int] = Counter()  # how many steps have this largest delay
        self._accuracies: deque[float] = deque(maxlen=_LAST)
        self._reached: float | None = None  # when an evaluation first reached the target
        self._last: Record | None = None

    @property
    def step(self) -> int:
        """The number of the last step; 0 before the first one."""
        return self._last.step if self._last else 0

    def add(self, record: Record) -> None:
        """Take the record of the next step."""
        self._taus[max(job.tau for job in record.jobs)] += 1
        self._take_evaluation(record)

    @property
    def lacks_evaluation(self) -> bool:
        """Whether the model was not evaluated after the last step."""
        return self._last is not None and self._last.metrics is None

    def add_evaluation(self, metrics: dict[str, float] | None) -> Record:
        """Add an evaluation to the last record, which lacks one. Return the new record."""
        assert self._last is not None
        record = replace(self._last, metrics=metrics)
        self._take_evaluation(record)
        return record

    def _take_evaluation(self, record: Record) -> None:
        self._last = record
        if (accuracy := measured_accuracy(record)) is None:
            return
        self._accuracies.append(accuracy)
        if self._target is not None and self._reached is None and accuracy >= self._target:
            self._reached = record.time

    def outcome(self, diverged: str | None = None) -> Outcome:
        """Return the results so far.

        Args:
            diverged: Why the run diverged. Such a run has no accuracy.
        """
        last = self._last
        accuracies = self._accuracies if diverged is None else ()
        mean, deviation = _mean_and_deviation(accuracies)
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
            accuracy=mean,
            accuracy_std=deviation,
            target=self._target if diverged is None else None,
            time_to_target=self._reached if diverged is None else None,
            diverged=diverged,
        )


def _mean_and_deviation(values: Collection[float]) -> tuple[float | None, float | None]:
    if not values:
        return None, None
    mean = sum(values) / len(values)
    return mean, math.sqrt(sum((value - mean) ** 2 for value in values) / len(values))


def summarise(records: Iterable[Record], target: float | None = None, diverged: str | None = None) -> Outcome:
    """Return the results of a run, computed from its records.

    Args:
        records: The run's records.
        target: An accuracy to reach.
        diverged: Why the run diverged. Such a run has no accuracy.
    """
    tally = Tally(target)
    for record in records:
        tally.add(record)
    return tally.outcome(diverged)


def measured_accuracy(record: Record) -> float | None:
    """Return the accuracy after a step, if it was measured and is a number."""
    accuracy = (record.metrics or {}).get("accuracy")
    return accuracy if accuracy is not None and math.isfinite(accuracy) else None
