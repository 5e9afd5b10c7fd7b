"""Figures of clients, by delay tier: how well each is served, and how often each took part."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from statistics import fmean
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from fadas.core.metrics import Metric
from fadas.report.clients import arrival_shares, client_tiers, last_values
from fadas.report.comparison import describe_metric
from fadas.report.fairness import THIRDS, UNSEEN, Tiers
from fadas.report.figures.data import Data, group, is_frame, join_names, split_frame
from fadas.report.looks import looks_of
from fadas.report.text import figure_text
from fadas.runs.reader import Run

_ROW = 0.26  # inches
_ALL = "all"  # the row of clients that are in no tier
_ORDER = ("small", "medium", "large", *THIRDS, UNSEEN)
Points = dict[str, list[float]]  # by tier


def served(data: Data, metric: str | Metric | None = None) -> Figure | None:
    """Draw a metric of the last model on each client's own test data, by delay tier. A dot is a client of a seed.

    Args:
        data: Runs, or a frame of clients (`fadas.load_clients`) with the columns algorithm, client, step and the
            metric's name. It may have the column tier.
        metric: The metric, or its name. None: the one that the first method is judged by; of a frame, the accuracy.

    Example:
        >>> served(fadas.load_clients("runs/slow"), "accuracy").savefig("served.pdf")
    """
    if is_frame(data):
        judged = describe_metric(metric or "accuracy") if not isinstance(metric, Metric) else metric
        points = _points_of_frame(data, judged.name)
    else:
        groups = group(data)
        named = describe_metric(metric) if isinstance(metric, str) else metric
        judged = named or next(iter(groups.values()))[0].metric
        points = _points_of_runs(groups, partial(last_values, metric=judged))
    figure = _draw_by_tier(points)
    if figure is None:
        return None
    axes = figure.axes[0]
    axes.set_xlabel(figure_text(f"{judged.name} on the client's own test data, last model"))
    if judged.format == "percent":
        axes.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    return figure


def participation(data: Data) -> Figure | None:
    """Draw how often each client took part, by delay tier. A dot is a client of a seed.

    Args:
        data: Runs, or a frame of clients (`fadas.load_clients`) with the columns algorithm, client, step and arrivals.
            It may have the column tier.

    Example:
        >>> participation(fadas.load_clients("runs/demo")).savefig("participation.pdf")
    """
    points = _points_of_frame(data, "arrivals", relative=True) if is_frame(data) else None
    figure = _draw_by_tier(points if points is not None else _points_of_runs(group(data), arrival_shares))
    if figure is None:
        return None
    axes = figure.axes[0]
    axes.axvline(1.0, color="0.4", linestyle=":", linewidth=1)
    axes.set_xlabel("updates of the client, relative to equal shares (1: uniform arrivals)")
    return figure


def _points_of_runs(
    groups: dict[str, list[Run]], values_of: Callable[[Run], Sequence[float | None]]
) -> dict[str, Points]:
    """Return the values of each tier's clients, over all seeds, by method."""
    return {name: _points_by_tier(runs, values_of) for name, runs in groups.items()}


def _points_by_tier(runs: Sequence[Run], values_of: Callable[[Run], Sequence[float | None]]) -> Points:
    points: Points = {}
    for run in runs:
        values = values_of(run)
        for tier, members in _tiers_or_all(run, len(values)):
            known = [value for client in members if client < len(values) and (value := values[client]) is not None]
            points.setdefault(tier, []).extend(known)
    return {tier: known for tier, known in points.items() if known}


def _tiers_or_all(run: Run, clients: int) -> Iterator[tuple[str, Sequence[int]]]:
    tiers: Tiers = client_tiers(run) or {_ALL: range(clients)}
    yield from tiers.items()


def _points_of_frame(frame: Any, column: str, relative: bool = False) -> dict[str, Points]:
    """Return the values of each tier's clients at each seed's last step. `relative`: divided by their mean."""
    found: dict[str, Points] = {}
    for name, seeds in split_frame(frame, "client", "step", column).items():
        points: Points = {}
        for part in seeds:
            last = part[part["step"] == part["step"].max()]
            values = last[column].astype(float)
            values = values / values.mean() if relative else values
            tiers = last["tier"].fillna(_ALL) if "tier" in last.columns else [_ALL] * len(last)
            for tier, value in zip(tiers, values, strict=True):
                points.setdefault(str(tier), []).append(value)
        known = [tier for tier in _ORDER if tier in points]
        found[name] = {tier: points[tier] for tier in [*known, *(tier for tier in points if tier not in known)]}
    return found


def _draw_by_tier(points: dict[str, Points]) -> Figure | None:
    """Draw a row of dots for each tier, and their mean as a bar. Methods with the same points share their rows.

    Returns:
        The figure, or None if there are no points.
    """
    looks = looks_of(points)
    drawn: list[tuple[Points, list[str]]] = []
    for name, by_tier in points.items():
        same = next((names for other, names in drawn if other == by_tier), None)
        if same is not None:
            same.append(name)
        elif by_tier:
            drawn.append((by_tier, [name]))
    if not drawn:
        return None
    rows = sum(len(by_tier) for by_tier, _ in drawn)
    figure = Figure(figsize=(6.0, 1.0 + _ROW * (rows + 1.2 * len(drawn))))
    axes = figure.subplots()
    ticks: list[tuple[float, str]] = []
    height = 0.0
    for by_tier, names in drawn:
        colour = looks[names[0]].colour if len(names) == 1 else "#5f6b78"
        title = figure_text(join_names(names))
        axes.text(0.01, height, title, transform=axes.get_yaxis_transform(), weight="bold", va="center", fontsize=9)
        for tier, values in by_tier.items():
            height += 1.0
            _draw_row(axes, height, values, colour)
            ticks.append((height, tier))
        height += 1.3
    axes.set_yticks([at for at, _ in ticks], [figure_text(tier) for _, tier in ticks])
    axes.set_ylim(height - 0.6, -0.7)
    axes.set_ylabel("clients by delay")
    axes.grid(False, axis="y")
    return figure


def _draw_row(axes: Axes, height: float, points: Sequence[float], color: str) -> None:
    order = np.arange(len(points))
    spread = 0.32 * (2 * (order * 0.618034 % 1) - 1)  # evenly spread, and the same at every drawing
    axes.scatter(points, height + spread, s=10, alpha=0.45, color=color, linewidths=0, rasterized=True)
    mean = fmean(points)
    axes.plot([mean, mean], [height - 0.42, height + 0.42], color="0.1", linewidth=1.8)
