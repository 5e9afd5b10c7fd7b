"""The table of a comparison as text: columns, cells and the notes below. `columns_of` lists the columns."""

from collections.abc import Callable
from dataclasses import dataclass

from fadas.core.metrics import Metric, number_format, number_text
from fadas.report.comparison import INTERVAL, TRAIN_LOSS, Comparison, Row, describe_metric
from fadas.report.statistics import Ranking
from fadas.runs.summary import LAST


@dataclass(frozen=True)
class Column:
    """A column of the table.

    Attributes:
        key: Its name, as in `Comparison.rankings`.
        title: Its heading. A newline marks where it may break.
        meaning: What it shows, in a sentence.
        cell: The text of a row's cell. Not called for a method that diverged.
    """

    key: str
    title: str
    meaning: str
    cell: Callable[[Row], str]


def columns_of(comparison: Comparison, wide: bool = False) -> list[Column]:
    """Return the columns of the table, without the names of the methods.

    Args:
        comparison: The comparison.
        wide: Also show the interval, as the report does.
    """
    metric, time, updates = comparison.metric, comparison.time, comparison.updates
    at_time, at_updates = (f"time {time:.0f}", f"{updates:,} updates") if updates else ("equal time", "equal updates")
    columns = [
        Column(
            "final",
            f"final\n{metric.name}",
            f"Mean of {_last(comparison)} of each run.",
            lambda row: _with_spread(metric, row.final, row.final_std, row.seeds),
        )
    ]
    if (wide and any(row.interval for row in comparison.rows)) or INTERVAL in comparison.columns:
        meaning = "95 % confidence interval of the mean over the seeds, by Student's t."
        columns.append(Column("interval", "95 %\ninterval", meaning, lambda row: interval_text(metric, row.interval)))
    columns += [
        Column(
            "at_time",
            f"{metric.name}\nat {at_time}",
            "Last evaluation up to the end of the run that ends first.",
            lambda row: _with_spread(metric, row.at_time, row.at_time_std, row.seeds),
        ),
        Column(
            "at_updates",
            f"{metric.name} at\n{at_updates}",
            "Last evaluation up to the smallest number of client updates that a run ends with.",
            lambda row: _with_spread(metric, row.at_updates, row.at_updates_std, row.seeds),
        ),
    ]
    if (target := comparison.target) is not None:
        meaning = "Median over the seeds. A seed that did not get there counts as later than its end."
        title = f"time to\n{'' if metric.is_accuracy else f'{metric.name} '}{target_text(metric, target)}"
        columns.append(Column("time_to_target", title, meaning, lambda row: _time_text(row, wide)))
    for name in comparison.columns:
        if name != INTERVAL:
            columns.append(_further_column(comparison, name))
    columns += [
        Column("tau_max", "tau\nmax", "Delay of the most stale update of a run.", lambda row: f"{row.tau_max:.0f}"),
        Column("tau_avg", "tau\navg", "Mean of each step's most stale update.", lambda row: f"{row.tau_avg:.2f}"),
        Column("tau_med", "tau\nmed", "Median of each step's most stale update.", lambda row: f"{row.tau_med:.1f}"),
    ]
    return columns


def _further_column(comparison: Comparison, name: str) -> Column:
    metric = describe_metric(name)
    of = f"the last {LAST} server steps" if name == TRAIN_LOSS else _last(comparison)
    return Column(
        f"further {name}",
        f"final\n{name}",
        f"Mean of {of} of each run.",
        lambda row: _with_spread(metric, *row.further[name], row.seeds),
    )


def table_header(comparison: Comparison, wide: bool = False) -> list[str]:
    """Return the column titles. A newline marks where a title may break."""
    return ["algorithm", *(column.title for column in columns_of(comparison, wide))]


def table_cells(comparison: Comparison, wide: bool = False) -> list[list[str]]:
    """Return the rows of the table as text. The columns are those of `table_header`."""
    columns = columns_of(comparison, wide)
    equal_seeds = len({row.seeds for row in comparison.rows}) == 1
    names = [row.algorithm if equal_seeds else f"{row.algorithm}, seeds: {row.seeds}" for row in comparison.rows]
    return [
        [name, *([column.cell(row) for column in columns] if not row.diverged else _diverged(row, len(columns)))]
        for name, row in zip(names, comparison.rows, strict=True)
    ]


