"""The figure of the clients' timeline: when each client trained, and from which version of the model."""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from fadas.report.figures.data import Data, group, is_frame, split_frame
from fadas.report.text import figure_text
from fadas.runs.reader import Run


class Bar(NamedTuple):
    """A job in a timeline.

    Attributes:
        client: Its client.
        start: When it was assigned.
        end: When its update arrived.
        version: The server version that it started from.
        tau: Its delay.
    """

    client: int
    start: float
    end: float
    version: int
    tau: int


class Timeline(NamedTuple):
    """The jobs of one run that reached a server step.

    Attributes:
        label: The method.
        bars: The jobs.
        clients: The number of clients, at least.
        end: When the last step was taken.
        clock: The label of the time axis.
    """

    label: str
    bars: Sequence[Bar]
    clients: int
    end: float
    clock: str


def timeline_of(run: Run) -> Timeline:
    """Return the jobs of a run."""
    bars = [
        Bar(job.client, job.start, job.end, record.step - 1 - job.tau, job.tau)
        for record in run.records
        for job in record.jobs
    ]
    return Timeline(run.label, bars, run.clients, run.records[-1].time, run.clock)


def _timelines(data: Data) -> dict[str, Timeline]:
    """Return the jobs of the first run of each method."""
    if not is_frame(data):
        return {name: timeline_of(runs[0]) for name, runs in group(data).items()}
    columns = ("client", "start", "end", "step", "tau")
    return {name: _timeline_of_frame(name, seeds[0]) for name, seeds in split_frame(data, *columns).items()}


def _timeline_of_frame(name: str, part: Any) -> Timeline:
    rows = zip(*(part[column].tolist() for column in ("client", "start", "end", "step", "tau")), strict=True)
    bars = [Bar(int(client), start, end, int(step - 1 - tau), int(tau)) for client, start, end, step, tau in rows]
    return Timeline(name, bars, max(bar.client for bar in bars) + 1, max(bar.end for bar in bars), "virtual time")


def timeline(data: Data, methods: Sequence[str] = ()) -> Figure | None:
    """Draw the clients' jobs of several methods over the same period of time.

    Args:
        data: Runs, or a frame of jobs (`fadas.load_jobs`) with the columns algorithm, client, start, end, step and tau.
            Of each method, the first run is drawn.
        methods: The names of the methods. Default: the first asynchronous and the first synchronous one.

    Example:
        >>> timeline(fadas.load_jobs("runs/demo"), ["fadas", "fedams"]).savefig("timeline.pdf")
    """
    shown = choose_timelines(_timelines(data), methods)
    if not any(one.bars for one in shown):
        return None
    until = min(one.end for one in shown) / (2 if len(shown) > 1 else 1)
    figure = Figure(figsize=(3.0 * len(shown) + 1.0, 3.6))  # without pyplot, which would change the user's backend
    panels = figure.subplots(1, len(shown), squeeze=False, sharey=True)
    rows = ClientRows(shown[0])
    for axes, one in zip(panels[0], shown, strict=True):
        bars = _draw_jobs(axes, one, rows, until)
        versions = np.asarray(bars.get_array())
        name = figure_text(one.label)
        if len(versions) and versions.min() == versions.max():  # a colour bar of one colour would say nothing
            name += f"\nall jobs started from version {versions.min()}"
        else:
            ticks = MaxNLocator(integer=True)
            figure.colorbar(bars, ax=axes, label="started from version", fraction=0.05, pad=0.02, ticks=ticks)
        axes.set(xlabel=one.clock, xlim=(0, until), ylim=(-0.5, rows.count - 0.5))
        axes.set_title(name, fontsize=10)
        axes.grid(False)
    panels[0, 0].set_ylabel("clients, slowest on top")
    labels = rows.labels() if rows.count <= 20 else {}  # more labels would overlap
    panels[0, 0].set_yticks(list(labels.values()), labels=list(map(str, labels)))
    figure.tight_layout()
    return figure


def choose_timelines(found: Mapping[str, Timeline], methods: Sequence[str] = ()) -> list[Timeline]:
    """Return the timelines of these methods, or of the first asynchronous and the first synchronous one."""
    if methods:
        return [found[name] for name in methods]
    chosen = [
        next((one for one in found.values() if any(bar.tau for bar in one.bars) is is_stale), None)
        for is_stale in (True, False)
    ]
    return [one for one in chosen if one]


class ClientRows:
    """Each client's row in the figure. The clients with the longest jobs have the last rows.

    A client that never reported counts as the slowest; perhaps it was never chosen. Only clients that reported are
    kept, because the settings may name any number of clients.

    Args:
        shown: The jobs of the run that decides the order.

    Attributes:
        count: The number of rows.
    """

    def __init__(self, shown: Timeline) -> None:
        times: dict[int, list[float]] = {}
        for bar in shown.bars:
            times.setdefault(bar.client, []).append(bar.end - bar.start)
        ranked = sorted(times, key=lambda client: (np.mean(times[client]), client))
        self._rows = {client: row for row, client in enumerate(ranked)}
        self._reported, self._clients = sorted(times), shown.clients
        self.count = len(times) + shown.clients - bisect_left(self._reported, shown.clients)

    def row(self, client: int) -> int:
        """Return the row of a client. A client that the run does not know gets a new one."""
        if client in self._rows:
            return self._rows[client]
        if client < self._clients:  # it has not reported
            return len(self._reported) + client - bisect_left(self._reported, client)
        self._rows[client], self.count = self.count, self.count + 1
        return self._rows[client]

    def labels(self) -> dict[int, int]:
        """Return the rows of all clients."""
        return {client: self.row(client) for client in {**self._rows, **dict.fromkeys(range(self._clients))}}


def _draw_jobs(axes: Axes, shown: Timeline, rows: ClientRows, until: float) -> PolyCollection:
    """Draw one box per job that started before `until`. Its colour is the version that the job started from."""
    drawn = [bar for bar in shown.bars if bar.start < until]
    boxes: list[list[tuple[float, float]]] = []
    for bar in drawn:
        y = rows.row(bar.client)
        boxes.append([(bar.start, y - 0.4), (bar.start, y + 0.4), (bar.end, y + 0.4), (bar.end, y - 0.4)])
    bars = PolyCollection(
        boxes,
        array=np.array([bar.version for bar in drawn]),
        cmap=matplotlib.colormaps["viridis"].resampled(24),
        edgecolors="white",
        linewidths=0.2,
        rasterized=True,
    )
    axes.add_collection(bars)
    return bars
