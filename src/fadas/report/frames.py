"""Finished runs as pandas frames: one row for each run, server step or job."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fadas.core.records import Record
from fadas.runs.reader import Run, find_runs

if TYPE_CHECKING:
    import pandas as pd

Folders = str | Path | Iterable[str | Path]


def load_runs(folders: Folders) -> pd.DataFrame:
    """Return finished runs as a frame with one row for each run.

    `score` is the mean of the run's metric over the last five evaluations, and `score_std` their standard deviation.
    Metrics have columns of their own, with the values of the last evaluation. A diverged run has no score.

    Args:
        folders: The folder of an experiment or of a run, or several of them.

    Raises:
        ConfigError: A folder holds no finished runs.

    Example:
        >>> fadas.load_runs("runs/demo").groupby("algorithm")["score"].agg(["mean", "std"])
    """
    return _frame(_run_row(run) for run in _runs(folders))


def load_steps(folders: Folders) -> pd.DataFrame:
    """Return the server steps of finished runs as a frame with one row for each step.

    Step 0 is the initial model. Metrics have columns of their own. They are missing where the model was not evaluated.

    Args:
        folders: The folder of an experiment or of a run, or several of them.

    Raises:
        ConfigError: A folder holds no finished runs.

    Example:
        >>> steps = fadas.load_steps("runs/demo")
        >>> steps.dropna(subset="accuracy").pivot_table("accuracy", "updates", "algorithm").plot()
    """
    rows: list[dict[str, Any]] = []
    for run in _runs(folders):
        records = [run.initial, *run.records] if run.initial else run.records
        rows += [{**_identity(run), **_step_row(record)} for record in records]
    return _frame(rows)


def load_jobs(folders: Folders) -> pd.DataFrame:
    """Return the jobs whose updates reached a server step as a frame with one row for each job.

    Args:
        folders: The folder of an experiment or of a run, or several of them.

    Raises:
        ConfigError: A folder holds no finished runs.

    Example:
        >>> fadas.load_jobs("runs/demo").groupby("client")["tau"].mean()
    """
    rows: list[dict[str, Any]] = []
    for run in _runs(folders):
        for record in run.records:
            of_step = {**_identity(run), "step": record.step}
            rows += [
                {**of_step, "job": job.id, "client": job.client, "tau": job.tau, "start": job.start, "end": job.end}
                for job in record.jobs
            ]
    return _frame(rows)


def frame_of(runs: Sequence[Run]) -> pd.DataFrame:
    """Return the frame of `load_runs` for runs that are in memory.

    Args:
        runs: The runs.
    """
    return _frame(_run_row(run) for run in runs)


TABLES = {"runs": load_runs, "steps": load_steps, "jobs": load_jobs}


def _runs(folders: Folders) -> list[Run]:
    paths = [folders] if isinstance(folders, str | Path) else list(folders)
    return [run for path in paths for run in find_runs(Path(path))]


def _frame(rows: Iterable[dict[str, Any]]) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame.from_records(list(rows))


def _identity(run: Run) -> dict[str, Any]:
    return {"experiment": run.summary.experiment, "algorithm": run.label, "seed": run.summary.seed}


def _run_row(run: Run) -> dict[str, Any]:
    summary = run.summary
    return {
        **_identity(run),
        "metric": run.metric.name,
        "better": run.metric.better,
        "score": summary.score,
        "score_std": summary.score_std,
        **{name: _last(run, name) for name in run.metrics},
        **{name: getattr(summary, name) for name in ("step", "updates", "time", "tau_max", "tau_avg", "tau_med")},
        "target": summary.target,
        "time_to_target": summary.time_to_target,
        "dropped": summary.dropped,
        "expired": summary.expired,
        "refused": sum(summary.refused.values()),
        "diverged": summary.diverged,
        "wall": summary.wall,
        "folder": str(run.folder),
    }


def _last(run: Run, name: str) -> float | None:
    """Return the last value of a metric."""
    values = [metrics[name] for _, metrics in run.evaluations if name in metrics]
    return values[-1] if values else None


def _step_row(record: Record) -> dict[str, Any]:
    taus = [job.tau for job in record.jobs]
    return {
        "step": record.step,
        "updates": record.updates,
        "time": record.time,
        "eta": record.eta if record.step else math.nan,
        "train_loss": record.train_loss,
        "tau_max": max(taus, default=math.nan),
        "tau_mean": sum(taus) / len(taus) if taus else math.nan,
        "dropped": record.dropped,
        "expired": record.expired,
        "refused": sum(record.refused.values()),
        **(record.metrics or {}),
    }
