"""The paper's cells: run what is missing and keep of each what the report needs, as a small JSON."""

import json
import os
import platform
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from fadas import runs
from fadas.build import ConfigError, Interrupted
from fadas.config import RunConfig, resolve
from fadas.experiment import OnRecord, execute, make_plan, make_simulation, make_task
from fadas.report.artefacts import Artefact, Cell, Result
from fadas.tables import load
from fadas.task import Task

Say = Callable[[str], None]
Watch = Callable[[str, int], OnRecord]  # (what runs, its updates) -> whom to tell of every step


def missing(
    artefact: Artefact, results: Path, only: Sequence[str] | None, seeds: int | None, rounds: int | None
) -> list[Cell]:
    """The cells of an artefact that have no result yet, each once."""
    methods = {row.method for row in artefact.rows}
    for method in only or ():
        if method not in methods:
            raise ConfigError(f"{artefact.name} has no method {method!r}; it has {', '.join(sorted(methods))}")
    cells = dict.fromkeys(artefact.all_cells(seeds, rounds))
    return [cell for cell in cells if (not only or cell.method in only) and not cell.path(results).exists()]


def run(
    cells: Sequence[Cell],
    experiments: Path,
    results: Path,
    work: Path,
    overrides: Sequence[str],
    watch: Watch,
    say: Say,
) -> Iterator[tuple[Cell, Result]]:
    """Train the cells one after the other, going on where an earlier attempt was interrupted; write their results.

    `overrides` are for how to compute (executor, device): what is computed is the cell's own business.
    """
    configs = {cell: _config(cell, experiments, overrides) for cell in cells}  # mistakes show before anything is run
    tasks: dict[str, Task] = {}
    for cell, config in configs.items():
        folder = work / cell.experiment / cell.name
        if not runs.check(folder, config.tables, resume=True):
            key = f"{cell.seed} {config.tables['task']}"
            if key not in tasks:  # all methods of an experiment and seed share the data
                tasks = {key: make_task(config)}
            task = tasks[key]
            timeline = make_plan(config, task)
            on_record = watch(f"{cell.experiment} {cell.name}", int(timeline.statistics()["updates"]))
            try:
                execute(config, make_simulation(config, task, timeline), folder, on_record, resume=True, say=say)
            except Interrupted:
                raise Interrupted(f"interrupted in {cell.name}; the same command goes on from there") from None
        result = _result(cell, runs.read(folder), config.device)
        path = cell.path(results)
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".tmp")
        partial.write_text(_json(asdict(result)), encoding="utf-8")
        partial.replace(path)  # a result is there whole or not at all
        yield cell, result


def _config(cell: Cell, experiments: Path, overrides: Sequence[str]) -> RunConfig:
    path = experiments / f"{cell.experiment}.toml"
    buffer = load(path)["schedule"]["buffer"]
    changes = [
        f"run.updates={int(change.partition('=')[2]) * buffer}" if change.startswith("rounds=") else change
        for change in cell.changes
    ]
    return resolve(load(path, [*changes, *overrides]), cell.method, cell.seed)


def _result(cell: Cell, run: runs.Run, device: str) -> Result:
    summary = run.summary
    return Result(
        experiment=cell.experiment,
        method=cell.method,
        seed=cell.seed,
        changes=list(cell.changes),
        accuracy=summary.get("accuracy"),
        accuracy_std=summary.get("accuracy_std"),
        time_to_target=summary.get("time_to_target"),
        target=summary.get("target"),
        delays={key: summary[key] for key in ("tau_max", "tau_avg", "tau_med")},
        curve=[
            [line["step"], line["updates"], round(line["time"], 3), round(line["metrics"]["accuracy"], 5)]
            for line in run.evaluations
        ],
        config=run.config,
        device=torch.cuda.get_device_name(device) if device.startswith("cuda") else f"{platform.machine()} CPU",
        versions=summary["versions"],
        wall=summary["wall"],
        commit=_commit(),
    )


def _commit() -> str:
    """The commit this code is of: $FADAS_COMMIT, for copies of the tree, or what git says."""
    if told := os.environ.get("FADAS_COMMIT"):
        return told
    ask = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    try:
        return subprocess.run(ask, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _json(value: dict[str, Any]) -> str:
    """One key a line, so that a person can read it and a diff says what changed."""
    lines = (f"{json.dumps(key)}: {runs.to_json(item)}" for key, item in value.items())
    return "{\n" + ",\n".join(lines) + "\n}\n"
