"""The figures of a report, drawn with matplotlib. `FIGURES` lists them."""

import io
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from cycler import cycler
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from fadas.report.clients import draw_clients, draw_participation
from fadas.report.comparison import compare
from fadas.report.labels import label_lines
from fadas.report.text import figure_text, show_line
from fadas.report.timeline import timeline
from fadas.runs.reader import Run, group_runs
from fadas.runs.summary import measured_accuracy

_MOST_METHODS = 100  # a figure of more would be higher than matplotlib can draw
_MOST_LINES = 300
STYLE: Any = {
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "text.usetex": False,  # a name is no formula
    "svg.fonttype": "none",
    "svg.hashsalt": "fadas",
    "axes.prop_cycle": cycler(color=matplotlib.color_sequences["tab10"]),
}


def percent(share: float, _: object = None) -> str:
    """Return the tick label of a share: "40%" for 0.4, "2.5%" for 0.025."""
    return f"{100 * share:g}%"


@dataclass(frozen=True)
class Drawn:
    """A figure with its texts.

    Attributes:
        name: A short name, for file names and links.
        title: The heading above the figure.
        caption: The text below the figure.
        figure: The matplotlib figure.
    """

    name: str
    title: str
    caption: str
    figure: Figure

    def svg(self) -> str:
        """Return the figure as SVG text, without a date: equal figures give equal text."""
        text = io.StringIO()
        metadata = {"Date": None, "Title": self.title}
        with _quiet():
            self.figure.savefig(text, format="svg", bbox_inches="tight", dpi=150, metadata=metadata)
        return text.getvalue()

    def save_png(self, path: Path) -> None:
        """Write the figure as PNG, without a date."""
        with _quiet():
            self.figure.savefig(path, dpi=130, bbox_inches="tight", metadata={"Software": None})


@contextmanager
def _quiet() -> Iterator[None]:
    """Hide matplotlib's warnings: a name may use characters that the font does not have."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        yield


def figures(runs: Sequence[Run]) -> Iterator[Drawn]:
    """Yield the figures of a report. Figures without data are skipped. Diverged runs are not drawn."""
    all_groups = group_runs([run for run in runs if not run.diverged])
    groups = dict(islice(all_groups.items(), _MOST_METHODS))
    if not groups:
        return
    left_out = len(all_groups) - len(groups)
    note = f" {left_out} more methods are not drawn." if left_out else ""
    for name, title, caption, draw in FIGURES:
        with matplotlib.rc_context(STYLE):
            with _quiet():
                figure = draw(groups)
            if figure is not None:  # the style also applies while the caller saves the figure
                about = f" {_describe(groups)}" if name in ("time", "updates") else ""
                yield Drawn(name, title, caption + about + note, figure)


def _describe(groups: dict[str, list[Run]]) -> str:
    """Return what a reader of the curves must know: the task, the number of seeds, and when the target is reached."""
    runs = [run for group in groups.values() for run in group]
    tasks = dict.fromkeys(show_line(str(name)) for run in runs if (name := run.config["task"].get("name")))
    seeds = {len(group) for group in groups.values()}
    count = f"{min(seeds)}" if len(seeds) == 1 else f"{min(seeds)} to {max(seeds)}"
    text = f"Task: {', '.join(tasks)}. " if tasks else ""
    text += "One seed." if seeds == {1} else f"Mean of {count} seeds; the band is ± one std."
    comparison = compare(runs)
    reached = sorted((row.time_to_target, row.algorithm) for row in comparison.rows if row.time_to_target is not None)
    if comparison.target and reached:
        times = ", ".join(f"{show_line(name)} at {time:,.0f}" for time, name in reached)
        text += f" Reached {percent(comparison.target)} in {_clock(groups)}: {times}."
    return text


def save_figures(runs: Sequence[Run], folder: Path) -> None:
    """Write each figure to a folder, as PNG and SVG.

    Args:
        runs: The runs, from `fadas.runs.reader.find_runs`.
        folder: The folder. It is made if it is missing.

    Example:
        >>> save_figures(find_runs(Path("runs/demo")), Path("figures"))
    """
    folder.mkdir(parents=True, exist_ok=True)
    for drawn in figures(runs):
        (folder / f"{drawn.name}.svg").write_text(drawn.svg(), encoding="utf-8")
        drawn.save_png(folder / f"{drawn.name}.png")


def curves(groups: dict[str, list[Run]], axis: str, label: str, log: bool = False) -> Figure | None:
    """Return a plot of accuracy, or None if there is no line to draw.

    Each group has one line: the mean over its seeds, with a band of one standard deviation. A group is left out if one
    of its runs measured no accuracy.

    Args:
        groups: The runs of each group, by its name.
        axis: The field of a record for the x axis: "time" or "updates".
        label: The label of the x axis.
        log: Make the x axis logarithmic.
    """
    figure = Figure(figsize=(7.2, 4.2))
    axes = figure.subplots()
    axes.set_xscale("log" if log else "linear")
    lines: dict[str, Line2D] = {}
    for name, runs in groups.items():
        points = [
            [
                (getattr(record, axis), accuracy)
                for record in run.records
                if (accuracy := measured_accuracy(record)) is not None
            ]
            for run in runs
        ]
        if not all(points):
            continue
        x, values = on_common_axis([np.array(line, float) for line in points])
        (lines[figure_text(name)],) = axes.plot(x, values.mean(0), linewidth=1.6)
        if len(runs) > 1:
            low, high = values.mean(0) - values.std(0), values.mean(0) + values.std(0)
            axes.fill_between(x, low, high, alpha=0.15, linewidth=0)
    if not lines:
        return None
    all_runs = [run for runs in groups.values() for run in runs]
    target = all_runs[0].summary.target
    if target and all(run.summary.target == target for run in all_runs):
        axes.axhline(target, color="0.5", linestyle=":", linewidth=1)
        axes.annotate(
            f"target {percent(target)}", (0.01, target), xycoords=("axes fraction", "data"), va="bottom", color="0.4"
        )
    held_out = all(run.config["task"].get("validation") for run in all_runs)  # a sweep's runs
    axes.set(xlabel=label, ylabel="validation accuracy" if held_out else "test accuracy")
    axes.yaxis.set_major_formatter(percent)
    label_lines(axes, list(lines.values()), list(lines))
    return figure


def on_common_axis(lines: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Resample curves to the x values of all of them, within the range that all of them cover.

    A curve keeps the y of a point until its next point.

    Args:
        lines: One array of points [x, y] per curve, in the order of x.

    Returns:
        The common x values, and an array of y values with one row per curve.
    """
    first, last = max(line[0, 0] for line in lines), min(line[-1, 0] for line in lines)
    x = np.unique(np.concatenate([line[:, 0] for line in lines]))
    x = x[(x >= first) & (x <= last)] if first <= last else np.array([first])
    return x, np.stack([line[np.searchsorted(line[:, 0], x, "right") - 1, 1] for line in lines])


