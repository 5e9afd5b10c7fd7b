"""The figure of the clients' timeline: when each client trained, and from which version of the model."""

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from fadas.runs.reader import Run


def timeline(groups: dict[str, list[Run]]) -> Figure | None:
    """Draw the clients' jobs of an asynchronous and a synchronous method over the same period of time.

    If all methods are of one kind, the first method is drawn alone.
    """

    def synchronous(run: Run) -> bool:
        return all(job.tau == 0 for record in run.records for job in record.jobs)

    firsts = [runs[0] for runs in groups.values()]
    chosen = [next((run for run in firsts if synchronous(run) is kind), None) for kind in (False, True)]
    shown = [run for run in chosen if run]
    until = min(run.records[-1].time for run in shown) / (2 if len(shown) > 1 else 1)
    figure = Figure(figsize=(4.6 * len(shown) + 1, 4.6))  # without pyplot, which would change the user's backend
    panels = figure.subplots(1, len(shown), squeeze=False, sharey=True)
    order = _by_duration(shown[0])
    for axes, run in zip(panels[0], shown, strict=True):
        bars = _jobs(axes, run, order, until)
        ticks = MaxNLocator(integer=True)
        figure.colorbar(bars, ax=axes, label="started from version", fraction=0.05, pad=0.02, ticks=ticks)
        axes.set(title=run.label, xlabel=run.clock, xlim=(0, until), ylim=(-0.5, len(order) - 0.5))
        axes.grid(False)
    panels[0, 0].set_ylabel("clients, slowest on top")
    few = len(order) <= 20  # more labels would overlap
    panels[0, 0].set_yticks(list(order.values()) if few else [], labels=list(map(str, order)) if few else [])
    figure.tight_layout()
    return figure


def _by_duration(run: Run) -> dict[int, int]:
    """Return each client's row in the figure. The clients with the longest jobs have the last rows."""
    times: dict[int, list[float]] = {client: [] for client in range(run.clients)}
    for record in run.records:
        for job in record.jobs:
            times.setdefault(job.client, []).append(job.end - job.start)
    # a client that never reported counts as the slowest; perhaps it was never chosen
    ranked = sorted(times, key=lambda c: (np.mean(times[c]) if times[c] else np.inf, c))
    return {client: row for row, client in enumerate(ranked)}


def _jobs(axes: Axes, run: Run, order: dict[int, int], until: float) -> PolyCollection:
    """Draw one box per job that started before `until`. Its colour is the version that the job started from."""
    boxes: list[list[tuple[float, float]]] = []
    versions: list[int] = []
    for record in run.records:
        for job in record.jobs:
            if job.start < until:
                y = order.setdefault(job.client, len(order))
                left, right = job.start, job.end
                boxes.append([(left, y - 0.4), (left, y + 0.4), (right, y + 0.4), (right, y - 0.4)])
                versions.append(record.step - 1 - job.tau)
    bars = PolyCollection(
        boxes,
        array=np.array(versions),
        cmap=matplotlib.colormaps["viridis"].resampled(24),
        edgecolors="white",
        linewidths=0.2,
        rasterized=True,
    )
    axes.add_collection(bars)
    return bars
