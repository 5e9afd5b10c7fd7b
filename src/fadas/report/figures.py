"""The figures of a report."""

import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from cycler import cycler
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from fadas.report.timeline import timeline
from fadas.runs.reader import Run, group_runs

STYLE: Any = {
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "svg.fonttype": "none",
    "svg.hashsalt": "fadas",
    "axes.prop_cycle": cycler(color=matplotlib.color_sequences["tab10"]),
}


def percent(share: float, _: object = None) -> str:
    """A share as the label of a tick: 40%, 2.5%."""
    return f"{100 * share:g}%"


@dataclass(frozen=True)
class Drawn:
    """A figure with its words."""

    name: str
    title: str
    caption: str
    figure: Figure

    def svg(self) -> str:
        text = io.StringIO()
        metadata = {"Date": None, "Title": self.title}
        self.figure.savefig(text, format="svg", bbox_inches="tight", dpi=150, metadata=metadata)
        return text.getvalue()


def figures(runs: Sequence[Run]) -> Iterator[Drawn]:
    """The figures of a report. One that these runs cannot fill is left out, and so are runs that diverged."""
    groups = group_runs([run for run in runs if not run.diverged])
    if not groups:
        return
    for name, title, caption, draw in FIGURES:
        with matplotlib.rc_context(STYLE):
            figure = draw(groups)
            if figure is not None:
                yield Drawn(name, title, caption, figure)


def save_figures(runs: Sequence[Run], folder: Path) -> None:
    """Each figure as PNG and SVG."""
    folder.mkdir(parents=True, exist_ok=True)
    for drawn in figures(runs):
        (folder / f"{drawn.name}.svg").write_text(drawn.svg(), encoding="utf-8")
        drawn.figure.savefig(folder / f"{drawn.name}.png", dpi=130, bbox_inches="tight", metadata={"Software": None})


def curves(groups: dict[str, list[Run]], axis: str, label: str) -> Figure | None:
    """Accuracy against `axis`, one line per algorithm: the mean over seeds, with a band of one standard deviation."""
    figure = Figure(figsize=(7.2, 4.2))
    axes = figure.subplots()
    for name, runs in groups.items():
        lines = [
            [(getattr(e, axis), metrics["accuracy"]) for e, metrics in run.evaluations if "accuracy" in metrics]
            for run in runs
        ]
        if not all(lines):
            continue
        x, values = on_common_axis([np.array(line, float) for line in lines])
        axes.plot(x, values.mean(0), label=name, linewidth=1.6)
        if len(runs) > 1:
            low, high = values.mean(0) - values.std(0), values.mean(0) + values.std(0)
            axes.fill_between(x, low, high, alpha=0.15, linewidth=0)
    if not axes.lines:
        return None
    every = [run for runs in groups.values() for run in runs]
    target = every[0].summary.target
    if target and all(run.summary.target == target for run in every):
        axes.axhline(target, color="0.5", linestyle=":", linewidth=1)
        axes.annotate(
            f"target {percent(target)}", (0.01, target), xycoords=("axes fraction", "data"), va="bottom", color="0.4"
        )
    held_out = all(run.config["task"].get("validation") for run in every)  # a sweep's runs
    axes.set(xlabel=label, ylabel="validation accuracy" if held_out else "test accuracy")
    axes.yaxis.set_major_formatter(percent)
    axes.legend(frameon=False, ncols=2, loc="lower right")
    return figure


