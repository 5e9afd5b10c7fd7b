"""A run's folder: config.toml, metrics.jsonl (one line per server step), model.safetensors, at the end summary.json.

summary.json is written last: a folder without it holds a run that did not finish. Reading needs no torch.
"""

import json
import math
import os
import shutil
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fadas.build import ConfigError
from fadas.ledger import tau_statistics
from fadas.toml import dumps

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
    def evaluations(self) -> list[Line]:
        return [record for record in self.records if record["metrics"]]


def check(folder: Path, tables: Mapping[str, Any], overwrite: bool = False) -> bool:
    """Is this very run finished already? A folder that must not be written to is an error."""
    if not folder.exists():
        return False
    try:
        held = tomllib.loads((folder / "config.toml").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise ConfigError(f"{folder} exists and is not a run; use --out DIR") from None
    if overwrite:
        return False
    if _results_of(held) != _results_of(tables):
        raise ConfigError(f"{folder} holds a run with other settings; use --out DIR, or --overwrite")
    if not (folder / "summary.json").exists():
        raise ConfigError(f"{folder} holds a run that did not finish; --overwrite starts it again")
    return True


def _results_of(tables: Mapping[str, Any]) -> dict[str, Any]:
    """What the results depend on: not on the executor, nor on who else is told of them."""
    run = {key: value for key, value in tables.get("run", {}).items() if key != "tensorboard"}
    return {**{key: value for key, value in tables.items() if key != "executor"}, "run": run}


class Writer:
    """Writes one run's folder, in place of an older one that `check` let pass. Lines are flushed as they come."""

    def __init__(self, folder: Path, tables: Mapping[str, Any]) -> None:
        self.folder = folder
        if (folder / "config.toml").exists():
            shutil.rmtree(folder)
        folder.mkdir(parents=True)
        (folder / "config.toml").write_text(dumps(tables), encoding="utf-8")
        self._metrics = (folder / "metrics.jsonl").open("w", encoding="utf-8")

    def append(self, line: Line) -> None:
        self._metrics.write(to_json(line) + "\n")
        self._metrics.flush()

    def write_json(self, name: str, value: Line) -> None:
        draft = self.folder / f"{name}.tmp"
        draft.write_text(to_json(value) + "\n", encoding="utf-8")
        os.replace(draft, self.folder / name)

    def finish(self, summary: Line) -> None:
        self.close()
        self.write_json("summary.json", summary)

    def close(self) -> None:
        self._metrics.close()


def read(folder: Path) -> Run:
    """A finished run; a ConfigError if the folder does not hold one."""
    try:
        config = tomllib.loads((folder / "config.toml").read_text(encoding="utf-8"))
        lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
        records = [json.loads(line) for line in lines]
        partition = folder / "partition.json"
        counts = json.loads(partition.read_text(encoding="utf-8"))["counts"] if partition.exists() else None
    except OSError as error:
        raise ConfigError(f"{folder} is not a finished run: {error.strerror} ({error.filename})") from None
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{folder} is damaged: {error}") from None
    if not (isinstance(summary, dict) and records and all(isinstance(r, dict) and "metrics" in r for r in records)):
        raise ConfigError(f"{folder} is damaged: summary.json or metrics.jsonl is not what a run writes")
    return Run(folder, config, records, summary, counts)


def find(folder: Path) -> list[Run]:
    """The finished runs directly below an experiment's folder (or the folder itself, if it is one), in run order."""
    if (folder / "summary.json").exists():
        return [read(folder)]
    found = sorted(folder.glob("*/summary.json"), key=lambda path: path.stat().st_mtime_ns)
    if not found:
        raise ConfigError(f"no finished runs in {folder}")
    return [read(path.parent) for path in found]


def summarise(records: Iterable[Line], target: float | None = None) -> Line:
    """What a run amounts to, from its records alone."""
    lines = list(records)
    evaluated = [line for line in lines if line["metrics"]]
    last = lines[-1]
    summary: Line = {
        **{key: last[key] for key in ("step", "updates", "time", "wall", "dropped", "expired")},
        **tau_statistics(max(job["tau"] for job in line["jobs"]) for line in lines),
        "metrics": last["metrics"],
    }
    accuracies = [line["metrics"]["accuracy"] for line in evaluated if "accuracy" in line["metrics"]][-5:]
    if accuracies:  # the paper's convention: mean and standard deviation over the last five
        mean = sum(accuracies) / len(accuracies)
        spread = math.sqrt(sum((a - mean) ** 2 for a in accuracies) / len(accuracies))
        summary |= {"accuracy": mean, "accuracy_std": spread}
    if target is not None:
        reached = (line["time"] for line in evaluated if line["metrics"].get("accuracy", 0.0) >= target)
        summary |= {"target": target, "time_to_target": next(reached, None)}
    return summary


def to_json(value: Any) -> str:
    """Strict JSON: a number that is not finite (a diverged loss) becomes null."""
    return json.dumps(_finite(value), allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list | tuple) else value
