"""Run folders, written and read without training."""

import gc
import io
import json
from dataclasses import replace
from pathlib import Path

from fadas.core.records import JobRecord, Record
from fadas.runs.folder import claim
from fadas.runs.reader import Run
from fadas.runs.summary import Summary, summarise
from fadas.runs.writer import Writer

TABLES = {"name": "x", "run": {"seeds": [0], "tensorboard": False}, "executor": {"name": "inline"}}


# As a deployment writes them.
LIVE_TABLES = {"name": "x", "task": {"name": "flower"}, "run": {"steps": 4, "seeds": [0]}, "algorithms": {"fadas": {}}}


def make_record(step, accuracy=None, taus=None, **fields) -> Record:
    """The record of a server step, with delays of at most 2. `fields` replace the values given here."""
    taus = (0, min(2, step - 1)) if taus is None else taus
    record = Record(
        step=step,
        time=10.0 * step,
        wall=0.0,
        updates=2 * step,
        eta=0.1,
        jobs=tuple(JobRecord(9 * step + k, k, tau, 0.0, 1.0) for k, tau in enumerate(taus)),
        train_loss=1.0,
        dropped=0,
        expired=0,
        refused={},
        metrics=None if accuracy is None else {"accuracy": accuracy},
    )
    return replace(record, **fields)


def make_summary(records, label="a", seed=0, target=None, diverged=None, experiment="x") -> Summary:
    """The summary of a run of these records."""
    outcome = vars(summarise(records, target, diverged))
    return Summary(experiment=experiment, algorithm=label, seed=seed, place=0, **outcome)


def open_writer(folder: Path, tables=TABLES, mode="new", kept=None) -> Writer:
    """Claim a folder and open its writer."""
    return Writer(claim(folder, tables, mode), kept)


def write_run(folder: Path, records, tables=TABLES, finish=True, label="a") -> None:
    writer = open_writer(folder, tables)
    for record in records:
        writer.append(record)
    if finish:
        writer.finish(make_summary(records, label))
    else:
        writer.close()


def make_run(label, points, seed=0, taus=(0, 3), target=0.6, etas=(0.1,), diverged=None, **config) -> Run:
    """A run as the report reads it, from points of time, updates and accuracy."""
    records = []
    for k, (time, updates, accuracy) in enumerate(points):
        records.append(make_record(k + 1, accuracy, taus, time=time, updates=updates, eta=etas[k % len(etas)]))
    summary = make_summary(records, label, seed, target, diverged, experiment="<b>x</b>")
    return Run(Path(f"{label}-{seed}"), {"task": {"clients": 3}, **config}, records, summary)


def make_measured_run(label, points, metric, seed=0, target=None, **further) -> Run:
    """A run that is judged by a metric, from points of time, updates and its value. `further` metrics do not vary."""
    records = [
        make_record(k + 1, time=time, updates=updates, metrics={metric.name: value, **further})
        for k, (time, updates, value) in enumerate(points)
    ]
    outcome = vars(summarise(records, target, metric=metric))
    summary = Summary(experiment="x", algorithm=label, seed=seed, place=0, **outcome)
    return Run(Path(f"{label}-{seed}"), {"task": {"clients": 3}}, records, summary)


FAST_RUN = make_run("fast", [(10, 5, 0.5), (20, 10, 0.7), (30, 15, 0.8)], etas=(0.1, 0.01))
SLOW_RUN = make_run("slow", [(100, 5, 0.3), (200, 10, 0.65)], taus=(0, 0))


def read_records(folder: Path) -> list[dict]:
    """The server steps in a run's metrics.jsonl, none if there is no such file yet."""
    path = folder / "metrics.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return [line for line in lines if line["step"]]


def read_initial(folder: Path) -> dict:
    """The line of the initial model."""
    line = json.loads((folder / "metrics.jsonl").read_text().splitlines()[0])
    assert line["step"] == 0
    return line


def count_records() -> int:
    """How many records there are in memory."""
    gc.collect()
    return sum(issubclass(type(thing), Record) for thing in gc.get_objects())


def read_files(folder: Path, names=None) -> dict[str, bytes]:
    """What the files of a folder hold, by their names: all files, or these."""
    paths = [folder / name for name in names] if names else [path for path in folder.iterdir() if path.is_file()]
    return {path.name: path.read_bytes() for path in paths}


def read_times(paths) -> dict[Path, int]:
    """When each of these files was last written."""
    return {path: path.stat().st_mtime_ns for path in paths}


def draw_runs(*followers) -> str:
    """What `fadas watch` shows of these runs now."""
    from rich.console import Console

    from fadas.cli import terminal

    console = Console(width=200, record=True, file=io.StringIO())
    for follower in followers:
        follower.refresh()
    console.print(terminal.draw_runs(list(followers)))
    return console.export_text()


def draw_axes(*runs) -> dict[str, list]:
    """The axes of each figure that the report draws of these runs."""
    from fadas.report.figures import figures

    return {drawing.name: list(drawing.figure.axes) for drawing in figures(runs)}
