"""Finished runs as pandas frames: one row for each run, server step, job, client, or label of a client."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fadas.core.records import ClientsRecord
from fadas.report.comparison import join_folders
from fadas.runs.reader import Run, find_runs, group_runs
from fadas.validate import one_of

if TYPE_CHECKING:
    import pandas as pd

Folders = str | Path | Iterable[str | Path]


def load_runs(folders: Folders) -> pd.DataFrame:
    """Return finished runs as a frame with one row for each run.

    Methods have the names that they have in a report: a label that several folders have gets the folder's name.
    `score` is the mean of the run's metric over the last five evaluations, and `score_std` their standard deviation.
    Metrics have columns of their own, with the values of the last evaluation. A metric with the name of another column,
    such as "score", has the column "metric_score". A diverged run has no score, and centralised training no times.

    Args:
        folders: The folder of an experiment or of a run, or several of them.

    Raises:
        ConfigError: A folder holds no finished runs.

    Example:
        >>> fadas.load_runs("runs/demo").groupby("algorithm")["score"].agg(["mean", "std"])
    """
    return frame_of(_runs(folders), "runs")


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
    return frame_of(_runs(folders), "steps")


def load_jobs(folders: Folders) -> pd.DataFrame:
    """Return the jobs whose updates reached a server step as a frame with one row for each job.

    Args:
        folders: The folder of an experiment or of a run, or several of them.

    Raises:
        ConfigError: A folder holds no finished runs.

    Example:
        >>> fadas.load_jobs("runs/demo").groupby("client")["tau"].mean()
    """
    return frame_of(_runs(folders), "jobs")


def load_clients(folders: Folders) -> pd.DataFrame:
    """Return the clients of finished runs as a frame with one row for each client and evaluation of the clients.

    Metrics have columns of their own, with the model's values on the client's own test data. A run that did not
    evaluate clients has one row for each client, at its end. `arrivals` is the number of the client's updates so far
    that reached a server step. It is missing for centralised training, whose jobs are no client's.

    Args:
        folders: The folder of an experiment or of a run, or several of them.

    Raises:
        ConfigError: A folder holds no finished runs.

    Example:
        >>> clients = fadas.load_clients("runs/demo")
        >>> clients[clients["step"] == clients["step"].max()].groupby(["algorithm", "tier"])["arrivals"].mean()
    """
    return frame_of(_runs(folders), "clients")


def load_labels(folders: Folders) -> pd.DataFrame:
    """Return who holds what as a frame with one row for each label of each client: `examples` is how many it has.

    Runs whose targets are no labels have no rows.

    Args:
        folders: The folder of an experiment or of a run, or several of them.

    Raises:
        ConfigError: A folder holds no finished runs.

    Example:
        >>> fadas.load_labels("runs/demo").groupby(["algorithm", "seed", "client"])["examples"].sum()
    """
    return frame_of(_runs(folders), "labels")


def frame_of(runs: Sequence[Run], table: str = "runs") -> pd.DataFrame:
    """Return the frame of `load_runs`, or of another function here, for runs that are in memory.

    Methods have the names that they have in a report: runs of one label with different settings get longer names.

    Args:
        runs: The runs.
        table: "runs", "steps", "jobs", "clients" or "labels".
    """
    import pandas as pd

    one_of(tuple(TABLES), table=table)
    names = {id(run): name for name, group in group_runs(runs).items() for run in group}
    named = [{**row, "algorithm": names[id(run)]} for run in runs for row in _ROWS[table](run)]
    return pd.DataFrame.from_records(named)


def _runs(folders: Folders) -> list[Run]:
    paths = [folders] if isinstance(folders, str | Path) else list(folders)
    return join_folders({path: find_runs(path) for path in dict.fromkeys(map(Path, paths))})


def _identity(run: Run) -> dict[str, Any]:
    return {"experiment": run.summary.experiment, "algorithm": run.label, "seed": run.summary.seed}


def _run_rows(run: Run) -> Iterator[dict[str, Any]]:
    summary = run.summary
    times = {"time": summary.time, "time_to_target": summary.time_to_target}
    if run.is_timeless:
        times = dict.fromkeys(times)
    row = {
        **_identity(run),
        "metric": run.metric.name,
        "better": run.metric.better,
        "score": summary.score,
        "score_std": summary.score_std,
        "step": summary.step,
        "updates": summary.updates,
        "time": times["time"],
        **{name: getattr(summary, name) for name in ("tau_max", "tau_avg", "tau_med")},
        "target": summary.target,
        "time_to_target": times["time_to_target"],
        "dropped": summary.dropped,
        "expired": summary.expired,
        "refused": sum(summary.refused.values()),
        "diverged": summary.diverged,
        "wall": summary.wall,
        "folder": str(run.folder),
    }
    yield _with_metrics(row, {name: _last(run, name) for name in run.metrics}, behind="score_std")


def _with_metrics(row: dict[str, Any], metrics: Mapping[str, Any], behind: str | None = None) -> dict[str, Any]:
    """Return a row with columns for metrics. A metric with the name of another column becomes "metric_NAME"."""
    named = {f"metric_{name}" if name in row else name: value for name, value in metrics.items()}
    place = list(row).index(behind) + 1 if behind else len(row)
    columns = list(row.items())
    return {**dict(columns[:place]), **named, **dict(columns[place:])}


def _last(run: Run, name: str) -> float | None:
    """Return the last value of a metric."""
    values = [metrics[name] for _, metrics in run.evaluations if name in metrics]
    return values[-1] if values else None


def _step_rows(run: Run) -> Iterator[dict[str, Any]]:
    for record in [run.initial, *run.records] if run.initial else run.records:
        taus = [job.tau for job in record.jobs]
        row = {
            **_identity(run),
            "step": record.step,
            "updates": record.updates,
            "time": None if run.is_timeless else record.time,
            "eta": record.eta if record.step else math.nan,
            "train_loss": record.train_loss,
            "tau_max": max(taus, default=math.nan),
            "tau_mean": sum(taus) / len(taus) if taus else math.nan,
            "dropped": record.dropped,
            "expired": record.expired,
            "refused": sum(record.refused.values()),
        }
        yield _with_metrics(row, record.metrics or {})


def _job_rows(run: Run) -> Iterator[dict[str, Any]]:
    for record in run.records:
        of_step = {**_identity(run), "step": record.step}
        for job in record.jobs:
            yield {**of_step, "job": job.id, "client": job.client, "tau": job.tau, "start": job.start, "end": job.end}


def _client_rows(run: Run) -> Iterator[dict[str, Any]]:
    from fadas.report.clients import client_tiers, count_arrivals

    tiers = {client: name for name, members in client_tiers(run).items() for client in members}
    last = run.records[-1] if run.records else None
    end = [ClientsRecord(last.step, last.updates, last.time, {})] if last else []
    for evaluation in run.clients_evaluations or end:
        arrived = count_arrivals(run, evaluation.step)
        for client, count in enumerate(arrived):
            row = {
                **_identity(run),
                "step": evaluation.step,
                "updates": evaluation.updates,
                "time": None if run.is_timeless else evaluation.time,
                "client": client,
                "tier": tiers.get(client),
                "arrivals": None if run.baseline == "centralised" else count,
            }
            yield _with_metrics(row, {name: values[client] for name, values in evaluation.metrics.items()})


def _label_rows(run: Run) -> Iterator[dict[str, Any]]:
    for client, counts in enumerate(run.counts or ()):
        for label, examples in enumerate(counts):
            yield {**_identity(run), "client": client, "label": label, "examples": examples}


TABLES = {
    "runs": load_runs,
    "steps": load_steps,
    "jobs": load_jobs,
    "clients": load_clients,
    "labels": load_labels,
}
_ROWS = {"runs": _run_rows, "steps": _step_rows, "jobs": _job_rows, "clients": _client_rows, "labels": _label_rows}
