"""The comparison of finished runs: at equal virtual time, at equal client updates, and time to a target accuracy."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, pstdev

from fadas.core.records import TAUS
from fadas.runs.reader import Run, group_runs


@dataclass(frozen=True)
class Row:
    """One algorithm, the mean over its seeds. None: not evaluated by then, or not every seed reached the target.

    Where a seed `diverged` there are no means: those of the others would flatter it.
    """

    algorithm: str
    seeds: int
    at_time: float | None
    at_time_std: float
    at_updates: float | None
    at_updates_std: float
    time_to_target: float | None
    reached: int  # seeds that reached the target
    tau_max: float
    tau_avg: float
    tau_med: float
    diverged: int = 0  # seeds


@dataclass(frozen=True)
class Comparison:
    # the virtual time and the number of updates at which runs are compared: the least that all reach, but for those
    # that diverged
    time: float
    updates: int
    target: float | None
    rows: list[Row]


def compare(runs: Sequence[Run]) -> Comparison:
    sound = [run for run in runs if not run.diverged]
    time = min((run.records[-1].time for run in sound), default=0.0)
    updates = min((run.records[-1].updates for run in sound), default=0)
    targets = {run.summary.target for run in sound}
    target = targets.pop() if len(targets) == 1 else None
    rows = [_row(name, group, time, updates) for name, group in group_runs(runs).items()]
    return Comparison(time, updates, target, rows)


def _row(name: str, runs: list[Run], time: float, updates: int) -> Row:
    if diverged := sum(bool(run.diverged) for run in runs):
        return Row(name, len(runs), None, 0.0, None, 0.0, None, 0, 0.0, 0.0, 0.0, diverged)
    at_time = [_accuracy(run, "time", time) for run in runs]
    at_updates = [_accuracy(run, "updates", updates) for run in runs]
    to_target = [run.summary.time_to_target for run in runs]
    return Row(
        name,
        len(runs),
        _mean(at_time),
        _std(at_time),
        _mean(at_updates),
        _std(at_updates),
        _mean(to_target),
        sum(value is not None for value in to_target),
        *(fmean(getattr(run.summary, key) for run in runs) for key in TAUS),
        diverged=0,
    )


def _accuracy(run: Run, axis: str, limit: float) -> float | None:
    """The last evaluation up to the limit."""
    seen = [metrics.get("accuracy") for record, metrics in run.evaluations if getattr(record, axis) <= limit]
    return seen[-1] if seen else None


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known and len(known) == len(values) else None


def _std(values: list[float | None]) -> float:
    return pstdev([value for value in values if value is not None] or [0.0])


def table_header(comparison: Comparison) -> list[str]:
    """Column titles; a newline is where a title may break."""
    target = f"time to\n{comparison.target:.0%}" if comparison.target else "time to\ntarget"
    return [
        "algorithm",
        f"accuracy\nat time {comparison.time:.0f}" if comparison.updates else "accuracy\nat equal time",
        f"accuracy at\n{comparison.updates:,} updates" if comparison.updates else "accuracy at\nequal updates",
        target,
        "tau_max",
        "tau_avg",
        "tau_med",
    ]


def table_cells(comparison: Comparison) -> list[list[str]]:
    """The table as text, in the order of the header."""
    alike = len({row.seeds for row in comparison.rows}) == 1
    names = [row.algorithm if alike else f"{row.algorithm}, seeds: {row.seeds}" for row in comparison.rows]
    return [[name, *_numbers(row, comparison.target)] for name, row in zip(names, comparison.rows, strict=True)]


def _numbers(row: Row, target: float | None) -> list[str]:
    if row.diverged:
        some = "" if row.diverged == row.seeds else f", {row.diverged} of {row.seeds}"
        return [f"diverged{some}"] * 2 + ["-"] * 4
    return [
        _percent(row.at_time, row.at_time_std, row.seeds),
        _percent(row.at_updates, row.at_updates_std, row.seeds),
        _when(row, target),
        f"{row.tau_max:.0f}",
        f"{row.tau_avg:.2f}",
        f"{row.tau_med:.1f}",
    ]


def _when(row: Row, target: float | None) -> str:
    if target is None:
        return "-"
    if row.time_to_target is not None:
        return f"{row.time_to_target:.1f}"
    return f"{row.reached} of {row.seeds}" if row.reached else "never"


def _percent(value: float | None, std: float, seeds: int) -> str:
    if value is None:
        return "-"
    return f"{value:.1%} ± {100 * std:.1f}" if seeds > 1 else f"{value:.1%}"
