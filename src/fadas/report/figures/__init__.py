"""The figures of a report, drawn with matplotlib. `FIGURES` lists them.

Each is a function of runs or of a pandas frame, and returns a matplotlib figure, or None if there is nothing to draw.

| function             | what it draws                                     | frame                             |
|----------------------|---------------------------------------------------|-----------------------------------|
| `curves`             | a metric against time, client updates or steps    | `fadas.load_steps`                |
| `delays`             | how stale the updates were                        | `fadas.load_jobs`                 |
| `step_sizes`         | the server's step sizes                           | `fadas.load_steps`                |
| `lost_work`          | jobs without an accepted update                   | `fadas.load_steps`                |
| `timeline`           | when each client trained, and from which version  | `fadas.load_jobs`                 |
| `served`             | how well each client is served                    | `fadas.load_clients`              |
| `participation`      | how often each client took part                   | `fadas.load_clients`              |
| `labels`             | which client holds which labels                   | `fadas.load_labels`               |
"""

import io
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path

import matplotlib
from matplotlib.figure import Figure

from fadas.core.metrics import Metric
from fadas.report.comparison import TRAIN_LOSS, Row, choose_common_metric, compare
from fadas.report.figures.clients import participation, served
from fadas.report.figures.curves import STYLE, collect_points, curves, percent
from fadas.report.figures.server import clock_of, delays, labels, lost_work, step_sizes
from fadas.report.figures.timeline import timeline
from fadas.report.table import target_text
from fadas.report.text import show_line
from fadas.runs.reader import Run, group_runs

__all__ = ["FIGURES", "STYLE", "Drawn", "curves", "delays", "figures", "labels", "lost_work", "percent", "save_figures"]
__all__ += ["participation", "served", "step_sizes", "timeline"]
_MOST_METHODS = 100  # a figure of more would be higher than matplotlib can draw
_MOST_METRICS = 12  # figures of further metrics


@dataclass(frozen=True)
class Drawn:
    """A figure with its texts.

    Attributes:
        name: A short name, for file names and links.
        title: The heading above the figure.
        caption: The text below the figure.
        figure: The matplotlib figure.
        is_curve: Whether it shows learning curves.
    """

    name: str
    title: str
    caption: str
    figure: Figure
    is_curve: bool = False

    def svg(self) -> str:
        """Return the figure as SVG text, without a date: equal figures give equal text."""
        text = io.StringIO()
        metadata = {"Date": None, "Title": self.title}
        with _quiet():
            self.figure.savefig(text, format="svg", bbox_inches="tight", dpi=150, metadata=metadata)
        return text.getvalue()

    def save(self, path: Path) -> None:
        """Write the figure as PDF or PNG, without a date."""
        metadata = {".pdf": {"CreationDate": None, "Title": self.title}}.get(path.suffix, {"Software": None})
        with _quiet():
            self.figure.savefig(path, dpi=130, bbox_inches="tight", metadata=metadata)


