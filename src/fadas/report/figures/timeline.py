"""The figure of the clients' timeline: when each client trained, and from which version of the model."""

from bisect import bisect_left
from collections.abc import Mapping, Sequence

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from fadas.report.text import figure_text
from fadas.runs.reader import Run, group_runs


def timeline(data: Sequence[Run] | Mapping[str, list[Run]], methods: Sequence[str] = ()) -> Figure | None:
    """Draw the clients' jobs of several methods over the same period of time.

    Args:
        data: The runs. Of each method, the first one is drawn.
        methods: The names of the methods. Default: the first asynchronous and the first synchronous one.
    """
    groups = data if isinstance(data, Mapping) else group_runs(data)
    shown = choose_runs(groups, methods)
    until = min(run.records[-1].time for run in shown) / (2 if len(shown) > 1 else 1)
    figure = Figure(figsize=(4.6 * len(shown) + 1, 4.6))  # without pyplot, which would change the user's backend
    panels = figure.subplots(1, len(shown), squeeze=False, sharey=True)
    rows = ClientRows(shown[0])
    for axes, run in zip(panels[0], shown, strict=True):
        bars = _jobs(axes, run, rows, until)
        versions = np.asarray(bars.get_array())
        name = figure_text(run.label)
        if len(versions) and versions.min() == versions.max():  # a colour bar of one colour would say nothing
            name += f"\nall jobs started from version {versions.min()}"
        else:
            ticks = MaxNLocator(integer=True)
            figure.colorbar(bars, ax=axes, label="started from version", fraction=0.05, pad=0.02, ticks=ticks)
        axes.set(title=name, xlabel=run.clock, xlim=(0, until), ylim=(-0.5, rows.count - 0.5))
        axes.grid(False)
    panels[0, 0].set_ylabel("clients, slowest on top")
    labels = rows.labels() if rows.count <= 20 else {}  # more labels would overlap
    panels[0, 0].set_yticks(list(labels.values()), labels=list(map(str, labels)))
    figure.tight_layout()
    return figure


def choose_runs(groups: Mapping[str, list[Run]], methods: Sequence[str] = ()) -> list[Run]:
    """Return the runs of a timeline: of these methods, or of the first asynchronous and the first synchronous one."""
    if methods:
        return [groups[name][0] for name in methods]

    def synchronous(run: Run) -> bool:
        return all(job.tau == 0 for record in run.records for job in record.jobs)

    firsts = [runs[0] for runs in groups.values()]
    chosen = [next((run for run in firsts if synchronous(run) is kind), None) for kind in (False, True)]
    return [run for run in chosen if run]


class ClientRows:
    """Each client's row in the figure. The clients with the longest jobs have the last rows.

    A client that never reported counts as the slowest; perhaps it was never chosen. Only clients that reported are
    kept, because the settings may name any number of clients.

    Args:
        run: The run that decides the order.

    Attributes:
        count: The number of rows.
    """

    def __init__(self, run: Run) -> None:
        times: dict[int, list[float]] = {}
        for record in run.records:
            for job in record.jobs:
                times.setdefault(job.client, []).append(job.end - job.start)
        ranked = sorted(times, key=lambda client: (np.mean(times[client]), client))
        self._rows = {client: row for row, client in enumerate(ranked)}
        self._reported, self._clients = sorted(times), run.clients
        self.count = len(times) + run.clients - bisect_left(self._reported, run.clients)

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


def _jobs(axes: Axes, run: Run, rows: ClientRows, until: float) -> PolyCollection:
    """Draw one box per job that started before `until`. Its colour is the version that the job started from."""
    boxes: list[list[tuple[float, float]]] = []
    versions: list[int] = []
    for record in run.records:
        for job in record.jobs:
            if job.start < until:
                y = rows.row(job.client)
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
