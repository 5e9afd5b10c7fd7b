"""A run in a few numbers: summary.json."""

import math
from collections.abc import Iterable
from typing import Any

from fadas.core.records import tau_statistics

Line = dict[str, Any]
_COUNTS = ("step", "updates", "time", "dropped", "expired", "refused")
_NOTHING: Line = {"step": 0, "updates": 0, "time": 0.0, "dropped": 0, "expired": 0, "refused": {}, "metrics": None}


def summarise(records: Iterable[Line], target: float | None = None, diverged: str | None = None) -> Line:
    """What a run amounts to, from its records alone. One that `diverged`, and why, has no accuracy: it led nowhere."""
    lines = list(records)
    reached = [(line["time"], a) for line in lines if (a := _accuracy(line)) is not None]
    last = lines[-1] if lines else _NOTHING
    summary: Line = {
        **{key: last[key] for key in _COUNTS},
        **({"privacy": last["privacy"]} if last.get("privacy") else {}),
        **tau_statistics(max(job["tau"] for job in line["jobs"]) for line in lines),
        "metrics": last["metrics"],
    }
    if diverged is not None:
        return {**summary, "diverged": diverged}
    accuracies = [accuracy for _, accuracy in reached[-5:]]
    if accuracies:  # the paper's convention: mean and standard deviation over the last five
        mean = sum(accuracies) / len(accuracies)
        spread = math.sqrt(sum((a - mean) ** 2 for a in accuracies) / len(accuracies))
        summary |= {"accuracy": mean, "accuracy_std": spread}
    if target is not None:
        times = (time for time, accuracy in reached if accuracy >= target)
        summary |= {"target": target, "time_to_target": next(times, None)}
    return summary


def _accuracy(line: Line) -> float | None:
    """None also where it was no number: NaN, which is null in a line that was read back."""
    accuracy = (line["metrics"] or {}).get("accuracy")
    return accuracy if accuracy is not None and math.isfinite(accuracy) else None