@contextmanager
def _quiet() -> Iterator[None]:
    """Hide matplotlib's warnings: a name may use characters that the font does not have."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        yield


def figures(runs: Sequence[Run], metric: str | None = None) -> Iterator[Drawn]:
    """Yield the figures of a report. Figures without data are skipped. Diverged runs are not drawn.

    Args:
        runs: The runs.
        metric: The metric to compare by. None: the one that the runs are judged by.
    """
    sound = [run for run in runs if not run.diverged]
    all_groups = group_runs(sound)
    groups = dict(islice(all_groups.items(), _MOST_METHODS))
    if not groups:
        return
    judged = choose_common_metric(sound, metric)
    left_out = len(all_groups) - len(groups)
    note = f" {left_out} more methods are not drawn." if left_out else ""
    for entry in _list_figures(groups, judged):
        with matplotlib.rc_context(STYLE):
            with _quiet():
                figure = entry.draw(groups)
            if figure is not None:  # the style also applies while the caller saves the figure
                about = f" {_describe(groups, judged, entry)}" if entry.axis else ""
                logarithmic = entry.axis is not None and figure.axes[0].get_xscale() == "log"
                if logarithmic and entry.name != "train-loss" and any(run.initial for run in sound):
                    about += " The initial model stands at the left edge of the logarithmic axis."
                yield Drawn(entry.name, entry.title, entry.caption + about + note, figure, entry.axis is not None)


def _list_figures(groups: dict[str, list[Run]], metric: Metric) -> list["Entry"]:
    """Return what can be drawn: the metric, every further metric, the training loss, then `FIGURES`."""
    name = show_line(metric.name)
    clock = clock_of(groups)
    entries = [
        Entry(
            "time",
            f"{_title(name)} against time",
            f"The {name} reached in a given time. Synchronous methods wait for their slowest clients.",
            partial(curves, axis="time", metric=metric, xlabel=clock),
            axis="time",
        ),
        Entry(
            "updates",
            f"{_title(name)} against client updates",
            f"The {name} reached with a given amount of client work.",
            partial(curves, axis="updates", metric=metric),
            axis="updates",
        ),
    ]
    measured = dict.fromkeys(found for runs in groups.values() for run in runs for found in run.metrics)
    for number, further in enumerate([found for found in measured if found != metric.name][:_MOST_METRICS]):
        short = "metric-" + (re.sub(r"[^A-Za-z0-9]+", "-", further).strip("-")[:40] or str(number))
        entries.append(
            Entry(
                f"{short}-{number}" if short in {entry.name for entry in entries} else short,
                f"{_title(show_line(further))} against time",
                f"The {show_line(further)} on the test data in a given time.",
                partial(curves, axis="time", metric=further, xlabel=clock),
                axis="time",
            )
        )
    longest = max(len(run.records) for runs in groups.values() for run in runs)
    width = longest // 40 if longest >= 80 else 1
    caption = "The mean loss of the jobs in a server step, on the clients' own data."
    if width > 1:
        caption += f" The line is the running mean over {width} points; the pale line behind it is not smoothed."
    draw = partial(curves, axis="time", metric=TRAIN_LOSS, smooth=width, xlabel=clock)
    entries.append(Entry("train-loss", "Training loss against time", caption, draw, axis="time"))
    clients = partial(served, metric=metric)
    return entries + [replace(one, draw=clients) if one.draw is served else one for one in FIGURES]


def _title(name: str) -> str:
    return name.upper() if name in ("auc", "mae", "mse", "rmse") else name[:1].upper() + name[1:]


def _describe(groups: dict[str, list[Run]], metric: Metric, entry: "Entry") -> str:
    """Return what a reader of the curves must know: the task, the seeds, and when the target is reached."""
    runs = [run for group in groups.values() for run in group]
    tasks = dict.fromkeys(show_line(str(name)) for run in runs if (name := run.config["task"].get("name")))
    seeds = {len(group) for group in groups.values()}
    count = f"{min(seeds)}" if len(seeds) == 1 else f"{min(seeds)} to {max(seeds)}"
    text = f"Task: {', '.join(tasks)}. " if tasks else ""
    band = "" if entry.name == "train-loss" else "; the band is ± one sample standard deviation"
    text += "One seed." if seeds == {1} else f"Mean of {count} seeds{band}."
    if seeds != {1} and _has_partial_ends(groups, metric, entry.axis or "time"):
        text += " Thin and dotted: not all seeds have got that far."
    if entry.name not in ("time", "updates"):
        return text
    comparison = compare(runs, metric.name if metric.name != runs[0].metric.name else None)
    if comparison.target is not None:
        rows = [row for row in comparison.rows if row.reached]
        rows.sort(key=lambda row: (row.time_to_target is None, row.time_to_target or 0.0, row.algorithm))
        reached = [f"{show_line(row.algorithm)} {_reached(row)}" for row in rows]
        if reached:
            median = "" if seeds == {1} else " (median)"
            goal = f"Reached {target_text(metric, comparison.target)} in {clock_of(groups)}{median}"
            text += f" {goal}: {', '.join(reached)}."
    return text


def _reached(row: Row) -> str:
    some = f"in {row.reached} of {row.seeds} seeds"
    if row.time_to_target is None:
        return some
    return f"at {row.time_to_target:,.0f}" + (f" ({some})" if row.reached < row.seeds else "")


def _has_partial_ends(groups: dict[str, list[Run]], metric: Metric, axis: str) -> bool:
    """Return whether some seeds of a method have values where others have none."""
    return any(
        len({line[0, 0] for line in lines}) > 1 or len({line[-1, 0] for line in lines}) > 1
        for lines in collect_points(groups, axis, metric).values()
    )


def save_figures(runs: Sequence[Run], folder: Path, metric: str | None = None) -> None:
    """Write each figure to a folder, as PDF, PNG and SVG.

    Args:
        runs: The runs, from `fadas.runs.reader.find_runs`.
        folder: The folder. It is made if it is missing.
        metric: The metric to compare by. None: the one that the runs are judged by.

    Example:
        >>> save_figures(find_runs(Path("runs/demo")), Path("figures"))
    """
    folder.mkdir(parents=True, exist_ok=True)
    for drawn in figures(runs, metric):
        (folder / f"{drawn.name}.svg").write_text(drawn.svg(), encoding="utf-8")
        for kind in ("png", "pdf"):
            drawn.save(folder / f"{drawn.name}.{kind}")


@dataclass(frozen=True)
class Entry:
    """A figure of the report.

    Attributes:
        name: A short name, for file names and links.
        title: The heading above the figure.
        caption: The text below the figure.
        draw: Draws runs by method. It returns None if these runs have nothing to draw.
        axis: The x axis of learning curves. Their captions also name the task and the seeds.
    """

    name: str
    title: str
    caption: str
    draw: Callable[[dict[str, list[Run]]], Figure | None]
    axis: str | None = None


# The figures after the learning curves, in order. Add one here.
FIGURES: list[Entry] = [
    Entry(
        "delays",
        "Delays",
        "How many server versions behind each update was when the server used it. All seeds together, on a logarithmic "
        "axis.",
        delays,
    ),
    Entry(
        "eta",
        "Effective step size",
        "eta_t is the rate that the server used in step t, for methods that vary it. FedAsync's is its mixing weight. "
        "All seeds together.",
        step_sizes,
    ),
    Entry(
        "lost",
        "Work that was lost",
        "Jobs without an accepted update: dropped by their clients, too late, or refused by the server.",
        lost_work,
    ),
    Entry(
        "timeline",
        "The clients' timeline",
        "When each client trained, and from which version of the model. Only jobs that reached a server step count. "
        "First seed.",
        timeline,
    ),
    Entry(
        "clients",
        "How well each client is served",
        "The last model on each client's own test data, by delay tier. Dots are clients of all seeds, bars are means.",
        served,
    ),
    Entry(
        "participation",
        "Who took part how often",
        "Updates of each client that reached a server step, relative to equal shares. The dotted line is uniform "
        "participation.",
        participation,
    ),
    Entry(
        "labels",
        "Who holds what",
        "How many examples of each label each client has. The line above the plot gives ranges and medians per client. "
        "First seed.",
        labels,
    ),
]
