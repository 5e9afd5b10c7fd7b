"""The summary of a run: summary.json."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from fadas.core.records import Record, tau_statistics

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


def summarise(records: Sequence[Record], target: float | None = None, diverged: str | None = None) -> Outcome:
    """Return the results of a run, computed from its records.

    Args:
        records: The run's records.
        target: An accuracy to reach.
        diverged: Why the run diverged. Such a run has no accuracy.
    """
    reached = [(record.time, value) for record in records if (value := measured_accuracy(record)) is not None]
    last = records[-1] if records else None
    accuracies = [value for _, value in reached[-_LAST:]] if diverged is None else []
    mean = sum(accuracies) / len(accuracies) if accuracies else None
    target = target if diverged is None else None
    return Outcome(
        step=last.step if last else 0,
        updates=last.updates if last else 0,
        time=last.time if last else 0.0,
        dropped=last.dropped if last else 0,
        expired=last.expired if last else 0,
        refused=last.refused if last else {},
        privacy=last.privacy if last else None,
        metrics=dict(last.metrics) if last and last.metrics is not None else None,
        **tau_statistics(max(job.tau for job in record.jobs) for record in records),
        accuracy=mean,
        accuracy_std=None if mean is None else math.sqrt(sum((a - mean) ** 2 for a in accuracies) / len(accuracies)),
        target=target,
        time_to_target=None if target is None else next((time for time, a in reached if a >= target), None),
        diverged=diverged,
    )


def measured_accuracy(record: Record) -> float | None:
    """Return the accuracy after a step, if it was measured and is a number."""
    accuracy = (record.metrics or {}).get("accuracy")
    return accuracy if accuracy is not None and math.isfinite(accuracy) else None
