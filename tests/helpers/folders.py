"""Run folders, written and read without training."""

import json
from pathlib import Path

from fadas.runs.run_reader import Run
from fadas.runs.summary import summarise
from fadas.runs.writer import Writer

TABLES = {"name": "x", "run": {"seeds": [0], "tensorboard": False}, "executor": {"name": "inline"}}


# As a deployment writes them.
LIVE_TABLES = {"name": "x", "task": {"name": "flower"}, "run": {"steps": 4, "seeds": [0]}, "algorithms": {"fadas": {}}}


def make_record(step, accuracy=None, taus=(0, 2)) -> dict:
    """A line of metrics.jsonl."""
    jobs = [{"id": 9 * step + k, "client": k, "tau": tau, "start": 0.0, "end": 1.0} for k, tau in enumerate(taus)]
    return {
        "step": step,
        "time": 10.0 * step,
        "updates": 2 * step,
        "eta": 0.1,
        "jobs": jobs,
        "train_loss": 1.0,
        "dropped": 0,
        "expired": 0,
        "refused": {},
        "metrics": None if accuracy is None else {"accuracy": accuracy},
    }


def write_run(folder: Path, records, tables=TABLES, finish=True) -> None:
    writer = Writer(folder, tables)
    for record in records:
        writer.append(record)
    if finish:
        writer.finish({"experiment": "x", "algorithm": "a", "seed": 0, "place": 0, **summarise(records)})
    else:
        writer.close()


def make_run(label, points, seed=0, taus=(0, 3), target=0.6, etas=(0.1,), diverged=None, **config) -> Run:
    """A run as the report reads it, from points of time, updates and accuracy."""
    records = []
    for k, (time, updates, accuracy) in enumerate(points):
        record = {**make_record(k + 1, accuracy, taus), "time": time, "updates": updates, "eta": etas[k % len(etas)]}
        records.append(record)
    summary = {"experiment": "<b>x</b>", "algorithm": label, "seed": seed, **summarise(records, target, diverged)}
    return Run(Path(f"{label}-{seed}"), {"task": {"clients": 3}, **config}, records, summary)


FAST_RUN = make_run("fast", [(10, 5, 0.5), (20, 10, 0.7), (30, 15, 0.8)], etas=(0.1, 0.01))
SLOW_RUN = make_run("slow", [(100, 5, 0.3), (200, 10, 0.65)], taus=(0, 0))


def read_records(folder: Path) -> list[dict]:
    """The lines of a run's metrics.jsonl, none if there is no such file yet."""
    path = folder / "metrics.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def read_files(folder: Path, names=None) -> dict[str, bytes]:
    """What the files of a folder hold, by their names: all files, or these."""
    paths = [folder / name for name in names] if names else [path for path in folder.iterdir() if path.is_file()]
    return {path.name: path.read_bytes() for path in paths}


def read_times(paths) -> dict[Path, int]:
    """When each of these files was last written."""
    return {path: path.stat().st_mtime_ns for path in paths}


def draw_axes(*runs) -> dict[str, list]:
    """The axes of each figure that the report draws of these runs."""
    from fadas.report.figures import figures

    return {drawing.name: list(drawing.figure.axes) for drawing in figures(runs)}
