"""Read runs from disk. This module does not need torch."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, count
from pathlib import Path
from typing import Any

from fadas.core.metrics import Better, Format, Metric
from fadas.core.records import ClientsRecord, Record
from fadas.errors import ConfigError, Damaged
from fadas.registry import is_table
from fadas.runs.folder import CLIENTS, CONFIG, METRICS, PARTITION, SUMMARY, read_summary
from fadas.runs.formats import upgrade_config, upgrade_table
from fadas.runs.same_run import identity, is_deployment
from fadas.runs.serialization import check_numbers, from_table, parse_json, parse_toml, read_text, strict_json
from fadas.runs.summary import Summary, require_counts, require_losses, require_seeds
from fadas.validate import not_negative


@dataclass(frozen=True)
class Run:
    """A finished run.

    Attributes:
        folder: Where it is kept.
        config: Its settings.
        records: One record per server step.
        summary: Its results.
        counts: Examples of each label, by client, if the targets are labels.
        initial: The record of the initial model. None: it was not evaluated.
        clients_evaluations: The evaluations on the clients' own test data, if there were any.
        tiers: The clients of each delay tier, from the fastest to the slowest. None: the delays have no tiers.
    """

    folder: Path
    config: dict[str, Any]
    records: list[Record]
    summary: Summary
    counts: list[list[int]] | None = None
    initial: Record | None = None
    clients_evaluations: list[ClientsRecord] = field(default_factory=list[ClientsRecord])
    tiers: dict[str, list[int]] | None = None

    @property
    def label(self) -> str:
        """The algorithm's label in the experiment."""
        return self.summary.algorithm

    @property
    def diverged(self) -> str | None:
        """Why the run ended early, if it diverged."""
        return self.summary.diverged

    @property
    def metric(self) -> Metric:
        """The metric that the run is judged by."""
        return self.summary.judged_by

    @property
    def metrics(self) -> list[str]:
        """The names of everything that was measured on the test data, the run's metric first."""
        names = dict.fromkeys(name for _, metrics in self.evaluations for name in metrics)
        return sorted(names, key=lambda name: name != self.metric.name)

    @property
    def clock(self) -> str:
        """The unit of its times."""
        return "seconds" if is_deployment(self.config) else "virtual time"

    @property
    def evaluations(self) -> list[tuple[Record, dict[str, float]]]:
        """The records with an evaluation, each with its metrics. The first one is that of the initial model."""
        records = [self.initial, *self.records] if self.initial else self.records
        return [(record, record.metrics) for record in records if record.metrics]

    def values(self, metric: Metric | None = None) -> list[tuple[Record, float]]:
        """Return the records in which a metric was measured and is a number, each with its value.

        Args:
            metric: The metric. None: the one that the run is judged by.
        """
        metric = metric or self.metric
        found = ((record, metric.value(metrics)) for record, metrics in self.evaluations)
        return [(record, value) for record, value in found if value is not None]

    @property
    def baseline(self) -> str | None:
        """ "centralised" or "local-only" for a run that is no federated learning."""
        table = self.config.get("algorithms")
        own = next(iter(table.values()), None) if is_table(table) else None
        named = [own.get("baseline"), own.get("preset")] if is_table(own) else []
        return next((str(name) for name in named if name in ("centralised", "local-only")), None)

    @property
    def is_timeless(self) -> bool:
        """Whether its virtual time means nothing: centralised training waits for no clients."""
        return self.baseline == "centralised"

    @property
    def last_clients_metrics(self) -> dict[str, list[float]] | None:
        """The last evaluation on the clients' own test data, with NaN where it is undefined. None: there is none."""
        if not self.clients_evaluations:
            return None
        last = self.clients_evaluations[-1].metrics
        return {name: [math.nan if v is None else v for v in values] for name, values in last.items()}

    @property
    def clients(self) -> int:
        """The number of clients in the settings, or 0 for a deployment, where the number may change."""
        return self.config["task"].get("clients", 0)


@dataclass(frozen=True)
class _Task:
    """The settings under [task] that readers rely on."""

    name: str = ""
    clients: int = 0


@dataclass(frozen=True)
class _Limits:
    """The settings under [run] that readers rely on."""

    steps: int | None = None
    updates: int | None = None
    time: float | None = None
    seeds: list[int] = field(default_factory=list[int])
    metric: str | None = None
    better: Better | None = None
    format: Format | None = None


@dataclass(frozen=True)
class _Partition:
    counts: list[list[int]] | None = None
    tiers: dict[str, list[int]] | None = None


