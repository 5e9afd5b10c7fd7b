"""Reading a run's folder back."""

import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fadas.errors import ConfigError
from fadas.runs import reader as intact
from fadas.runs.folder import is_finished
from fadas.runs.same_run import identity
from fadas.runs.serialization import to_json

Line = dict[str, Any]


@dataclass(frozen=True)
class Run:
    """A finished run, read back."""

    folder: Path
    config: dict[str, Any]
    records: list[Line]
    summary: Line
    counts: list[list[int]] | None = None  # examples of each label, by client

    @property
    def label(self) -> str:
        return self.summary["algorithm"]

    @property
    def diverged(self) -> str | None:
        """Why it ended early, where it did."""
        return self.summary.get("diverged")

    @property
    def clock(self) -> str:
        """What its times are: a deployment's are real."""
        return "seconds" if self.config.get("task", {}).get("name") == "flower" else "virtual time"

    @property
    def evaluations(self) -> list[Line]:
        return [record for record in self.records if record["metrics"]]


def read_run(folder: Path) -> Run:
    """A finished run; a ConfigError if the folder does not hold one."""
    file, counts = folder, None
    try:
        config = tomllib.loads((file := folder / "config.toml").read_text(encoding="utf-8"))
        intact.check_settings(config)
        summary = json.loads((file := folder / "summary.json").read_text(encoding="utf-8"))
        intact.check_summary(summary)
        records = read_lines(file := folder / "metrics.jsonl")
        intact.check_records(records, summary)
        if (file := folder / "partition.json").exists():
            counts = json.loads(file.read_text(encoding="utf-8"))["counts"]
            intact.check_counts(counts)
    except OSError as error:
        raise ConfigError(f"{folder} is not a finished run: {error.strerror} ({error.filename})", "damaged") from None
    except intact.DAMAGE as error:
        raise ConfigError(f"{folder} is damaged: {file.name}: {type(error).__name__}: {error}", "damaged") from None
    return Run(folder, config, records, summary, counts)


def finished(wanted: Mapping[Path, Mapping[str, Any]], overwrite: bool, resume: bool) -> dict[Path, Line]:
    """The summaries of those runs that are there already; of folders and settings, as `check` takes them.

    That other processes are at some is an error only where there is nothing else to do.
    """
    there: dict[Path, Line] = {}
    busy: list[ConfigError] = []
    for folder, tables in wanted.items():
        try:
            if is_finished(folder, tables, overwrite, resume):
                there[folder] = read_run(folder).summary
        except ConfigError as error:
            if error.matter != "busy":
                raise
            busy.append(error)
    if busy and len(busy) + len(there) == len(wanted):
        raise busy[0]
    return there


def read_lines(path: Path) -> list[Line]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def find_runs(folder: Path) -> list[Run]:
    """The finished runs directly below an experiment's folder (or the folder itself, if it is one), in order."""
    files = ("config.toml", "metrics.jsonl", "summary.json")
    folders = [folder, *(path.parent for path in folder.glob("*/summary.json"))]
    found = [read_run(path) for path in folders if all((path / name).exists() for name in files)]
    if not found:
        below = sorted({str(path.parents[1]) for path in folder.glob("*/*/summary.json")})  # a sweep's
        raise ConfigError(f"no finished runs in {folder}{', but in ' + ', '.join(below) if below else ''}")
    return sorted(found, key=lambda run: (run.summary["place"], run.summary["seed"], run.folder.name))


def unfinished_runs(folder: Path) -> list[str]:
    """Names of the runs below a folder that began and did not finish."""
    begun = (path.parent for path in folder.glob("*/metrics.jsonl"))
    return sorted(path.name for path in begun if not (path / "summary.json").exists())


def group_runs(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """Runs that differ in their seed only, under the algorithm's name; where one name has several settings, apart."""
    groups: dict[str, dict[str, list[Run]]] = {}
    for run in runs:
        settings = identity(run.config)
        settings["run"].pop("seeds", None)
        groups.setdefault(run.label, {}).setdefault(to_json(settings), []).append(run)
    named: dict[str, list[Run]] = {}
    for label, by_settings in groups.items():
        full = [group[0].folder.name for group in by_settings.values()]
        seeds = [group[0].summary["seed"] if len(group) > 1 else "" for group in by_settings.values()]
        short = [name.removesuffix(f"-{seed}") for name, seed in zip(full, seeds, strict=True)]
        for whole, name, group in zip(full, short, by_settings.values(), strict=True):
            taken = short.count(name) > 1 or (name != whole and name in full)
            named[label if len(by_settings) == 1 else f"{label} ({whole if taken else name})"] = group
    return named
