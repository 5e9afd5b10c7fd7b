"""Figures of what the server saw: delays, step sizes, lost work, and the labels that clients hold."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from fadas.report.figures.curves import average, plain_number, use_logarithm
from fadas.report.figures.data import Data, group, is_frame, join_names, split_frame
from fadas.report.looks import DASHES, looks_of
from fadas.report.text import figure_text

_MOST_LINES = 300
_MOST_BINS = 120
_WIDTH = 6.0  # inches


def delays(data: Data) -> Figure | None:
    """Draw how stale the updates were: one histogram for each distinct set of delays, over all seeds.

    Methods with the same schedule have the same delays.

    Args:
        data: Runs, or a frame of jobs (`fadas.load_jobs`) with the columns algorithm and tau.

    Example:
        >>> delays(fadas.load_jobs("runs/demo")).savefig("delays.pdf")
    """
    distinct: dict[tuple[int, ...], list[str]] = {}
    found = _taus(data)
    for name, taus in found.items():
        if any(taus):  # synchronous methods have no delays
            distinct.setdefault(taus, []).append(name)
    if not distinct:
        return None
    figure = Figure(figsize=(_WIDTH, 0.5 + 2.2 * len(distinct)))
    panels = figure.subplots(len(distinct), 1, squeeze=False)
    looks = looks_of(found)
    for axes, (taus, names) in zip(panels[:, 0], distinct.items(), strict=True):
        colour = looks[names[0]].colour if len(names) == 1 else "#7d8894"
        width = -(-(max(taus) + 1) // _MOST_BINS)  # a bar is as wide as its delays, with their ticks in its middle
        axes.hist(taus, np.arange(0, max(taus) + 1 + width, width) - 0.5, color=colour)
        axes.set(ylabel="updates", yscale="log")
        axes.set_title(figure_text(join_names(names)), fontsize=10, loc="left")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.yaxis.set_major_formatter(FuncFormatter(plain_number))
        axes.yaxis.set_minor_locator(NullLocator())
        axes.set_ylim(bottom=0.7)  # a bar of one update can be seen
    panels[-1, 0].set_xlabel("delay tau of an update (server versions)")
    figure.tight_layout()
    return figure


def _taus(data: Data) -> dict[str, tuple[int, ...]]:
    """Return the delays of each method, over all seeds."""
    if is_frame(data):
        parts = split_frame(data, "tau")
        return {name: tuple(int(tau) for part in seeds for tau in part["tau"]) for name, seeds in parts.items()}
    return {
        name: tuple(job.tau for run in runs for record in run.records for job in record.jobs)
        for name, runs in group(data).items()
    }


def step_sizes(data: Data) -> Figure | None:
    """Draw eta_t of each method whose step size varies, over all seeds.

    Each method has its own panel, because FedAsync's eta_t is a mixing weight, on another scale.

    Args:
        data: Runs, or a frame of steps (`fadas.load_steps`) with the columns algorithm, time and eta.

    Example:
        >>> step_sizes(fadas.load_steps("runs/demo")).savefig("eta.pdf")
    """
    found = _etas(data)
    chosen = {name: points for name, points in found.items() if len(points) and np.ptp(points[:, 1]) > 0}
    if not chosen:
        return None
    figure = Figure(figsize=(_WIDTH, 0.5 + 2.0 * len(chosen)))
    panels = figure.subplots(len(chosen), 1, squeeze=False, sharex=True)
    looks = looks_of(found)
    for axes, (name, points) in zip(panels[:, 0], chosen.items(), strict=True):
        style: Any = {"markersize": 2.4, "markeredgewidth": 0, "color": looks[name].colour, "rasterized": True}
        axes.plot(points[:, 0], points[:, 1], "o", alpha=0.6, **style)
        axes.set(ylabel="step size eta_t", yscale="log")
        axes.set_title(figure_text(name), fontsize=10, loc="left")
        _label_decades(axes, points[:, 1])
    panels[-1, 0].set_xlabel(_clock(data))
    figure.tight_layout()
    return figure


def _etas(data: Data) -> dict[str, np.ndarray]:
    """Return the points [time, eta] of each method, over all seeds."""
    if is_frame(data):
        parts = split_frame(data, "time", "eta")
        return {
            name: np.concatenate([part[["time", "eta"]].to_numpy(float) for part in seeds])
            for name, seeds in parts.items()
        }
    return {
        name: np.array([(record.time, record.eta) for run in runs for record in run.records], float).reshape(-1, 2)
        for name, runs in group(data).items()
    }


def _label_decades(axes: Axes, values: np.ndarray) -> None:
    """Label a logarithmic y axis with plain numbers: more of them within a decade than over many."""
    values = values[values > 0]
    decades = np.log10(values.max() / values.min()) if len(values) else 1.0
    digits = (1.0, 2.0, 3.0, 4.0, 6.0, 8.0) if decades < 1 else (1.0, 2.0, 5.0) if decades < 3 else (1.0,)
    axes.yaxis.set_major_locator(LogLocator(10, subs=digits, numticks=12))
    axes.yaxis.set_major_formatter(FuncFormatter(plain_number))
    axes.yaxis.set_minor_locator(NullLocator())


def lost_work(data: Data) -> Figure | None:
    """Draw the number of jobs so far that ended without an accepted update, by reason: the mean over the seeds.

    Args:
        data: Runs, or a frame of steps (`fadas.load_steps`) with the columns algorithm, time, dropped, expired and
            refused.

    Example:
        >>> lost_work(fadas.load_steps("runs/demo")).savefig("lost.pdf")
    """
    found = _losses(data)
    drawn: dict[tuple[str, bytes], tuple[np.ndarray, list[str]]] = {}
    for name, by_reason in found.items():
        for reason, lines in by_reason.items():
            curve = average([np.concatenate([[[0.0, 0.0]], line]) for line in lines])  # nothing is lost at first
            points = np.stack([curve.x, curve.mean], 1)[1:]
            drawn.setdefault((reason, points.tobytes()), (points, []))[1].append(name)
    if not drawn:
        return None
    figure = Figure(figsize=(_WIDTH, 3.2))
    axes = figure.subplots()
    looks = looks_of(found)
    reasons = list(dict.fromkeys(reason for reason, _ in drawn))
    for (reason, _), (points, names) in [*drawn.items()][:_MOST_LINES]:
        axes.step(
            points[:, 0],
            points[:, 1],
            where="post",
            label=figure_text(f"{join_names(names)}: {reason}"),
            color=looks[names[0]].colour,
            linestyle=DASHES[reasons.index(reason) % len(DASHES)],
        )
    if use_logarithm([points[-1, 0] for points, _ in drawn.values()]):
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(FuncFormatter(plain_number))
    axes.set(xlabel=_clock(data), ylabel="jobs so far, mean of the seeds")
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.legend(frameon=False, fontsize=9, loc="upper left", bbox_to_anchor=(-0.02, -0.16))
    return figure


def _losses(data: Data) -> dict[str, dict[str, list[np.ndarray]]]:
    """Return the points [time, jobs lost so far] of each seed, by method and reason, without reasons of no job."""
    lines: dict[str, list[dict[str, np.ndarray]]] = {}
    if is_frame(data):
        reasons = ("dropped", "expired", "refused")
        for name, seeds in split_frame(data, "time", *reasons).items():
            ordered = [part.sort_values("time") for part in seeds]
            lines[name] = [{one: part[["time", one]].to_numpy(float) for one in reasons} for part in ordered]
    else:
        for name, runs in group(data).items():
            lines[name] = [_losses_of_run(run.records) for run in runs]
    return {
        name: {
            reason: [part.get(reason, _without(next(iter(part.values())))) for part in seeds]
            for reason in dict.fromkeys(reason for part in seeds for reason, line in part.items() if line[-1, 1])
        }
        for name, seeds in lines.items()
    }


def _losses_of_run(records: Sequence[Any]) -> dict[str, np.ndarray]:
    reasons = ["dropped", "expired", *(records[-1].refused if records else ())]
    counts = [{"dropped": r.dropped, "expired": r.expired, **r.refused} for r in records]
    times = [record.time for record in records]
    return {
        reason: np.array([(time, count.get(reason, 0)) for time, count in zip(times, counts, strict=True)], float)
        for reason in reasons
    }


def _without(line: np.ndarray) -> np.ndarray:
    """Return a line at the same times without any jobs."""
    return np.stack([line[:, 0], np.zeros(len(line))], 1)


def _clock(data: Data) -> str:
    """Return the label of a time axis."""
    return "virtual time" if is_frame(data) else clock_of(group(data))


def clock_of(groups: Mapping[str, Iterable[Any]]) -> str:
    """Return the label of a time axis: virtual time, or seconds of deployments."""
    return " or ".join(dict.fromkeys(run.clock for runs in groups.values() for run in runs))


def labels(data: Data) -> Figure | None:
    """Draw how many examples of each label each client has. All methods of a seed share the data.

    Args:
        data: Runs, or a frame (`fadas.load_labels`) with the columns client, label and examples. The first run is
            drawn.

    Example:
        >>> labels(fadas.load_labels("runs/demo")).savefig("labels.pdf")
    """
    table = _label_counts(data)
    if not table.size:
        return None
    figure = Figure(figsize=(_WIDTH, min(5.4, 1.2 + 0.22 * len(table))))
    axes = figure.subplots()
    edges = [np.arange(size + 1) - 0.5 for size in table.shape]  # a tick is in the middle of its cell
    shown = axes.pcolormesh(
        edges[1],
        edges[0],
        np.ma.masked_equal(table, 0),
        cmap=matplotlib.colormaps["Blues"].resampled(24),
        norm=PowerNorm(0.5, 0, table.max()),  # one large client would leave the others pale
        rasterized=True,
    )
    axes.set(xlabel="client", ylabel="label")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    axes.grid(False)
    figure.colorbar(shown, ax=axes, label="examples", fraction=0.05, pad=0.02, ticks=MaxNLocator(6, integer=True))
    sizes, held = table.sum(0), (table > 0).sum(0)
    axes.set_title(
        f"{table.shape[1]} clients; examples {sizes.min()} to {sizes.max()}, median {np.median(sizes):.0f}; "
        f"labels {held.min()} to {held.max()}, median {np.median(held):.0f}",
        fontsize=9,
    )
    return figure


def _label_counts(data: Data) -> np.ndarray:
    """Return how many examples of each label (row) each client (column) has."""
    if not is_frame(data):
        return np.array(next(iter(group(data).values()))[0].counts or np.empty((0, 0), int)).T
    parts = split_frame(data, "client", "label", "examples")
    if not parts:
        return np.empty((0, 0), int)
    part: Any = next(iter(parts.values()))[0]
    clients, kinds = part["client"].to_numpy(int), part["label"].to_numpy(int)
    table = np.zeros((kinds.max(initial=-1) + 1, clients.max(initial=-1) + 1), int)
    np.add.at(table, (kinds, clients), part["examples"].to_numpy(int))
    return table