def read_run(folder: Path) -> Run:
    """Return a finished run.

    Args:
        folder: The run's folder.

    Raises:
        Damaged: The folder does not hold a finished run, or one of its files is invalid.

    Example:
        >>> run = read_run(Path("runs/demo/fadas-1"))
        >>> [(record.time, metrics["accuracy"]) for record, metrics in run.evaluations]
    """
    summary, config, name = read_summary(folder), read_settings(folder), METRICS
    try:
        records = read_records(folder / METRICS)
        initial = records.pop(0) if records and not records[0].step else None
        if (not records and not summary.diverged) or (records[-1].step if records else 0) != summary.step:
            raise ValueError(f"it does not end at step {summary.step}, as {SUMMARY} says")
        clients = config["task"].get("clients", 0)
        _require_known_clients(records, clients)
        name = CLIENTS
        evaluations = read_clients_records(folder / CLIENTS, clients)
        name = PARTITION
        partition = _read_partition(folder / PARTITION, clients)
    except Damaged:
        raise
    except (ValueError, AttributeError) as error:
        raise Damaged(f"{folder} is damaged: {name}: {error}") from None
    return Run(folder, config, records, summary, partition.counts, initial, evaluations, partition.tiers)


def read_settings(folder: Path) -> dict[str, Any]:
    """Return a run's settings, with the sections `task` and `run`.

    Raises:
        Damaged: config.toml is not what fadas wrote.
    """
    path = folder / CONFIG
    try:
        config = upgrade_config(parse_toml(path), str(path))
        task = from_table(_Task, config.setdefault("task", {}), "task")
        limits = from_table(_Limits, config.setdefault("run", {}), "run")
        require_counts(clients=task.clients, steps=limits.steps or 0, updates=limits.updates or 0)
        not_negative(time=limits.time or 0.0)
        require_seeds(limits.seeds)
        check_numbers(config, "settings", latest=None)
    except Damaged:
        raise
    except (ValueError, AttributeError) as error:
        raise Damaged(f"{folder} is damaged: {CONFIG}: {error}") from None
    return config


def read_records(path: Path) -> list[Record]:
    """Return the records in a metrics.jsonl.

    Args:
        path: The file.

    Raises:
        ValueError: No run can have written the file.
    """
    records: list[Record] = []
    for number, line in enumerate(read_text(path).splitlines(), 1):
        records.append(read_record(line, number, records[-1] if records else None))
    return records


def written_records(folder: Path) -> Iterator[Record]:
    """Yield the records in a folder's metrics.jsonl one by one. A long run's records would fill the memory."""
    with (folder / METRICS).open("rb") as file:
        for number, line in enumerate(file, 1):
            yield read_record(line, number)


def read_record(line: str | bytes, number: int = 1, before: Record | None = None) -> Record:
    """Return the record on a line of metrics.jsonl. Non-finite numbers are stored as null and become NaN here.

    Args:
        line: The line.
        number: Its number, for error messages.
        before: The record on the line before.

    Raises:
        ValueError: No run can have written the line.
    """
    where = f"line {number}"
    try:
        read: Any = strict_json(line)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None
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
    if bool(record.jobs) != bool(record.step):
        raise ValueError(f"{where}.jobs {'has jobs of the initial model' if record.jobs else 'is empty'}")
    try:
        _require_possible(record)
        if before:
            _require_order(before, record)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None
    return record


def read_clients_records(path: Path, clients: int = 0) -> list[ClientsRecord]:
    """Return the evaluations in a clients.jsonl. A file that does not exist holds none.

    Args:
        path: The file.
        clients: The number of clients. 0: it is not known.

    Raises:
        ValueError: No run can have written the file.
    """
    if not path.exists():
        return []
    found: list[ClientsRecord] = []
    for number, line in enumerate(read_text(path).splitlines(), 1):
        try:
            record = from_table(ClientsRecord, strict_json(line), "it")
            _require_possible_clients(record, clients or (found[0].clients if found else 0))
            if found and record.step <= found[-1].step:
                raise ValueError(f"step {record.step} follows step {found[-1].step}")
        except ValueError as error:
            raise ValueError(f"line {number}: {error}") from None
        found.append(record)
    return found


def _require_possible_clients(record: ClientsRecord, clients: int) -> None:
    require_counts(1, step=record.step, updates=record.updates)
    not_negative(time=record.time)
    lengths = {len(row) for row in record.metrics.values()}
    if len(lengths) != 1 or lengths == {0}:
        raise ValueError("every metric must have one value per client")
    if clients and lengths != {clients}:
        raise ValueError(f"it has values of {lengths.pop()} clients, and there are {clients}")


def _require_possible(record: Record) -> None:
    """Raise a ValueError if no server step can have this record."""
    require_counts(step=record.step)
    require_counts(len(record.jobs), updates=record.updates)
    require_losses(record)
    not_negative(time=record.time)
    for job in record.jobs:
        require_counts(**{"job id": job.id, "client": job.client, "tau": job.tau})
        if not 0 <= job.start <= job.end:
            raise ValueError(f"job {job.id} starts at {job.start} and ends at {job.end}")
        if job.tau >= record.step:
            raise ValueError(f"job {job.id} has a delay of {job.tau} at step {record.step}")