def _draw_against_time(groups: dict[str, list[Run]]) -> Figure | None:
    ends = [run.records[-1].time for runs in groups.values() for run in runs]
    log = max(ends) > 5 * min(ends)  # a linear axis would squeeze the other runs beside slow synchronous ones
    return curves(groups, "time", f"{_clock(groups)} (log scale)" if log else _clock(groups), log)


def _clock(groups: dict[str, list[Run]]) -> str:
    """Return the label of a time axis."""
    return " or ".join(dict.fromkeys(run.clock for runs in groups.values() for run in runs))


def _draw_against_updates(groups: dict[str, list[Run]]) -> Figure | None:
    return curves(groups, "updates", "client updates")


def _draw_delays(groups: dict[str, list[Run]]) -> Figure | None:
    """Draw one histogram per distinct set of delays. Methods with the same schedule have the same delays."""
    distinct: dict[tuple[int, ...], list[str]] = {}
    for name, runs in groups.items():
        taus = tuple(job.tau for record in runs[0].records for job in record.jobs)
        if any(taus):  # synchronous methods have no delays
            distinct.setdefault(taus, []).append(name)
    if not distinct:
        return None
    figure = Figure(figsize=(7.2, 2.6 * len(distinct)))
    panels = figure.subplots(len(distinct), 1, squeeze=False)
    for axes, (taus, names) in zip(panels[:, 0], distinct.items(), strict=True):
        axes.hist(taus, np.linspace(0, max(taus) + 1, min(max(taus) + 2, 120)), color="tab:blue")
        axes.set(title=figure_text(", ".join(names)), ylabel="updates", yscale="log")
    panels[-1, 0].set_xlabel("delay tau of an update (server versions)")
    figure.tight_layout()
    return figure


