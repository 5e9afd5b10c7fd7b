"""Runs shared by several processes. A locked run is tried again at the end, then skipped or waited for."""

import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Generic, TypeVar

from fadas.errors import Busy, ConfigError
from fadas.experiments.parallel_runs import run_in_processes
from fadas.runs.folder import Mode, find_finished
from fadas.runs.summary import Summary

T = TypeVar("T")
R = TypeVar("R")
_PAUSE = 0.5  # seconds between two looks at items that another process is running


class RunQueue(Generic[T]):
    """Runs items; those locked by other processes come last.

    Args:
        items: What to run.
        name: Returns the name of an item, for messages.
        say: Receives messages.
        is_busy: Returns whether another process is running an item. Given, such items are waited for at the end. None:
            they are tried once more, and then skipped.

    Attributes:
        skipped: Items that another process was still running at the end.

    Example:
        >>> queue = RunQueue(configs, lambda config: config.id)
        >>> for config, summary in queue.run(execute):
        ...     print(config.id, summary.accuracy)
        >>> queue.raise_if_skipped()
    """

    def __init__(
        self,
        items: Sequence[T],
        name: Callable[[T], str],
        say: Callable[[str], None] = lambda text: None,
        is_busy: Callable[[T], bool] | None = None,
    ) -> None:
        self._items, self._name, self._say, self._is_busy = list(items), name, say, is_busy
        self.skipped: list[T] = []

    def run(
        self,
        attempt: Callable[[T], R],
        jobs: int = 1,
        on_progress: Callable[[T, Any], None] = lambda item, progress: None,
    ) -> Iterator[tuple[T, R]]:
        """Yield each item with its result, as results come.

        Args:
            attempt: Runs one item. It raises `Busy` if another process is running it.
            jobs: How many items to run at the same time, each in a process of its own if there are several.
            on_progress: Receives what attempts in other processes say with `report_progress`, with their items.

        Raises:
            Exception: The first exception of an attempt. What is running is then interrupted.
        """
        self.skipped = []
        yield from self._pass(attempt, self._items, jobs, on_progress)
        again, self.skipped = self.skipped, []
        if self._is_busy is None:
            for item in again:
                self._say(f"{self._name(item)}: another process was running it; trying again")
            yield from self._pass(attempt, again, jobs, on_progress)
            return
        while again:
            self._wait_for_one(again, self._is_busy)
            yield from self._pass(attempt, again, jobs, on_progress)
            again, self.skipped = self.skipped, []

    def _wait_for_one(self, items: Sequence[T], is_busy: Callable[[T], bool]) -> None:
        """Wait until no other process is running one of the items."""
        if all(map(is_busy, items)):
            self._say(f"waiting for another process, which is running {', '.join(map(self._name, items))}")
        while all(map(is_busy, items)):
            time.sleep(_PAUSE)

    def _pass(
        self, attempt: Callable[[T], R], items: Sequence[T], jobs: int, on_progress: Callable[[T, Any], None]
    ) -> Generator[tuple[T, R], None, None]:
        with closing(run_in_processes(attempt, items, jobs, on_progress)) as results:
            for item, result in results:
                if isinstance(result, Busy):
                    self.skipped.append(item)
                elif isinstance(result, ChildProcessError):
                    raise ConfigError(f"{self._name(item)}: {result}")
                elif isinstance(result, Exception):
                    raise result
                else:
                    yield item, result

    def raise_if_skipped(self) -> None:
        """Raise `Busy` with the names of the items that were skipped."""
        if self.skipped:
            names = ", ".join(map(self._name, self.skipped))
            number = f"{len(self.skipped)} of {len(self._items)} runs"
            raise Busy(f"{number} skipped, because another process is running them: {names}")


def find_finished_runs(
    wanted: Mapping[Path, Mapping[str, Any]], mode: Mode, waits: bool = False
) -> dict[Path, Summary]:
    """Return the summaries of the runs that have finished.

    Args:
        wanted: Settings of runs, by folder.
        mode: What to do with unfinished runs. See `fadas.runs.folder.claim`.
        waits: Are runs of other processes waited for?

    Raises:
        Busy: All remaining runs are running elsewhere, and nothing waits for them.
        ConfigError: A folder cannot be used.
    """
    finished: dict[Path, Summary] = {}
    busy: list[Busy] = []
    for folder, tables in wanted.items():
        try:
            if summary := find_finished(folder, tables, mode):
                finished[folder] = summary
        except Busy as error:
            busy.append(error)
    if busy and not waits and len(busy) + len(finished) == len(wanted):
        raise busy[0]
    return finished