def table_notes(comparison: Comparison) -> list[str]:
    """Return what a reader of the table must know, one sentence per line: the rule of the final value, and the best."""
    name = comparison.metric.name
    spread = "; ± is the sample standard deviation" if any(row.seeds > 1 for row in comparison.rows) else ""
    counts = {row.seeds for row in comparison.rows}
    seeds = f" over {counts.pop()} seeds" if spread and len(counts) == 1 else " over the seeds" if spread else ""
    if not any(comparison.evaluations):
        return ["nothing was measured: the task has no test data, or no value is a number"]
    notes = [f"final {name}: mean of {_last(comparison)}{spread}{seeds}"]
    if comparison.target is not None and spread:
        goal = target_text(comparison.metric, comparison.target)
        notes.append(f"time to {'' if comparison.metric.is_accuracy else f'{name} '}{goal}: median{seeds}")
    if verdict := describe_ranking(comparison.ranking, name):
        notes.append(verdict)
    if baselines := [row.algorithm for row in comparison.rows if row.baseline and row.by_seed]:
        notes.append(f"{' and '.join(baselines)}: for comparison only, never the best")
    return notes


def describe_ranking(ranking: Ranking, metric: str) -> str:
    """Return which methods are the best in a sentence, or why that is not known."""
    how = f"paired t-tests at 5 %, Holm's correction for {ranking.tested} pair{'s' if ranking.tested != 1 else ''}"
    if ranking.winner:
        return f"best final {metric}: {ranking.winner}, significantly ({how})"
    if ranking.all_level:
        return f"best final {metric}: none, no test tells two methods apart ({how})"
    if ranking.leaders:
        first, *others = ranking.leaders
        return f"best final {metric}: {first} on average, but no test tells it from {', '.join(others)} ({how})"
    lone = str(ranking.reason).startswith("there are no two methods")
    return "" if lone else f"best final {metric}: not marked, because {ranking.reason}"


def interval_text(metric: Metric, interval: tuple[float, float] | None) -> str:
    """Return an interval as text: "87.0 to 90.4%" or "0.4120 to 0.4370"."""
    if interval is None:
        return "-"
    low, high = interval
    return (
        f"{100 * low:.1f} to {100 * high:.1f}%"
        if metric.format == "percent"
        else f"{number_text(low)} to {number_text(high)}"
    )


def difference_text(metric: Metric, difference: float | None, interval: tuple[float, float] | None = None) -> str:
    """Return a difference as text: "+3.6 points" or "-0.012", with as many decimals as its interval."""
    if difference is None:
        return "-"
    number = (number_format(interval[1] - interval[0]) if interval else "") or ".4g"
    return f"{100 * difference:+.1f} points" if metric.format == "percent" else f"{difference:+z{number}}"


def difference_interval_text(metric: Metric, interval: tuple[float, float] | None) -> str:
    """Return the interval of a difference as text: "+1.8 to +5.3" points or "-0.012 to +0.003"."""
    if interval is None:
        return "-"
    low, high = interval
    number = number_format(high - low) or ".4g"
    percent = metric.format == "percent"
    return f"{100 * low:+.1f} to {100 * high:+.1f}" if percent else f"{low:+z{number}} to {high:+z{number}}"


def target_text(metric: Metric, target: float) -> str:
    """Return a target as text: "35%", "2.5%" or "0.4"."""
    return f"{100 * target:g}%" if metric.format == "percent" else f"{target:g}"


def _last(comparison: Comparison) -> str:
    """Return how many evaluations make a final value."""
    fewest, most = comparison.evaluations
    count = f"{most}" if fewest == most else f"{fewest} to {most}"
    return "the last evaluation" if (fewest, most) == (1, 1) else f"the last {count} evaluations"


def _diverged(row: Row, columns: int) -> list[str]:
    count = "" if row.diverged == row.seeds else f", {row.diverged} of {row.seeds} seeds"
    return [f"diverged{count}", *["-"] * (columns - 1)]


def _time_text(row: Row, wide: bool) -> str:
    """Return the median time to the target, with its range if there is space, and how many seeds got there."""
    if row.timeless:
        return "-"
    some = f"{row.reached} of {row.seeds} seeds"
    if row.time_to_target is None:
        return "never" if row.seeds == 1 else some
    spread = f" ({row.time_range[0]:.1f} to {row.time_range[1]:.1f})" if row.time_range and row.reached > 1 else ""
    text = f"{row.time_to_target:.1f}{spread if wide else ''}"
    return text if row.reached == row.seeds else f"{text}, {some}"


def _with_spread(metric: Metric, value: float | None, std: float, seeds: int) -> str:
    return metric.with_spread(value, std) if seeds > 1 else metric.text(value)
