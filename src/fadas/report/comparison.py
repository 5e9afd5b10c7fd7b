"""Compare finished runs: accuracy at equal time and at equal client updates, and the time to a target accuracy."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, pstdev

from fadas.core.records import TAUS
from fadas.runs.reader import Run, group_runs
from fadas.runs.summary import measured_accuracy


@dataclass(frozen=True)
class Row:
    """One algorithm. Values are means over its seeds.

    If a seed diverged, there are no means, because the mean of the other seeds would flatter the algorithm.

    Attributes:
        algorithm: The algorithm's label, or a longer name if runs of this label have different settings.
        seeds: The number of seeds.
        at_time: The accuracy at `Comparison.time`. None if a seed had not been evaluated by then.
        at_time_std: The standard deviation of `at_time` over the seeds.
        at_updates: The accuracy at `Comparison.updates`. None if a seed had not been evaluated by then.
        at_updates_std: The standard deviation of `at_updates` over the seeds.
        time_to_target: The time to the target accuracy. None if a seed did not reach it.
        reached: The number of seeds that reached the target.
        tau_max: The largest delay.
        tau_avg: The mean over the steps of each step's largest delay.
        tau_med: The median over the steps of each step's largest delay.
        diverged: The number of seeds that diverged.
    """

    algorithm: str
    seeds: int
    at_time: float | None
    at_time_std: float
    at_updates: float | None
    at_updates_std: float
    time_to_target: float | None
    reached: int
    tau_max: float
    tau_avg: float
    tau_med: float
    diverged: int = 0


@dataclass(frozen=True)
class Comparison:
    """A table that compares algorithms.

    Attributes:
        time: The time at which accuracies are compared: the end of the run that ends first. Diverged runs do not count.
        updates: The number of client updates at which accuracies are compared: the smallest total of a run. Diverged
            runs do not count.
        target: The target accuracy, if all runs that did not diverge have the same one.
        rows: One row per algorithm.
    """

    time: float
    updates: int
    target: float | None
    rows: list[Row]


def compare(runs: Sequence[Run]) -> Comparison:
    """Return the comparison of finished runs, with one row per algorithm.

    Args:
        runs: The runs, from `fadas.runs.reader.find_runs`.

    Example:
        >>> for row in compare(find_runs(Path("runs/demo"))).rows:
        ...     print(row.algorithm, row.at_time, row.at_time_std)
    """
    complete = [run for run in runs if not run.diverged]
    time = min((run.records[-1].time for run in complete), default=0.0)
    updates = min((run.records[-1].updates for run in complete), default=0)
    targets = {run.summary.target for run in complete}
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
    """Return the accuracy of the last evaluation up to the limit. Accuracies that are not finite do not count."""
    measured = [measured_accuracy(record) for record in run.records if getattr(record, axis) <= limit]
    return next((accuracy for accuracy in reversed(measured) if accuracy is not None), None)


def _mean(values: list[float | None]) -> float | None:
    """Return the mean, or None if a value is missing."""
    known = [value for value in values if value is not None]
    return fmean(known) if known and len(known) == len(values) else None


def _std(values: list[float | None]) -> float:
    """Return the population's standard deviation. Missing values are ignored."""
    return pstdev([value for value in values if value is not None] or [0.0])


def table_header(comparison: Comparison) -> list[str]:
    """Return the column titles. A newline marks where a title may break."""
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
    """Return the rows of the table as text. The columns are those of `table_header`."""
    equal_seeds = len({row.seeds for row in comparison.rows}) == 1
    names = [row.algorithm if equal_seeds else f"{row.algorithm}, seeds: {row.seeds}" for row in comparison.rows]
    return [[name, *_format_row(row, comparison.target)] for name, row in zip(names, comparison.rows, strict=True)]


def _format_row(row: Row, target: float | None) -> list[str]:
    if row.diverged:
        count = "" if row.diverged == row.seeds else f", {row.diverged} of {row.seeds}"
        return [f"diverged{count}"] * 2 + ["-"] * 4
    return [
        _format_accuracy(row.at_time, row.at_time_std, row.seeds),
        _format_accuracy(row.at_updates, row.at_updates_std, row.seeds),
        _format_time_to_target(row, target),
        f"{row.tau_max:.0f}",
        f"{row.tau_avg:.2f}",
        f"{row.tau_med:.1f}",
    ]


def _format_time_to_target(row: Row, target: float | None) -> str:
    if target is None:
        return "-"
    if row.time_to_target is not None:
        return f"{row.time_to_target:.1f}"
    return f"{row.reached} of {row.seeds}" if row.reached else "never"


def _format_accuracy(value: float | None, std: float, seeds: int) -> str:
    if value is None:
        return "-"
    return f"{value:.1%} ± {100 * std:.1f}" if seeds > 1 else f"{value:.1%}"