def on_common_axis(lines: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Curves [(x, y), ...] evaluated at different x, as rows over one x: each holds its last value until the next."""
    first, last = max(line[0, 0] for line in lines), min(line[-1, 0] for line in lines)
    x = np.unique(np.concatenate([line[:, 0] for line in lines]))
    x = x[(x >= first) & (x <= last)] if first <= last else np.array([first])
    return x, np.stack([line[np.searchsorted(line[:, 0], x, "right") - 1, 1] for line in lines])


def _against_time(groups: dict[str, list[Run]]) -> Figure | None:
    clock = _clock(groups)
    figure = curves(groups, "time", clock)
    if figure:
        ends = [run.records[-1].time for runs in groups.values() for run in runs]
        if max(ends) > 5 * min(ends):  # synchronous runs take many times longer: a linear axis would hide the others
            figure.axes[0].set_xscale("log")
            figure.axes[0].set_xlabel(f"{clock} (log scale)")
    return figure


def _clock(groups: dict[str, list[Run]]) -> str:
    return " or ".join(dict.fromkeys(run.clock for runs in groups.values() for run in runs))


def _against_updates(groups: dict[str, list[Run]]) -> Figure | None:
    return curves(groups, "updates", "client updates")


def _delays(groups: dict[str, list[Run]]) -> Figure | None:
    """A histogram for each distinct set of delays: methods with the same schedule share a timeline."""
    distinct: dict[tuple[int, ...], list[str]] = {}
    for name, runs in groups.items():
        taus = tuple(job.tau for record in runs[0].records for job in record.jobs)
        if any(taus):  # synchronous updates are never late
            distinct.setdefault(taus, []).append(name)
    if not distinct:
        return None
    figure = Figure(figsize=(7.2, 2.6 * len(distinct)))
    panels = figure.subplots(len(distinct), 1, squeeze=False)
    for axes, (taus, names) in zip(panels[:, 0], distinct.items(), strict=True):
        axes.hist(taus, np.linspace(0, max(taus) + 1, min(max(taus) + 2, 120)), color="tab:blue")
        axes.set(title=", ".join(names), ylabel="updates", yscale="log")
    panels[-1, 0].set_xlabel("delay tau of an update (server versions)")
    figure.tight_layout()
    return figure


def _step_sizes(groups: dict[str, list[Run]]) -> Figure | None:
    """eta_t of the methods whose step size follows the delays (FedAsync's is a mixing weight, on another scale)."""
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
        axes.set(title=name, ylabel="eta_t", yscale="log")
    panels[-1, 0].set_xlabel(_clock(groups))
    figure.tight_layout()
    return figure


def _lost(groups: dict[str, list[Run]]) -> Figure | None:
    """Jobs that ended without an update that the server took, so far, by reason."""
    figure = Figure(figsize=(7.2, 3.2))
    axes = figure.subplots()
    for name, runs in groups.items():
        records = runs[0].records
        counts = [{"dropped": r.dropped, "expired": r.expired, **r.refused} for r in records]
        for reason in (reason for reason, count in counts[-1].items() if count):
            times, so_far = [r.time for r in records], [c.get(reason, 0) for c in counts]
            axes.step(times, so_far, where="post", label=f"{name}: {reason}")
    if not axes.lines:
        return None
    axes.set(xlabel=_clock(groups), ylabel="jobs so far")
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.legend(frameon=False, fontsize=8)
    return figure


def _labels(groups: dict[str, list[Run]]) -> Figure | None:
    """How many examples of each label each client has; all methods of a seed share the data."""
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


Draw = Callable[[dict[str, list[Run]]], Figure | None]
FIGURES: list[tuple[str, str, str, Draw]] = [
    (
        "time",
        "Accuracy against time",
        "What a federation gets for its time. Stragglers pace the synchronous methods.",
        _against_time,
    ),
    (
        "updates",
        "Accuracy against client updates",
        "What a federation gets for its clients' work.",
        _against_updates,
    ),
    (
        "delays",
        "Delays",
        "How many server versions behind each update was when the server used it.",
        _delays,
    ),
    (
        "eta",
        "Effective step size",
        "The server's step size where it follows the delays; for FedAsync, the mixing weight.",
        _step_sizes,
    ),
    (
        "lost",
        "Work that was lost",
        "Jobs that gave no update: dropped by their clients, too late, or refused by the server.",
        _lost,
    ),
    (
        "timeline",
        "The clients' timeline",
        "Who trained when, and from which version of the model: the jobs that reached a server step.",
        timeline,
    ),
    (
        "labels",
        "Who holds what",
        "The examples of each label at each client, and how many of both the clients have.",
        _labels,
    ),
]