def _require_order(before: Record, record: Record) -> None:
    """Raise a ValueError if a record cannot follow the one before it."""
    if record.step <= before.step:
        raise ValueError(f"step {record.step} follows step {before.step}")
    for name in ("time", "updates", "dropped", "expired"):
        if getattr(record, name) < getattr(before, name):
            raise ValueError(f"{name} falls from {getattr(before, name)} to {getattr(record, name)}")


def _require_known_clients(records: Sequence[Record], clients: int) -> None:
    """Raise a ValueError if a record names a client that the settings do not have. 0: the number is not known."""
    last = max((job.client for record in records for job in record.jobs), default=-1)
    if 0 < clients <= last:
        raise ValueError(f"it names client {last}, but {CONFIG} has {clients} clients")


def _read_partition(path: Path, clients: int) -> _Partition:
    if not path.exists():
        return _Partition()
    partition = from_table(_Partition, upgrade_table(parse_json(path), str(path)), path.name)
    counts, tiers = partition.counts, partition.tiers
    if counts is not None and len({len(client) for client in counts}) != 1:
        raise ValueError("all clients must have the same number of labels")
    if any(not 0 <= count < 2**53 for client in counts or () for count in client):
        raise ValueError("a count is negative or too large")
    members = sorted(chain.from_iterable((tiers or {}).values()))
    if tiers is not None and (len(members) != clients or members != [*range(clients)]):
        raise ValueError("every client must be in one tier")
    return partition


def read_runs(folder: Path) -> tuple[list[Run], list[Damaged]]:
    """Return the finished runs directly below an experiment's folder, or the run in the folder itself.

    Also returns what is wrong with those that are damaged.

    Raises:
        ConfigError: There are no finished runs.
    """
    files = (CONFIG, METRICS, SUMMARY)
    folders = [folder, *sorted(path.parent for path in folder.glob(f"*/{SUMMARY}"))]
    found: list[Run] = []
    damaged: list[Damaged] = []
    for path in folders:
        if all((path / name).exists() for name in files):
            try:
                found.append(read_run(path))
            except Damaged as error:
                damaged.append(error)
    if not (found or damaged):
        raise ConfigError(_describe_missing(folder))
    return sorted(found, key=lambda run: (run.summary.place, run.summary.seed, run.folder.name)), damaged


def _describe_missing(folder: Path) -> str:
    """Return why a folder has no finished runs, and what to do."""
    if not folder.is_dir():
        return f"{folder} does not exist; give the folder of an experiment, such as runs/demo"
    if below := sorted({str(path.parents[1]) for path in folder.glob(f"*/*/{SUMMARY}")}):  # of a sweep
        return f"no finished runs in {folder}, but in {', '.join(below)}"
    if begun := unfinished_runs(folder):
        again = "run the same command with --resume"
        if any(map(_is_of_deployment, (folder / name for name in begun))):
            again = "start the app again with the same folder"
        advice = f"wait for them; if they were interrupted, {again}"
        return f"no finished runs in {folder}; not finished: {', '.join(begun)}; {advice}"
    return f"no finished runs in {folder}"


def _is_of_deployment(folder: Path) -> bool:
    try:
        return is_deployment(read_settings(folder))
    except (Damaged, OSError):
        return False


def find_runs(folder: Path) -> list[Run]:
    """Return the finished runs in an experiment's folder, in the order of the experiment file.

    Args:
        folder: The folder of the experiment, or of one run.

    Raises:
        ConfigError: There are no finished runs.
        Damaged: One of the runs is damaged.

    Example:
        >>> for run in find_runs(Path("runs/demo")):
        ...     print(run.label, run.summary.seed, run.summary.accuracy)
    """
    found, damaged = read_runs(folder)
    if damaged:
        raise damaged[0]
    return found


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
        if settings["run"].pop("digest", None):  # of a run from Python, whose data and steps may depend on its seed
            settings["run"].pop("steps", None)
        groups.setdefault(run.label, {}).setdefault(repr(settings), []).append(run)
    named: dict[str, list[Run]] = {}
    for label, by_settings in groups.items():
        full = [group[0].folder.name for group in by_settings.values()]
        seeds = [group[0].summary.seed if len(group) > 1 else "" for group in by_settings.values()]
        short = [name.removesuffix(f"-{seed}") for name, seed in zip(full, seeds, strict=True)]
        for folder, name, group in zip(full, short, by_settings.values(), strict=True):
            taken = short.count(name) > 1 or (name != folder and name in full)
            longer = f"{label} ({folder if taken else name})"
            named[_free_name(label if len(by_settings) == 1 else longer, named)] = group
    return named


def _free_name(name: str, taken: Mapping[str, object]) -> str:
    """Return a name that is not taken yet. A label may look like the longer name of another group."""
    candidates = chain([name], (f"{name} [{number}]" for number in count(2)))
    return next(candidate for candidate in candidates if candidate not in taken)
