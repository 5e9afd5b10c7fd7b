"""What `fadas run` does with each run, in this process or in several."""

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from fadas.errors import Busy

_PAUSE = 0.2  # seconds between two messages of a process about its progress


class Item(NamedTuple):
    """A run of the command.

    Attributes:
        tables: The experiment.
        label: The algorithm.
        seed: The seed.
    """

    tables: Any
    label: str
    seed: int

    @property
    def id(self) -> str:
        """The name of the run's folder."""
        return f"{self.label}-{self.seed}"


class Ended(NamedTuple):
    """A run that has ended.

    Attributes:
        summary: Its summary.
        said: What to say of it.
        skipped: Had it finished before?
    """

    summary: Any
    said: list[str]
    skipped: bool = False


class Bars:
    """The progress bars: one for each run, and with several runs one for all of them.

    Args:
        display: Where they are shown.
        plans: The plans of the runs that have not finished, by name.
        timeless: The names of runs whose virtual time means nothing.
    """

    def __init__(self, display: Any, plans: Mapping[str, Any], timeless: Collection[str] = ()) -> None:
        self.display, self._timeless = display, timeless
        self._sizes = {id: int(plan.statistics()["updates"]) for id, plan in plans.items()}
        self._done = dict.fromkeys(self._sizes, 0)
        self._finished = 0
        self._all = display.add("all runs", sum(self._sizes.values())) if len(plans) > 1 else None
        self._bars: dict[str, Any] = {}

    def begin(self, id: str) -> None:
        """Show a bar for a run that begins."""
        self._bars[id] = self.display.add(id, self._sizes[id])

    def update(self, id: str, updates: int, note: str | None) -> None:
        """Show how far a run is."""
        if id not in self._bars:
            self.begin(id)
        self._bars[id].update(updates, note)
        self._count(id, updates)

    def end(self, id: str, ended: Ended) -> None:
        """Show that a run has ended."""
        for text in ended.said:
            self.display.say(text)
        if id not in self._sizes:
            return
        if ended.summary.diverged is None and not ended.skipped:
            if id not in self._bars:
                self.begin(id)
            self._bars[id].finish(_describe(ended.summary, id in self._timeless), ended.summary.updates)
        self._finished += 1
        self._count(id, self._sizes[id])

    def _count(self, id: str, updates: int) -> None:
        self._done[id] = updates
        if self._all:
            self._all.update(sum(self._done.values()), f"{self._finished} of {len(self._sizes)} runs finished")


class Work:
    """Does the runs in this process.

    Args:
        root: The folder of all runs.
        mode: What to do with runs that are there.
        finished: The summaries of finished runs, by folder.
        configs: The runs' settings, by name.
        tasks: The task of each seed.
        plans: The plans of the runs that have not finished, by name.
        bars: Where progress is shown.
    """

    def __init__(
        self, root: Path, mode: Any, finished: Any, configs: Mapping[str, Any], tasks: Any, plans: Any, bars: Bars
    ) -> None:
        self._root, self._mode, self._finished, self._configs = root, mode, finished, configs
        self._tasks, self._plans, self._bars = tasks, plans, bars
        self._was_busy: set[str] = set()

    def __call__(self, item: Item) -> Ended:
        """Run an item, unless it has finished."""
        folder = self._root / item.id
        if folder in self._finished:
            return Ended(self._finished[folder], [_describe_skipped(item.id, folder)], skipped=True)
        # Another process finished it meanwhile: do not overwrite it.
        mode = "resume" if self._mode == "overwrite" and item.id in self._was_busy else self._mode
        try:
            return self._run(self._configs[item.id], folder, mode)
        except Busy:
            self._was_busy.add(item.id)
            raise

    def _run(self, config: Any, folder: Path, mode: Any) -> Ended:
        def begin(metric: Any) -> Any:
            self._bars.begin(config.id)
            return lambda record: self._bars.update(config.id, record.updates, _measured(metric, record.metrics))

        return run_one(config, folder, mode, self._tasks[config.seed], self._plans[config.id], begin, self._say)

    def _say(self, text: str) -> None:
        self._bars.display.say(text)


