"""Read runs from disk. This module does not need torch."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fadas.core.records import Record
from fadas.errors import ConfigError, Damaged
from fadas.registry import is_table
from fadas.runs.folder import CONFIG, METRICS, PARTITION, SUMMARY, read_summary
from fadas.runs.formats import upgrade_config, upgrade_table
from fadas.runs.same_run import identity, is_deployment
from fadas.runs.serialization import from_table, parse_json, parse_toml, strict_json, to_json
from fadas.runs.summary import Summary


@dataclass(frozen=True)
class Run:
    """A finished run.

    Attributes:
        folder: Where it is kept.
        config: Its settings.
        records: One record per server step.
        summary: Its results.
        counts: Examples of each label, by client, if the targets are labels.
    """

    folder: Path
    config: dict[str, Any]
    records: list[Record]
    summary: Summary
    counts: list[list[int]] | None = None

    @property
    def label(self) -> str:
        """The algorithm's label in the experiment."""
        return self.summary.algorithm

    @property
    def diverged(self) -> str | None:
        """Why the run ended early, if it diverged."""
        return self.summary.diverged

    @property
    def clock(self) -> str:
        """The unit of its times."""
        return "seconds" if is_deployment(self.config) else "virtual time"

    @property
    def evaluations(self) -> list[tuple[Record, dict[str, float]]]:
        """The records with an evaluation, each with its metrics."""
        return [(record, record.metrics) for record in self.records if record.metrics]

    @property
    def clients(self) -> int:
        """The number of clients in the settings; 0 for a deployment, where it may change."""
        return self.config["task"].get("clients", 0)


@dataclass(frozen=True)
class _Settings:
    """The sections of config.toml that readers rely on."""

    task: dict[str, Any] = field(default_factory=dict[str, Any])
    run: dict[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True)
class _Partition:
    counts: list[list[int]]


def read_run(folder: Path) -> Run:
    """Return a finished run.

    Raises:
        Damaged: The folder does not hold a finished run, or one of its files is invalid.
    """
    summary, name = read_summary(folder), CONFIG
    try:
        config = upgrade_config(parse_toml(folder / CONFIG), str(folder / CONFIG))
        settings = from_table(_Settings, config, CONFIG)
        name = METRICS
        records = read_records(folder / METRICS)
        if (not records and not summary.diverged) or (records[-1].step if records else 0) != summary.step:
            raise ValueError(f"it does not end at step {summary.step}, as {SUMMARY} says")
        name = PARTITION
        counts = _read_counts(folder / PARTITION) if (folder / PARTITION).exists() else None
    except Damaged:
        raise
    except (ValueError, AttributeError) as error:
        raise Damaged(f"{folder} is damaged: {name}: {error}") from None
    return Run(folder, {**config, "task": settings.task, "run": settings.run}, records, summary, counts)


def read_records(path: Path) -> list[Record]:
    """Return the records in a metrics.jsonl."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise Damaged(f"cannot read {path}: {error.strerror}") from None
    return [read_record(line, number) for number, line in enumerate(lines, 1)]


def read_record(line: str | bytes, number: int = 1) -> Record:
    """Return the record on a line of metrics.jsonl. Non-finite numbers are stored as null and become NaN here."""
    where = f"line {number}"
    read: Any = strict_json(line)
    if not is_table(read):
        raise ValueError(f"{where} must be a table, got {read!r}")
    table = {"wall": 0.0, **read}
    if table.get("train_loss", 0.0) is None:
        table["train_loss"] = math.nan
    if is_table(metrics := table.get("metrics")):
        table["metrics"] = {name: math.nan if value is None else value for name, value in metrics.items()}
    if "metrics" not in table:
        raise ValueError(f"{where}.metrics is missing")
    record = from_table(Record, table, where)
    if not record.jobs:
        raise ValueError(f"{where}.jobs is empty")
    return record


def _read_counts(path: Path) -> list[list[int]]:
    partition = from_table(_Partition, upgrade_table(parse_json(path), str(path)), path.name)
    if len({len(client) for client in partition.counts}) != 1:
        raise ValueError("all clients must have the same number of labels")
    if any(not 0 <= count < 2**53 for client in partition.counts for count in client):
        raise ValueError("a count is negative or too large")
    return partition.counts


def find_runs(folder: Path) -> list[Run]:
    """Return the finished runs directly below an experiment's folder, or the run in the folder itself."""
    files = (CONFIG, METRICS, SUMMARY)
    folders = [folder, *(path.parent for path in folder.glob(f"*/{SUMMARY}"))]
    found = [read_run(path) for path in folders if all((path / name).exists() for name in files)]
    if not found:
        below = sorted({str(path.parents[1]) for path in folder.glob(f"*/*/{SUMMARY}")})  # of a sweep
        raise ConfigError(f"no finished runs in {folder}{', but in ' + ', '.join(below) if below else ''}")
    return sorted(found, key=lambda run: (run.summary.place, run.summary.seed, run.folder.name))


def unfinished_runs(folder: Path) -> list[str]:
    """Return the names of the runs below a folder that have not finished."""
    begun = (path.parent for path in folder.glob(f"*/{METRICS}"))
    return sorted(path.name for path in begun if not (path / SUMMARY).exists())


def group_runs(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """Return the runs by method: runs of a group differ in their seed only.

    A group has the algorithm's label. If runs of one label have several settings, the names of their folders tell the
    groups apart.
    """
    groups: dict[str, dict[str, list[Run]]] = {}
    for run in runs:
        settings = identity(run.config)
        settings["run"].pop("seeds", None)
        groups.setdefault(run.label, {}).setdefault(to_json(settings), []).append(run)
    named: dict[str, list[Run]] = {}
    for label, by_settings in groups.items():
        full = [group[0].folder.name for group in by_settings.values()]
        seeds = [group[0].summary.seed if len(group) > 1 else "" for group in by_settings.values()]
        short = [name.removesuffix(f"-{seed}") for name, seed in zip(full, seeds, strict=True)]
        for folder, name, group in zip(full, short, by_settings.values(), strict=True):
            taken = short.count(name) > 1 or (name != folder and name in full)
            named[label if len(by_settings) == 1 else f"{label} ({folder if taken else name})"] = group
    return named
