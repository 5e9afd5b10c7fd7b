"""Learning curves: from runs or a frame to means over the seeds, and to a plot with a label for each method."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from fadas.core.metrics import Metric
from fadas.report.comparison import TRAIN_LOSS, choose_common_metric, describe_metric
from fadas.report.figures.data import Data, group, is_frame, split_frame
from fadas.report.looks import DASHES, Look, looks_of
from fadas.report.table import target_text
from fadas.report.text import figure_text
from fadas.runs.reader import Run

STYLE: Any = matplotlib.rc_params_from_file(
    str(Path(__file__).parents[1] / "fadas.mplstyle"), use_default_template=False
)
AXES = {"time": "virtual time", "updates": "client updates", "step": "server steps"}
_MOST_LABELS = 16  # in the margin; more would not fit
_LABEL_HEIGHT = 12.0  # in points
_LETTER_WIDTH = 7.0  # in points


def percent(share: float, _: object = None) -> str:
    """Return the tick label of a share: "40%" for 0.4, "2.5%" for 0.025."""
    return f"{100 * share:g}%"


@dataclass(frozen=True)
class MeanCurve:
    """The mean over the curves of several seeds.

    Attributes:
        x: The x values of all of them.
        mean: The mean of the curves that have a value there.
        std: Their sample standard deviation; 0 where there is one curve.
        count: How many curves have a value there.
    """

    x: np.ndarray
    mean: np.ndarray
    std: np.ndarray
    count: np.ndarray


def collect_points(data: Data, axis: str, metric: Metric | None) -> dict[str, list[np.ndarray]]:
    """Return the points [x, y] of each run, by method. A method is left out if one of its runs measured nothing.

    Args:
        data: Runs, or a frame with the columns algorithm, seed, the axis, and the metric's name or `value`.
        axis: "time", "updates" or "step".
        metric: The metric. None: the one that the runs are judged by, or the column `value`.
    """
    if is_frame(data):
        return _points_of_frame(data, axis, metric.name if metric else "value")
    groups = group(data)
    found = {name: [_points_of_run(run, axis, metric or run.metric) for run in runs] for name, runs in groups.items()}
    if axis == "time":
        found = _level_timeless(groups, found)
    return {name: lines for name, lines in found.items() if all(map(len, lines))}


def _level_timeless(groups: Mapping[str, list[Run]], found: dict[str, list[np.ndarray]]) -> dict[str, list[np.ndarray]]:
    """Replace the curves of centralised training, which has no virtual time, by lines at their final values."""
    timeless = {name for name, runs in groups.items() if any(run.is_timeless for run in runs)}
    times = [line[:, 0] for name, lines in found.items() if name not in timeless for line in lines if len(line)]
    if not times:
        return found
    ends = [min(map(np.min, times)), max(map(np.max, times))]
    level = {
        name: [np.array([(x, line[-1, 1]) for x in ends]) if len(line) else line for line in found[name]]
        for name in timeless
    }
    return {**found, **level}


def _points_of_run(run: Run, axis: str, metric: Metric) -> np.ndarray:
    if metric.name == TRAIN_LOSS:
        points = [(getattr(record, axis), record.train_loss) for record in run.records]
        return np.array([point for point in points if np.isfinite(point[1])], float)
    return np.array([(getattr(record, axis), value) for record, value in run.values(metric)], float)


def _points_of_frame(frame: Any, axis: str, column: str) -> dict[str, list[np.ndarray]]:
    column = column if column in frame.columns else "value"
    return {
        name: [part.sort_values(axis)[[axis, column]].to_numpy(float) for part in seeds]
        for name, seeds in split_frame(frame, axis, column).items()
    }


def average(lines: Iterable[np.ndarray]) -> MeanCurve:
    """Average the curves of several seeds, from the first point of any of them to the last point of any.

    A curve keeps the y of a point until its next point. It counts from its first to its last point.

    Args:
        lines: One array of points [x, y] per curve, in the order of x.
    """
    arrays = list(lines)
    x = np.unique(np.concatenate([line[:, 0] for line in arrays]))
    values = np.full((len(arrays), len(x)), np.nan)
    for row, line in zip(values, arrays, strict=True):
        inside = (x >= line[0, 0]) & (x <= line[-1, 0])
        row[inside] = line[np.searchsorted(line[:, 0], x[inside], "right") - 1, 1]
    known = ~np.isnan(values)
    count = known.sum(0)
    x, values, known, count = x[count > 0], values[:, count > 0], known[:, count > 0], count[count > 0]
    with np.errstate(over="ignore", invalid="ignore"):  # a metric may have absurd values
        mean = (np.where(known, values, 0) / count).sum(0)
        squares = np.where(known, values - mean, 0) ** 2
        return MeanCurve(x, mean, np.sqrt(squares.sum(0) / np.maximum(count - 1, 1)), count)


def smooth_curve(values: np.ndarray, width: int) -> np.ndarray:
    """Return the running mean of a curve. Near its ends, the mean is over fewer values."""
    if width < 2:
        return values
    sums = np.concatenate([[0.0], np.cumsum(values)])
    place = np.arange(len(values))
    low, high = np.maximum(place - width // 2, 0), np.minimum(place + (width + 1) // 2, len(values))
    return (sums[high] - sums[low]) / (high - low)


def use_logarithm(ends: Sequence[float]) -> bool:
    """Return whether a time axis should be logarithmic: on a linear one, slow methods would squeeze the others."""
    return max(ends) > 5 * min(ends)


def plain_number(value: float, _: object = None) -> str:
    """Return the tick label of a number: "1,000" or "0.002"."""
    return f"{value:,.0f}" if value >= 1 and value == round(value) else f"{value:g}"


def curves(
    data: Data,
    axis: str = "time",
    metric: str | Metric | None = None,
    *,
    log: bool | None = None,
    target: float | None = None,
    smooth: int = 1,
    ylabel: str | None = None,
    xlabel: str | None = None,
) -> Figure | None:
    """Plot learning curves: one line per method, the mean over its seeds, with a band of one standard deviation.

    A line goes on to the end of its last seed. Where not all of its seeds have a value, it is thin and dotted.

    Args:
        data: Runs, or a pandas frame with the columns algorithm, seed, time or updates, and the metric's name or
            `value`.
        axis: The x axis: "time", "updates" or "step".
        metric: The metric, or its name; "train_loss" is the training loss. None: the one that the runs are judged by.
        log: Whether the x axis is logarithmic. None: if the longest method takes five times as long as the shortest.
        target: A value to mark with a line. None: the runs' own target, if they have one in common.
        smooth: Draw the running mean of this many points of each run, with the line itself pale behind it.
        ylabel: The label of the y axis. None: made from the metric.
        xlabel: The label of the x axis. None: made from the axis.

    Returns:
        The figure, or None if there is nothing to draw.

    Example:
        >>> runs = find_runs(Path("runs/demo"))
        >>> with matplotlib.style.context("fadas.report.fadas"):
        ...     figure = curves(runs, axis="updates")
        ...     figure.axes[0].set_ylim(0.2, 0.5)
        ...     figure.savefig("demo.pdf")
    """
    groups = {} if is_frame(data) else group(data)
    judged = _resolve_metric(groups, metric)
    target = _common_target(groups, judged) if target is None else target
    points = collect_points(groups or data, axis, judged)
    if not points:
        return None
    ends = [line[-1, 0] for lines in points.values() for line in lines]
    if log is None:
        log = axis == "time" and use_logarithm(ends)
    figure = Figure(figsize=(7.2, 4.2))
    axes = figure.subplots()
    axes.set_xscale("log" if log else "linear")
    left = min(
        (line[line[:, 0] > 0, 0].min() for lines in points.values() for line in lines if line[-1, 0] > 0), default=1
    )
    looks = looks_of(groups or points)
    drawn: dict[str, tuple[Line2D, tuple[float, float]]] = {}
    for name, lines in points.items():
        curve = average(lines)
        x = np.maximum(curve.x, left) if log else curve.x  # a logarithmic axis has no place for the initial model
        mean = smooth_curve(curve.mean, smooth * len(lines) if smooth > 1 else 1)
        line = _draw_curve(axes, x, mean, curve, len(lines), looks[name])
        drawn[figure_text(name)] = line, (x[-1], mean[-1])
        if smooth > 1:
            axes.plot(x, curve.mean, color=looks[name].colour, linewidth=0.8, alpha=0.25, zorder=1)
        elif len(lines) > 1:
            shares = bool(judged and judged.format == "percent")
            _draw_band(axes, x, curve, len(lines), looks[name].colour, (0.0, 1.0) if shares else None)
    if target is not None:
        axes.axhline(target, color="0.5", linestyle=":", linewidth=1)
        text = f"target {target_text(judged or Metric('value', 'higher'), target)}"
        axes.annotate(text, (0.01, target), xycoords=("axes fraction", "data"), va="bottom", color="0.4")
    axes.set_xlabel((xlabel or AXES.get(axis, axis)) + (" (log scale)" if log else ""))
    axes.set_ylabel(ylabel or _ylabel(groups, judged))
    if judged and judged.format == "percent":
        axes.yaxis.set_major_formatter(percent)
    if log:
        axes.set_xlim(left=left)
        axes.xaxis.set_major_formatter(plain_number)
    label_lines(axes, [line for line, _ in drawn.values()], list(drawn), [end for _, end in drawn.values()])
    return figure


def _resolve_metric(groups: Mapping[str, list[Run]], metric: str | Metric | None) -> Metric | None:
    """Return the metric to draw, as the runs that are judged by it describe it. None: the column `value` of a frame."""
    runs = [run for group in groups.values() for run in group]
    if metric is None:
        return choose_common_metric(runs) if runs else None
    named = describe_metric(metric) if isinstance(metric, str) else metric
    return next((run.metric for run in runs if run.metric.name == named.name), named)


def _common_target(groups: Mapping[str, list[Run]], metric: Metric | None) -> float | None:
    runs = [run for group in groups.values() for run in group]
    targets = {run.summary.target if metric and run.metric.name == metric.name else None for run in runs}
    return targets.pop() if len(targets) == 1 else None


def _ylabel(groups: Mapping[str, list[Run]], metric: Metric | None) -> str:
    if metric is None or not groups:
        return figure_text(metric.name if metric else "value")
    if metric.name == TRAIN_LOSS:
        return "training loss"
    held_out = all(run.config["task"].get("validation") for runs in groups.values() for run in runs)  # a sweep's runs
    return figure_text(f"{'validation' if held_out else 'test'} {metric.name}")


def _draw_curve(axes: Axes, x: np.ndarray, mean: np.ndarray, curve: MeanCurve, seeds: int, look: Look) -> Line2D:
    """Draw the line of a method, thin and dotted where some of its seeds have no value. Return the whole part."""
    first, last = _whole_part(curve, seeds)
    style: Any = {"color": look.colour, "linestyle": DASHES[look.dash], "linewidth": 1.6}
    (line,) = axes.plot(x[first:last], mean[first:last], **style)
    for part in (slice(0, first + 1), slice(max(last - 1, 0), None)):
        if len(x[part]) > 1:
            axes.plot(x[part], mean[part], color=look.colour, linestyle=":", linewidth=1.0)
    axes.plot(x[-1:], mean[-1:], "o", markersize=3.5, color=look.colour)
    return line


def _draw_band(
    axes: Axes, x: np.ndarray, curve: MeanCurve, seeds: int, colour: str, limits: tuple[float, float] | None
) -> None:
    part = slice(*_whole_part(curve, seeds))
    low, high = (curve.mean - curve.std)[part], (curve.mean + curve.std)[part]
    if limits and len(low) and limits[0] <= curve.mean[part].min() and curve.mean[part].max() <= limits[1]:
        low, high = np.clip(low, *limits), np.clip(high, *limits)  # no share is negative
    axes.fill_between(x[part], low, high, alpha=0.13, linewidth=0, color=colour)


def _whole_part(curve: MeanCurve, seeds: int) -> tuple[int, int]:
    """Return where all seeds have a value."""
    whole = np.flatnonzero(curve.count == seeds)
    return (int(whole[0]), int(whole[-1]) + 1) if len(whole) else (0, 0)


def label_lines(axes: Axes, lines: Sequence[Line2D], names: Sequence[str], ends: Sequence[tuple[float, float]]) -> None:
    """Write the name of each line beside its end, in its colour. Names never cover data or each other.

    A name without space at the end of its line stands in the margin on the right, at the height of that end. With many
    lines, there is a legend in the margin instead.

    Args:
        axes: The plot, with its final scales.
        lines: The lines.
        names: The name of each line.
        ends: The last point of each line.
    """
    if len(lines) > _MOST_LABELS:
        axes.legend(lines, names, frameon=False, loc="upper left", bbox_to_anchor=(1.01, 1.0), fontsize=8)
        return
    axes.autoscale_view()
    scale = 72 / axes.get_figure(root=True).dpi  # type: ignore[union-attr]
    (left, bottom), (right, top) = axes.transAxes.transform([(0, 0), (1, 1)]) * scale
    points = axes.transData.transform(ends) * scale
    taken = _drawn_points(axes) * scale
    places: dict[int, tuple[float, float]] = {}
    for number in np.argsort(points[:, 1], kind="stable"):
        width = _LETTER_WIDTH * len(names[number])
        if points[number, 0] + max(6 + width, 30) > right:
            continue
        for shift in (0, 6, 12, 18, 24, -6, -12, -18, 30, 36, -24, -30):
            x, y = points[number] + (6, shift)
            beside = (taken[:, 0] > x - 1) & (taken[:, 0] < x + width)
            covered = (beside & (np.abs(taken[:, 1] - y) < _LABEL_HEIGHT / 2)).any()
            if bottom < y < top + 2 * _LABEL_HEIGHT and not covered:
                places[int(number)] = (x, y)
                corners = np.mgrid[x : x + width : 4, y - 6 : y + 6.1 : 3].reshape(2, -1).T
                taken = np.concatenate([taken, corners])
                break
    rest = [number for number in range(len(lines)) if number not in places]
    heights = _spread_out([points[number, 1] for number in rest], bottom, top)
    places |= {number: (right + 7, height) for number, height in zip(rest, heights, strict=True)}
    for number, (x, y) in places.items():
        axes.annotate(
            names[number],
            (0.0, 0.0),
            (x - left, y - bottom),
            xycoords="axes fraction",
            textcoords="offset points",
            va="center",
            color=lines[number].get_color(),
            annotation_clip=False,
        )


def _drawn_points(axes: Axes) -> np.ndarray:
    """Return points along all lines and bands, in pixels, close enough that no name fits between two of them."""
    paths = [axes.transData.transform(np.asarray(line.get_xydata()).reshape(-1, 2)) for line in axes.lines]
    paths += [axes.transData.transform(path.vertices) for band in axes.collections for path in band.get_paths()]
    found = [np.empty((0, 2))]
    for path in paths:
        path = path[np.isfinite(path).all(1)]
        if len(path):
            lengths = np.concatenate([[0.0], np.cumsum(np.hypot(*np.diff(path, axis=0).T))])
            along = np.linspace(0, lengths[-1], min(2000, int(lengths[-1] / 3) + 2))
            found.append(np.stack([np.interp(along, lengths, path[:, column]) for column in (0, 1)], 1))
    return np.concatenate(found)


def _spread_out(heights: Sequence[float], bottom: float, top: float) -> list[float]:
    """Return heights that differ by a label's height at least, inside the limits if possible."""
    order = sorted(range(len(heights)), key=heights.__getitem__)
    placed, limit = [0.0] * len(heights), bottom
    for place in order:
        placed[place] = max(heights[place], limit)
        limit = placed[place] + _LABEL_HEIGHT
    limit = top
    for place in reversed(order):
        placed[place] = min(placed[place], limit)
        limit = placed[place] - _LABEL_HEIGHT
    return placed
