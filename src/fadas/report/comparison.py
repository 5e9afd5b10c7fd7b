"""Compare finished runs by their metric: the final value, equal time, equal client updates, time to a target."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean

from fadas.core.metrics import Metric
from fadas.core.records import TAUS
from fadas.errors import ConfigError
from fadas.report.statistics import Ranking, describe, find_best, median_time
from fadas.runs.reader import Run, group_runs
from fadas.runs.summary import LAST
from fadas.validate import InvalidValue

TRAIN_LOSS = "train_loss"
INTERVAL = "interval"


@dataclass(frozen=True)
class Row:
    """One method. Values are means over its seeds.

    If a seed diverged, there are no means, because the mean of the other seeds would flatter the method.

    Attributes:
        algorithm: The algorithm's label, or a longer name if runs of this label have different settings.
        seeds: The number of seeds.
        final: The final value: the mean over the last five evaluations of each run. None if a seed has none.
        final_std: The sample standard deviation of `final` over the seeds; 0 for one seed.
        interval: The 95 % confidence interval of `final`, by Student's t. None for one seed.
        at_time: The last value up to `Comparison.time`. None if a seed had not been evaluated by then.
        at_time_std: The sample standard deviation of `at_time` over the seeds; 0 for one seed.
        at_updates: The last value up to `Comparison.updates`. None if a seed had not been evaluated by then.
        at_updates_std: The sample standard deviation of `at_updates` over the seeds; 0 for one seed.
        time_to_target: The median time to the target. Seeds that did not reach it count as later than their end. None
            if the median is later than the runs tell, or if fewer than half of the seeds reached the target.
        time_range: The first and the last time at which a seed reached the target. None if none did.
        reached: The number of seeds that reached the target.
        tau_max: The largest delay.
        tau_avg: The mean over the steps of each step's largest delay.
        tau_med: The median over the steps of each step's largest delay.
        diverged: The number of seeds that diverged.
        timeless: Whether the method has no virtual time, as centralised training.
        baseline: Whether the method is no federated learning. It is never the best.
        by_seed: The final value of each seed.
        further: The final values of further columns, by name: mean and sample standard deviation.
    """

    algorithm: str
    seeds: int
    final: float | None = None
    final_std: float = 0.0
    interval: tuple[float, float] | None = None
    at_time: float | None = None
    at_time_std: float = 0.0
    at_updates: float | None = None
    at_updates_std: float = 0.0
    time_to_target: float | None = None
    time_range: tuple[float, float] | None = None
    reached: int = 0
    tau_max: float = 0.0
    tau_avg: float = 0.0
    tau_med: float = 0.0
    diverged: int = 0
    timeless: bool = False
    baseline: bool = False
    by_seed: dict[int, float] = field(default_factory=dict[int, float])
    further: dict[str, tuple[float | None, float]] = field(default_factory=dict[str, tuple[float | None, float]])


@dataclass(frozen=True)
class Comparison:
    """A table that compares methods.

    Attributes:
        metric: The metric that the runs are judged by.
        time: The time at which values are compared: the end of the run that ends first. Diverged runs do not count, and
            neither does centralised training, which has no virtual time.
        updates: The number of client updates at which values are compared: the smallest total of a run. Diverged runs
            do not count.
        target: The target value, if all runs that did not diverge have the same one.
        rows: One row per method.
        evaluations: The fewest and the most evaluations in the final value of a run.
        rankings: The best methods, and the differences behind it, by column: "final", "at_time" and "at_updates".
        columns: The names of further columns.
    """

    metric: Metric
    time: float
    updates: int
    target: float | None
    rows: list[Row]
    evaluations: tuple[int, int] = (LAST, LAST)
    rankings: dict[str, Ranking] = field(default_factory=dict[str, Ranking])
    columns: tuple[str, ...] = ()

    @property
    def ranking(self) -> Ranking:
        """The best methods by their final values."""
        return self.rankings["final"]


def compare(runs: Sequence[Run], metric: str | None = None, columns: Sequence[str] = ()) -> Comparison:
    """Return the comparison of finished runs, with one row per method.

    Args:
        runs: The runs, from `fadas.runs.reader.find_runs`.
        metric: The metric to compare by. None: the one that the runs are judged by.
        columns: Further columns: names of metrics, "train_loss", or "interval".

    Raises:
        ConfigError: The runs are judged by different metrics, or do not measure what is asked for.

    Example:
        >>> for row in compare(find_runs(Path("runs/demo"))).rows:
        ...     print(row.algorithm, row.final, row.final_std)
    """
    judged = choose_common_metric(runs, metric)
    _require_measured(runs, columns)
    complete = [run for run in runs if not run.diverged]
    time = min((run.records[-1].time for run in complete if not run.is_timeless), default=0.0)
    updates = min((run.records[-1].updates for run in complete), default=0)
    targets = {run.summary.target if run.metric.name == judged.name else None for run in complete}
    target = targets.pop() if len(targets) == 1 else None
    groups = group_runs(runs)
    sound = {name: group for name, group in groups.items() if not any(run.diverged for run in group)}
    final, at_time, at_updates = (
        {name: _by_seed(group, value) for name, group in sound.items()}
        for value in (
            lambda run: final_value(run, judged),
            lambda run: _value_at(run, judged, "time", time),
            lambda run: _value_at(run, judged, "updates", updates),
        )
    )
    found = {"final": final, "at_time": at_time, "at_updates": at_updates}
    baselines = [name for name, group in groups.items() if any(run.baseline for run in group)]
    rankings = {key: find_best(values, judged.better, baselines) for key, values in found.items()}
    rows = [
        _row(name, group, {key: values.get(name, {}) for key, values in found.items()}, target, columns)
        for name, group in groups.items()
    ]
    counts = [min(LAST, len(_after_start(run, judged))) for run in complete] or [LAST]
    return Comparison(judged, time, updates, target, rows, (min(counts), max(counts)), rankings, tuple(columns))


def choose_common_metric(runs: Sequence[Run], name: str | None = None) -> Metric:
    """Return the metric that runs are compared by.

    Args:
        runs: The runs.
        name: The metric that the user asks for. None: the one that all runs are judged by.

    Raises:
        ConfigError: The runs are judged by different metrics, or do not measure the one that is asked for.
    """
    judged = [run for run in runs if run.evaluations] or list(runs)
    if name is not None:
        _require_measured(judged, [name], others=())
        return next((run.metric for run in judged if run.metric.name == name), describe_metric(name))
    by_metric: dict[tuple[str, str], list[Run]] = {}
    for run in judged:
        by_metric.setdefault((run.metric.name, run.metric.better), []).append(run)
    if len(by_metric) > 1:
        found = ", ".join(f"{key[0]} ({group[0].folder})" for key, group in by_metric.items())
        common = [name for name in judged[0].metrics if all(name in run.metrics for run in judged)]
        advice = f"--metric {common[0]} compares by one that all measure" if common else "compare them one by one"
        raise ConfigError(f"the runs are judged by different metrics: {found}; {advice}")
    return judged[0].metric


def describe_metric(name: str) -> Metric:
    """Return a metric by its name. A metric of which nothing is known is shown as a number."""
    try:
        return Metric(name)
    except InvalidValue:
        return Metric(name, "higher", "number")


def _require_measured(
    runs: Sequence[Run], names: Sequence[str], others: Sequence[str] = (TRAIN_LOSS, INTERVAL)
) -> None:
    choices = [*dict.fromkeys(name for run in runs for name in run.metrics), *others]
    for name in names:
        if name not in choices:
            raise ConfigError(f'the runs do not measure "{name}"; choose one of: ' + ", ".join(choices))


def final_value(run: Run, metric: Metric) -> float | None:
    """Return the final value of a metric: the mean over the last five evaluations of a run.

    The training loss is averaged over the last five server steps. A run that diverged has no final value.
    """
    if run.diverged:
        return None
    if metric.name == run.metric.name:
        return run.summary.score
    if metric.name == TRAIN_LOSS:
        values = [record.train_loss for record in run.records if record.train_loss == record.train_loss]
    else:
        values = _after_start(run, metric)
    return fmean(values[-LAST:]) if values else None


def _after_start(run: Run, metric: Metric) -> list[float]:
    """Return the values of a metric, without that of the initial model, which is no result of the run."""
    return [value for record, value in run.values(metric) if record.step]


def _value_at(run: Run, metric: Metric, axis: str, limit: float) -> float | None:
    """Return the last value up to a limit. Values that are not finite do not count."""
    if axis == "time" and run.is_timeless:
        return None
    return next((value for record, value in reversed(run.values(metric)) if getattr(record, axis) <= limit), None)


def _by_seed(runs: Sequence[Run], value: Callable[[Run], float | None]) -> dict[int, float]:
    """Return the value of each seed, or nothing if a seed has none."""
    found = {run.summary.seed: value(run) for run in runs}
    known = {seed: one for seed, one in found.items() if one is not None}
    return known if len(known) == len(found) else {}


def _row(
    name: str, runs: list[Run], found: Mapping[str, dict[int, float]], target: float | None, columns: Sequence[str]
) -> Row:
    if diverged := sum(bool(run.diverged) for run in runs):
        return Row(name, len(runs), diverged=diverged)
    final = describe(found["final"].values()) if found["final"] else None
    at_time, at_time_std = _mean_and_std(found["at_time"])
    at_updates, at_updates_std = _mean_and_std(found["at_updates"])
    times = [run.summary.time_to_target if target is not None and not run.is_timeless else None for run in runs]
    reached = [time for time in times if time is not None]
    return Row(
        name,
        len(runs),
        final=final.mean if final else None,
        final_std=(final.std or 0.0) if final else 0.0,
        interval=(final.low, final.high) if final and final.low is not None and final.high is not None else None,
        at_time=at_time,
        at_time_std=at_time_std,
        at_updates=at_updates,
        at_updates_std=at_updates_std,
        time_to_target=median_time(times, [run.records[-1].time for run in runs])
        if 2 * len(reached) >= len(runs)  # else the others' early ends would decide
        else None,
        time_range=(min(reached), max(reached)) if reached else None,
        reached=len(reached),
        **{key: fmean(getattr(run.summary, key) for run in runs) for key in TAUS},  # pyright: ignore[reportArgumentType]
        timeless=any(run.is_timeless for run in runs),
        baseline=any(run.baseline for run in runs),
        by_seed=found["final"],
        further={key: _further(runs, key) for key in columns if key != INTERVAL},
    )


def _further(runs: Sequence[Run], name: str) -> tuple[float | None, float]:
    return _mean_and_std(_by_seed(runs, lambda run: final_value(run, describe_metric(name))))


def _mean_and_std(by_seed: Mapping[int, float]) -> tuple[float | None, float]:
    """Return the mean and the sample standard deviation; 0 for one seed."""
    sample = describe(by_seed.values()) if by_seed else None
    return (sample.mean, sample.std or 0.0) if sample else (None, 0.0)


def join_folders(found: Mapping[Path, Sequence[Run]]) -> list[Run]:
    """Return the runs of several folders as one list. A label that several experiments have gets the folder's name.

    Args:
        found: The runs of each folder: of an experiment, or of a run.

    Example:
        >>> runs = join_folders({folder: find_runs(folder) for folder in (Path("runs/a"), Path("runs/b"))})
        >>> [run.label for run in runs]
        ['fadas (a)', 'fadas (b)', 'fedbuff']
    """
    placed = [
        (folder.parent if run.folder == folder else folder, run) for folder, runs in found.items() for run in runs
    ]
    labels: dict[Path, set[str]] = {}
    for folder, run in placed:
        labels.setdefault(folder, set()).add(run.label)
    names = _short_names(list(labels))
    return [
        replace(run, summary=replace(run.summary, algorithm=f"{run.label} ({names[folder]})"))
        if sum(run.label in one for one in labels.values()) > 1
        else run
        for folder, run in placed
    ]


def _short_names(folders: Sequence[Path]) -> dict[Path, str]:
    """Return the last part of each path, or as many parts as tell the paths apart."""
    parts = {folder: folder.resolve().parts for folder in folders}
    for length in range(1, max(map(len, parts.values()), default=0) + 1):
        names = {folder: "/".join(found[-length:]) for folder, found in parts.items()}
        if len(set(names.values())) == len(folders):
            return names
    return {folder: str(folder) for folder in folders}