def _draw_step_sizes(groups: dict[str, list[Run]]) -> Figure | None:
    """Draw eta_t of each method whose step size varies.

    Each method has its own panel, because FedAsync's eta_t is a mixing weight, on another scale.
    """
    chosen = {name: runs[0] for name, runs in groups.items() if len({r.eta for r in runs[0].records}) > 1}
    if not chosen:
        return None
    figure = Figure(figsize=(7.2, 2.4 * len(chosen)))
    panels = figure.subplots(len(chosen), 1, squeeze=False, sharex=True)
    for axes, (name, run) in zip(panels[:, 0], chosen.items(), strict=True):
        axes.plot(
            [r.time for r in run.records],
            [r.eta for r in run.records],
            ".",
            markersize=3,
            color="tab:blue",
            rasterized=True,
        )
        axes.set(title=figure_text(name), ylabel="eta_t", yscale="log")
    panels[-1, 0].set_xlabel(_clock(groups))
    figure.tight_layout()
    return figure


def _draw_lost(groups: dict[str, list[Run]]) -> Figure | None:
    """Draw the number of jobs so far that ended without an accepted update, by reason."""
    figure = Figure(figsize=(7.2, 3.2))
    axes = figure.subplots()
    for name, runs in groups.items():
        records = runs[0].records
        counts = [{"dropped": r.dropped, "expired": r.expired, **r.refused} for r in records]
        reasons = [reason for reason, count in counts[-1].items() if count]
        for reason in reasons[: _MOST_LINES - len(axes.lines)]:
            times, totals = [r.time for r in records], [count.get(reason, 0) for count in counts]
            axes.step(times, totals, where="post", label=figure_text(f"{name}: {reason}"))
    if not axes.lines:
        return None
    axes.set(xlabel=_clock(groups), ylabel="jobs so far")
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.legend(frameon=False, fontsize=8)
    return figure


def _draw_labels(groups: dict[str, list[Run]]) -> Figure | None:
    """Draw how many examples of each label each client has. All methods of a seed share the data."""
    counts = next(iter(groups.values()))[0].counts
    if not counts:
        return None
    table = np.array(counts).T
    figure = Figure(figsize=(7.2, min(6.0, 1.2 + 0.22 * len(table))))
    axes = figure.subplots()
    shown = axes.pcolormesh(
        np.ma.masked_equal(table, 0), cmap=matplotlib.colormaps["Blues"].resampled(24), rasterized=True
    )
    axes.set(xlabel="client", ylabel="label")
    axes.grid(False)
    figure.colorbar(shown, ax=axes, label="examples", fraction=0.05, pad=0.02, ticks=MaxNLocator(integer=True))
    sizes, held = table.sum(0), (table > 0).sum(0)
    axes.set_title(
        f"{table.shape[1]} clients; examples {sizes.min()} to {sizes.max()}, median {np.median(sizes):.0f}; "
        f"labels {held.min()} to {held.max()}, median {np.median(held):.0f}",
        fontsize=9,
    )
    return figure


Draw = Callable[[dict[str, list[Run]]], Figure | None]  # None: these runs have nothing to draw
# name, title, caption, function
FIGURES: list[tuple[str, str, str, Draw]] = [
    (
        "time",
        "Accuracy against time",
        "The accuracy reached in a given time. Synchronous methods wait for their slowest clients.",
        _draw_against_time,
    ),
    (
        "updates",
        "Accuracy against client updates",
        "The accuracy reached with a given amount of client work.",
        _draw_against_updates,
    ),
    (
        "delays",
        "Delays",
        "How many server versions behind each update was when the server used it.",
        _draw_delays,
    ),
    (
        "eta",
        "Effective step size",
        "The server's step size, for methods that vary it. FedAsync's step size is its mixing weight.",
        _draw_step_sizes,
    ),
    (
        "lost",
        "Work that was lost",
        "Jobs without an accepted update: dropped by their clients, too late, or refused by the server.",
        _draw_lost,
    ),
    (
        "timeline",
        "The clients' timeline",
        "When each client trained, and from which version of the model. Only jobs that reached a server step count.",
        timeline,
    ),
    (
        "clients",
        "How well each client is served",
        "The last model on each client's own test data, by delay tier. Dots are clients of all seeds, bars are means.",
        draw_clients,
    ),
    (
        "participation",
        "Who took part how often",
        "Updates of each client that reached a server step, relative to equal shares. The dotted line is uniform "
        "participation.",
        draw_participation,
    ),
    (
        "labels",
        "Who holds what",
        "How many examples of each label each client has. The line above the plot gives ranges and medians per client.",
        _draw_labels,
    ),
]
