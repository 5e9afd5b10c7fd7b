"""The interactive part of report.html: its data, and Plotly, which the page carries along."""

import base64
import hashlib
import math
import zlib
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fadas.core.metrics import Metric
from fadas.report.comparison import describe_metric
from fadas.report.figures.timeline import ClientRows, timeline_of
from fadas.report.looks import Look
from fadas.report.statistics import t_quantile
from fadas.report.text import show_line
from fadas.runs.reader import Run
from fadas.runs.serialization import to_json

_MOST_POINTS = 500  # of a curve
_MOST_JOBS = 1500  # of a timeline
_MOST_TIMELINES = 24
_MOST_METRICS = 13
_DIGITS = 6


def explorer_data(
    groups: Mapping[str, Sequence[Run]], metric: Metric, target: float | None, looks: Mapping[str, Look]
) -> dict[str, Any]:
    """Return the data of the interactive curves and timelines.

    Args:
        groups: The runs that did not diverge, by method.
        metric: The metric that the methods are compared by.
        target: The target value of the metric.
        looks: The look of each method.
    """
    runs = [run for group in groups.values() for run in group]
    times = [run.records[-1].time for run in runs if not run.is_timeless]
    names = dict.fromkeys([metric.name, *(name for run in runs for name in run.metrics)])
    names = [name for name in names if any(run.values(describe_metric(name)) for run in runs)][:_MOST_METRICS]
    held_out = all(run.config["task"].get("validation") for run in runs)
    known = {metric.name: metric}
    metrics = [
        {
            "label": show_line(f"{'validation' if held_out else 'test'} {name}", 60),
            "percent": known.get(name, describe_metric(name)).format == "percent",
            "target": target if name == metric.name else None,
        }
        for name in names
    ]
    metrics.append({"label": "training loss", "percent": False, "target": None})
    most = max(map(len, groups.values()))
    return {
        "clock": " or ".join(dict.fromkeys(run.clock for run in runs)),
        "until": _round(max(times)) if times else None,
        "metrics": metrics,
        "t": [None, None, *(_round(t_quantile(count - 1)) for count in range(2, most + 1))],
        "methods": [
            {
                "name": show_line(name, 80),
                "colour": looks[name].colour,
                "dash": looks[name].dash,
                "runs": [_curves(run, names) for run in group],
            }
            for name, group in groups.items()
        ],
        "timelines": [
            {"name": show_line(name, 80), **_timeline(group[0])} for name, group in [*groups.items()][:_MOST_TIMELINES]
        ],
    }


def _curves(run: Run, names: Iterable[str]) -> dict[str, Any]:
    """Return the curves of a run: for each metric, then for the training loss, the columns of `AXES` and the values.

    Centralised training has no virtual time: against time, the page draws it as a level line.
    """
    found = [[(*_place(record), value) for record, value in run.values(describe_metric(name))] for name in names]
    losses = [(*_place(record), record.train_loss) for record in run.records if math.isfinite(record.train_loss)]
    return {
        "seed": str(run.summary.seed),
        "timeless": run.is_timeless,
        "curves": [*map(_columns, map(_thin, found)), _columns(_bin(losses))],
    }


def _place(record: Any) -> tuple[float, float, float]:
    return record.time, record.updates, record.step


def _thin(points: list[Any]) -> list[Any]:
    """Return so many points at most, with the first and the last one."""
    stride = math.ceil(len(points) / _MOST_POINTS) or 1
    return points if stride == 1 else [*points[:-1:stride], points[-1]]


def _bin(points: list[Any]) -> list[Any]:
    """Return so many points at most: the last place and the mean value of a few points each."""
    width = math.ceil(len(points) / _MOST_POINTS) or 1
    parts = [points[start : start + width] for start in range(0, len(points), width)]
    return [(*part[-1][:3], sum(point[3] for point in part) / len(part)) for part in parts]


def _columns(points: list[Any]) -> list[list[float]]:
    return [[_round(value) for value in column] for column in zip(*points)] or [[], [], [], []]


def _timeline(run: Run) -> dict[str, Any]:
    """Return the first jobs of a run: row, client, start, duration, version and delay of each."""
    jobs = timeline_of(run)
    rows = ClientRows(jobs)
    shown = sorted(jobs.bars, key=lambda bar: bar.start)[:_MOST_JOBS]
    columns = [
        (rows.row(bar.client), bar.client, _round(bar.start), _round(bar.end - bar.start), bar.version, bar.tau)
        for bar in shown
    ]
    left = len(jobs.bars) - len(shown)
    return {"clock": run.clock, "jobs": [list(column) for column in zip(*columns)], "left": left, "rows": rows.count}


def _round(value: float) -> float:
    return value if isinstance(value, int) else float(f"{value:.{_DIGITS}g}")


def data_block(data: Mapping[str, Any]) -> str:
    """Return data as a block of JSON in a page. Nothing in it can end the block."""
    text = to_json(data)
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return f'<script type="application/json" id="data">{text}</script>'


def read_asset(name: str) -> str:
    """Return a file of the page: "report.js" or "report.css"."""
    return (files("fadas.report.page") / name).read_text(encoding="utf-8")


@cache
def plotly() -> tuple[str, str]:
    """Return Plotly's JavaScript, compressed and as base64, and the hash by which the page admits it.

    It is the file that the package `plotly` ships. The package itself is not imported, which would take seconds.
    """
    spec = find_spec("plotly")
    assert spec is not None, "plotly is a dependency of fadas"
    source = (Path((spec.submodule_search_locations or [""])[0]) / "package_data" / "plotly.min.js").read_text(
        encoding="utf-8"
    )
    packed = zlib.compress(source.encode(), 4)
    return base64.b64encode(packed).decode(), script_hash(source)


def script_hash(source: str) -> str:
    """Return the hash of a script, as a content security policy names it."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()}'"
