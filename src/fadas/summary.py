"""A run in a few numbers: summary.json."""

import math
from collections.abc import Iterable
from typing import Any

from fadas.ledger import tau_statistics

Line = dict[str, Any]
_COUNTS = ("step", "updates", "time", "dropped", "expired", "refused")
_NOTHING: Line = {"step": 0, "updates": 0, "time": 0.0, "dropped": 0, "expired": 0, "refused": {}, "metrics": None}


def summarise(records: Iterable[Line], target: float | None = None, diverged: str | None = None) -> Line:
    """What a run amounts to, from its records alone. One that `diverged`, and why, has no accuracy: it led nowhere."""
    lines = list(records)
    evaluated = [line for line in lines if line["metrics"]]
    last = lines[-1] if lines else _NOTHING
    summary: Line = {
        **{key: last[key] for key in _COUNTS},
        **({"privacy": last["privacy"]} if last.get("privacy") else {}),
        **tau_statistics(max(job["tau"] for job in line["jobs"]) for line in lines),
        "metrics": last["metrics"],
    }
    if diverged is not None:
        return {**summary, "diverged": diverged}
    accuracies = [line["metrics"]["accuracy"] for line in evaluated if "accuracy" in line["metrics"]][-5:]
    if accuracies:  # the paper's convention: mean and standard deviation over the last five
        mean = sum(accuracies) / len(accuracies)
        spread = math.sqrt(sum((a - mean) ** 2 for a in accuracies) / len(accuracies))
        summary |= {"accuracy": mean, "accuracy_std": spread}
    if target is not None:
        reached = (line["time"] for line in evaluated if line["metrics"].get("accuracy", 0.0) >= target)
        summary |= {"target": target, "time_to_target": next(reached, None)}
    return summary
