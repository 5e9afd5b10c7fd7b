"""Run the paper's missing cells and save what the report needs."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fadas.core.records import TAUS
from fadas.errors import ConfigError, Stale
from fadas.experiments.experiment_file import read_experiment, select_algorithms
from fadas.experiments.prepare import make_plan, make_simulation, shared_task
from fadas.experiments.queue import RunQueue, find_finished_runs
from fadas.experiments.resolve import resolve
from fadas.experiments.run import OnRecord, Say, execute
from fadas.experiments.settings import RunConfig
from fadas.paper.artefacts import Artefact, Cell
from fadas.paper.results import Result, find_result, write_result, written_changes
from fadas.runs.folder import Finished, claim
from fadas.runs.reader import Run, read_run
from fadas.runs.same_run import same_run
from fadas.tasks.task import Task

Watch = Callable[[str, int], OnRecord]  # (what runs, its updates) -> receives the record of each step


@dataclass(frozen=True)
class Places:
    """The folders of a reproduction.

    Attributes:
        experiments: The experiment files.
        results: What is kept of finished cells.
        work: The runs.
    """

    experiments: Path
    results: Path
    work: Path


@dataclass(frozen=True)
class HowToRun:
    """Executor settings for running cells.

    Attributes:
        settings: Options of the executor, by dotted key.
        overrides: More of them, as `--set` takes them.
        executor: Use this executor instead of the experiment file's.
    """

    settings: Mapping[str, Any]
    overrides: Sequence[str] = ()
    executor: str | None = None


AS_IN_FILE = HowToRun({})


def select_cells(
    artefacts: Sequence[Artefact], only: Sequence[str] | None, seeds: int | None, rounds: int | None
) -> list[Cell]:
    """Return the cells of some artefacts, each once.

    Args:
        artefacts: Tables and figures.
        only: Only these methods.
        seeds: Seeds 1 to this number. None: those of the artefact.
        rounds: Shorten the runs to this many times M client updates.
    """
    methods = {row.method for artefact in artefacts for row in artefact.rows}
    for method in only or ():
        if method not in methods:
            names = ", ".join(artefact.name for artefact in artefacts)
            raise ConfigError(f"no method {method!r} in {names}; there are {', '.join(sorted(methods))}")
    cells = {cell.path(Path()): cell for artefact in artefacts for cell in artefact.all_cells(seeds, rounds)}
    return [cell for cell in cells.values() if not only or cell.method in only]


def has_result(cell: Cell, places: Places) -> bool:
    """Return whether the cell has a result.

    Raises:
        Stale: The result has other settings than the experiment file has now. Executor and precision are ignored.
    """
    result = find_result(cell, places.results)
    if result is None:
        return False
    now = make_config(cell, places.experiments).tables
    computed = {key: result.config[key] for key in ("executor", "precision", "format") if key in result.config}
    settings = {key: value for key, value in now.items() if key not in ("executor", "precision")}
    if not same_run(result.config, {**settings, **computed}):
        path = cell.path(places.results)
        raise Stale(f"{path} has other settings than {cell.experiment}.toml gives now")
    return True


def make_config(cell: Cell, experiments: Path, how: HowToRun = AS_IN_FILE) -> RunConfig:
    """Return a cell's settings."""
    tables = make_tables(cell, experiments, how)
    (label,) = select_algorithms(tables, [cell.method])
    return resolve(tables, label, cell.seed)


def make_tables(cell: Cell, experiments: Path, how: HowToRun = AS_IN_FILE) -> dict[str, Any]:
    """Return a cell's experiment."""
    path = experiments / f"{cell.experiment}.toml"
    changes = dict(cell.changes)
    if cell.rounds is not None:
        buffer = read_experiment(path, changes=changes).get("schedule", {}).get("buffer", 1)
        changes["run.updates"] = cell.rounds * buffer
    changes |= how.settings
    return read_experiment(path, how.overrides, executor=how.executor, changes=changes)


class CellRunner:
    """Trains cells one after the other, and writes their results. Interrupted cells continue.

    Args:
        cells: The cells.
        places: Where things are.
        how: How to compute.
        watch: Makes a receiver of each cell's records.
        say: Receives messages.

    Raises:
        ConfigError: A cell's settings or folder are wrong. Raised before anything runs.

    Attributes:
        skipped: Cells that another process was still running at the end.
    """

    def __init__(self, cells: Sequence[Cell], places: Places, how: HowToRun, watch: Watch, say: Say) -> None:
        self._places, self._watch, self._say = places, watch, say
        self._configs = {cell.path(places.results): make_config(cell, places.experiments, how) for cell in cells}
        wanted = {self._folder(cell): self._config(cell).tables for cell in cells}
        find_finished_runs(wanted, "resume")
        self._tasks: dict[str, Task] = {}
        self._queue = RunQueue(cells, lambda cell: f"{cell.experiment} {cell.name}", say)

    @property
    def skipped(self) -> list[Cell]:
        """Cells that another process was still running at the end."""
        return self._queue.skipped

    def run(self) -> Iterator[tuple[Cell, Result]]:
        """Yield each cell with its result."""
        yield from self._queue.run(self._run_cell)

    def _run_cell(self, cell: Cell) -> Result:
        config, folder = self._config(cell), self._folder(cell)
        claimed = claim(folder, config.tables, "resume")  # first: preparing a run may take minutes
        if not isinstance(claimed, Finished):
            with claimed:
                task = shared_task(config, self._tasks)
                timeline = make_plan(config, task)
                on_record = self._watch(f"{cell.experiment} {cell.name}", int(timeline.statistics()["updates"]))
                execute(config, make_simulation(config, task, timeline), claimed, on_record, self._say)
        result = _make_result(cell, read_run(folder))
        write_result(result, self._places.results)
        return result

    def _config(self, cell: Cell) -> RunConfig:
        return self._configs[cell.path(self._places.results)]

    def _folder(self, cell: Cell) -> Path:
        return self._places.work / cell.experiment / cell.name


def _make_result(cell: Cell, run: Run) -> Result:
    summary = run.summary
    return Result(
        experiment=cell.experiment,
        method=cell.method,
        seed=cell.seed,
        changes=written_changes(cell),
        accuracy=summary.accuracy,
        accuracy_std=summary.accuracy_std,
        time_to_target=summary.time_to_target,
        target=summary.target,
        delays={key: getattr(summary, key) for key in TAUS},
        curve=[
            (record.step, record.updates, round(record.time, 3), round(metrics["accuracy"], 5))
            for record, metrics in run.evaluations
            if record.step
        ],
        config=run.config,
        device=summary.device or "unknown",
        versions=summary.versions or {},
        wall=summary.wall,
        commit=summary.commit or "unknown",
        diverged=run.diverged,
    )