@dataclass(frozen=True)
class ParallelWork:
    """Does the runs in processes, each with a task of its own.

    Attributes:
        root: The folder of all runs.
        mode: What to do with runs that are there.
        begun: When the command began: a run that has finished since is never overwritten.
    """

    root: Path
    mode: Any
    begun: float

    def __call__(self, item: Item) -> Ended:
        """Run an item, unless it has finished."""
        from fadas.experiments.prepare import make_plan, make_task
        from fadas.experiments.resolve import resolve
        from fadas.runs.folder import SUMMARY

        config, folder, said = resolve(item.tables, item.label, item.seed), self.root / item.id, list[str]()
        summary = folder / SUMMARY
        again = self.mode == "overwrite" and summary.exists() and summary.stat().st_mtime > self.begun
        task = make_task(config)
        mode = "resume" if again else self.mode
        ended = run_one(config, folder, mode, task, make_plan(config, task), _tell_parent, said.append)
        return ended._replace(said=[*said, *ended.said])


def _tell_parent(metric: Any) -> Callable[[Any], None]:
    """Return what tells the parent process of records: their updates, and the last value of the metric."""
    from fadas.experiments.parallel_runs import report_progress

    last, note = time.monotonic(), None

    def tell(record: Any) -> None:
        nonlocal last, note
        note = _measured(metric, record.metrics) or note
        if time.monotonic() - last > _PAUSE:
            last = time.monotonic()
            report_progress((record.updates, note))

    return tell


def run_one(config: Any, folder: Path, mode: Any, task: Any, plan: Any, begin: Any, say: Any) -> Ended:
    """Run one configuration, unless it has finished.

    Args:
        config: The run's settings.
        folder: Where it is kept.
        mode: What to do with a run that is there.
        task: Its task.
        plan: Its plan.
        begin: Called with the metric when the run begins. Returns what receives the records.
        say: Receives messages.
    """
    from fadas.experiments.prepare import make_simulation
    from fadas.experiments.run import execute
    from fadas.runs.folder import Finished, claim

    claimed = claim(folder, config.tables, mode)
    if isinstance(claimed, Finished):
        return Ended(claimed.summary, [_describe_skipped(config.id, folder)], skipped=True)
    with claimed:
        simulation = make_simulation(config, task, plan)
        if each := simulation.kept_bytes:
            sizes = f"{_bytes(each)} between its jobs, all clients together {_bytes(each * config.clients)}"
            say(f"{config.id}: a client keeps {sizes}")
        return Ended(execute(config, simulation, claimed, begin(simulation.metric), say), [])


def _bytes(count: int) -> str:
    unit, name = next((pair for pair in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")) if count >= pair[0]), (1, "bytes"))
    return f"{count / unit:,.3g} {name}"


def _measured(metric: Any, metrics: dict[str, float] | None) -> str | None:
    value = metric.value(metrics)
    return None if value is None else f"{metric.name} {metric.text(value)}"


def _describe_skipped(name: str, folder: Path) -> str:
    """Return what to say of a run that has finished."""
    advice = "data files are not compared; --overwrite runs it again"
    return f"{name}: skipped, it has finished in {folder} ({advice})"


def _describe(summary: Any, timeless: bool) -> str:
    """Return a summary on one line."""
    parts = [f"{summary.step:,} steps", f"{summary.updates:,} updates"]
    if not timeless:
        parts.append(f"virtual time {summary.time:.1f}")
    if measured := _measured(summary.judged_by, summary.metrics):
        parts.append(measured)
    if refused := sum(summary.refused.values()):
        parts.append(f"{refused:,} updates refused")
    if spent := summary.privacy:
        parts.append(f"epsilon {spent['epsilon']:.2f} at delta {spent['delta']:g}")
    return ", ".join([*parts, f"{summary.wall:.1f} s"])
