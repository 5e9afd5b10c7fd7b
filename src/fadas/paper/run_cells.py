"""The paper's cells: run what is missing and keep of each what the report needs, as a small JSON."""

import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fadas.core.records import TAUS
from fadas.errors import ConfigError
from fadas.experiments.experiment_file import read_experiment, select_algorithms
from fadas.experiments.prepare import OnRecord, make_plan, make_simulation, shared_task
from fadas.experiments.resolve import resolve
from fadas.experiments.run import execute
from fadas.experiments.settings import RunConfig
from fadas.paper.artefacts import Artefact, Cell, Result
from fadas.paper.artefacts import find_result as load_result
from fadas.runs import lock
from fadas.runs.folder import claim
from fadas.runs.run_reader import Run, finished, read_run
from fadas.runs.same_run import same_run
from fadas.runs.serialization import to_json
from fadas.tasks.task import Task

Say = Callable[[str], None]
Watch = Callable[[str, int], OnRecord]  # (what runs, its updates) -> whom to tell of every step


@dataclass(frozen=True)
class Places:
    experiments: Path  # the files
    results: Path  # what is kept of finished cells
    work: Path  # the runs themselves


def select_cells(
    artefacts: Sequence[Artefact], only: Sequence[str] | None, seeds: int | None, rounds: int | None
) -> list[Cell]:
    """The cells of some artefacts, each once."""
    methods = {row.method for artefact in artefacts for row in artefact.rows}
    for method in only or ():
        if method not in methods:
            names = ", ".join(artefact.name for artefact in artefacts)
            raise ConfigError(f"no method {method!r} in {names}; there are {', '.join(sorted(methods))}")
    cells = dict.fromkeys(cell for artefact in artefacts for cell in artefact.all_cells(seeds, rounds))
    return [cell for cell in cells if not only or cell.method in only]


def has_result(cell: Cell, places: Places) -> bool:
    """Has the cell a result? One that other settings gave is an error: it would be shown as what it is not.

    But for how it was computed: that is the user's choice, and the page names the precision.
    """
    result = load_result(cell, places.results)
    if result:
        now = {**make_config(cell, places.experiments).tables, "executor": result.config.get("executor", {})}
        if not same_run(result.config, now):
            path = cell.path(places.results)
            raise ConfigError(f"{path} has other settings than {cell.experiment}.toml gives now", "stale")
    return result is not None


def make_config(cell: Cell, experiments: Path, overrides: Sequence[str] = (), executor: str | None = None) -> RunConfig:
    """A cell's settings."""
    tables = make_tables(cell, experiments, overrides, executor)
    (label,) = select_algorithms(tables, [cell.method])
    return resolve(tables, label, cell.seed)


def make_tables(
    cell: Cell, experiments: Path, overrides: Sequence[str] = (), executor: str | None = None
) -> dict[str, Any]:
    """A cell's experiment. `rounds=N` stands for N x M client updates, whatever the method makes of them."""
    path = experiments / f"{cell.experiment}.toml"
    plain = [change for change in cell.changes if not change.startswith("rounds=")]
    buffer = read_experiment(path, plain).get("schedule", {}).get("buffer", 1)
    rounds = [int(change.partition("=")[2]) for change in cell.changes if change.startswith("rounds=")]
    return read_experiment(
        path, [*plain, *(f"run.updates={n * buffer}" for n in rounds), *overrides], executor=executor
    )


def run_cells(
    cells: Sequence[Cell],
    places: Places,
    overrides: Sequence[str],
    executor: str | None,
    watch: Watch,
    say: Say,
) -> Iterator[tuple[Cell, Result]]:
    """Train the cells one after the other, going on where an earlier attempt was interrupted; write their results.

    What another process is at is tried once more at the end, and then left out.
    `overrides` and `executor` say how to compute: what is computed is the cell's own business.
    """
    # mistakes show before anything is run
    configs = {cell: make_config(cell, places.experiments, overrides, executor) for cell in cells}
    folders = {cell: places.work / cell.experiment / cell.name for cell in cells}
    finished({folders[cell]: config.tables for cell, config in configs.items()}, overwrite=False, resume=True)
    tasks: dict[str, Task] = {}
    queue, busy = list(cells), set[Cell]()
    for cell in queue:
        config, folder = configs[cell], folders[cell]
        path = cell.path(places.results)
        try:
            if not claim(folder, config.tables, resume=True):  # now: to set up a run may take minutes
                task = shared_task(config, tasks)
                timeline = make_plan(config, task)
                on_record = watch(f"{cell.experiment} {cell.name}", int(timeline.statistics()["updates"]))
                simulation = make_simulation(config, task, timeline)
                execute(config, simulation, folder, on_record, resume=True, say=say)
            result = _result(cell, read_run(folder))
            write_result(asdict(result), path)
        except ConfigError as error:
            if error.matter not in ("busy", "written"):
                raise
            if cell not in busy:
                say(f"{cell.experiment} {cell.name}: another process is at it")
                busy.add(cell)
                queue.append(cell)  # when all others are done, that process may be, too
            continue
        finally:
            lock.release(folder)
        yield cell, result


def _result(cell: Cell, run: Run) -> Result:
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
        delays={key: summary[key] for key in TAUS},
        curve=[
            [line["step"], line["updates"], round(line["time"], 3), round(line["metrics"]["accuracy"], 5)]
            for line in run.evaluations
        ],
        config=run.config,
        device=summary["device"],
        versions=summary["versions"],
        wall=summary["wall"],
        commit=summary.get("commit", "unknown"),  # of the code that trained it, which may be older than this
        diverged=run.diverged,
    )


def write_result(value: dict[str, Any], path: Path) -> None:
    """A JSON file, there whole or not at all. One key a line: a person can read it, and a diff says what changed."""
    lines = (f"{json.dumps(key)}: {to_json(item)}" for key, item in value.items())
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{os.getpid()}.tmp")  # another process may write it too
    try:
        partial.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)  # where the disk is full
