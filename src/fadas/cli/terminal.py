"""The output of the commands: results on standard output, live progress on standard error."""

import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from fadas.errors import ConfigError
from fadas.report.text import show_line
from fadas.runs.folder import CONFIG
from fadas.runs.follower import Follower
from fadas.runs.lock import is_held
from fadas.runs.serialization import to_json

_CLIENTS = 12  # the clients that are shown: those that reported last
_WIDEST = 300  # characters that say what is wrong with a run
_REASONS = 20  # the reasons for lost work that are shown
_QUIET = 20  # `watch` ends when it has found nothing running this many times in a row
_PATIENCE = 60.0  # seconds that `watch` waits for a folder: a deployment makes it some seconds after `flwr run`
_PATTERNS = ("metrics.jsonl", "*/metrics.jsonl", "*/*/metrics.jsonl")


class _Speed(ProgressColumn):
    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        number = f"{speed:,.0f}" if speed and speed >= 10 else f"{speed or 0:.2g}"
        return Text(f"{number} {task.fields['unit']}/s" if speed else "", style="dim")


class Display:
    """Progress bars on standard error. If it is not a terminal, one line per finished bar is printed instead.

    Args:
        width: The width of the names, in characters.
        unit: What the bars count, such as "updates".
    """

    def __init__(self, width: int, unit: str) -> None:
        self._width, self._unit = width, unit
        console = Console(stderr=True)
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}", markup=False),
            _Speed(),
            TimeRemainingColumn(),
            console=console,
            speed_estimate_period=3600,  # seconds: a step of a large network may take minutes
            disable=not console.is_terminal,
        )

    def __enter__(self) -> "Display":
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def add(self, name: str, total: int) -> "Bar":
        """Add a bar that is full at `total`."""
        id = self._progress.add_task(show_line(name).ljust(self._width), total=total, note="", unit=self._unit)
        return Bar(self._progress, id, name)

    def say(self, text: str) -> None:
        """Print a line above the bars. It stays when the bars are gone."""
        _print_line(self._progress.console, text)


class Bar:
    """A progress bar of a `Display`."""

    def __init__(self, progress: Progress, id: TaskID, name: str) -> None:
        self._progress, self._id, self._name = progress, id, name

    def update(self, done: int, note: str | None = None, total: int | None = None) -> None:
        """Show how much is done, with a short note. The note and the total stay as they were if they are None."""
        self._progress.update(self._id, completed=done, total=total)
        if note is not None:
            self._progress.update(self._id, note=show_line(note))

    def finish(self, text: str, done: int) -> None:
        """Fill the bar. If standard error is not a terminal, print the text instead."""
        self._progress.update(self._id, total=done, completed=done)
        if self._progress.disable:
            _print_line(self._progress.console, f"{self._name}: {text}")


def print_table(head: list[str], rows: list[list[str]], title: str = "", gap: int = 1) -> None:
    """Print a table on standard output.

    Args:
        head: The column headings.
        rows: The cells, row by row.
        title: The title above the table.
        gap: The number of spaces between two columns.
    """
    heading = _plain(title, "table.title") if title else None
    table = Table(title=heading, box=SIMPLE_HEAD, title_justify="left", pad_edge=False, padding=(0, gap - 1, 0, 0))
    prose = False
    for number, name in enumerate(head):
        cells = [show_line(row[number]) for row in rows]
        wide = max(map(len, cells), default=0) > 40  # long texts may wrap, names and numbers may not
        prose = prose or wide
        numeric = number > 0 and any(cell[:1].isdigit() for cell in cells)
        table.add_column(name, justify="right" if numeric else "left", no_wrap=not wide)
    for row in rows:
        table.add_row(*map(_plain, row))
    console(prose).print(table)


def console(prose: bool = False) -> Console:
    """Return a console for standard output.

    On a narrow terminal, rich would cut off numbers. Unless there is prose to wrap, the console is therefore at least
    200 characters wide, and the terminal wraps the lines.
    """
    return Console(width=None if prose else max(Console().width, 200))


def print_line(text: str) -> None:
    """Print a line on standard output."""
    _print_line(Console(), text)


def _print_line(target: Console, text: str) -> None:
    target.print(_plain(text), soft_wrap=True)


def _plain(text: str, style: str = "") -> Text:
    """Return text for rich, which would read markup and names of emoji in a string."""
    return Text(show_line(text), style)


def print_json(value: Any) -> None:
    """Print a value as JSON on one line of standard output."""
    sys.stdout.write(to_json(value) + "\n")
    sys.stdout.flush()


def draw_runs(followers: list[Follower]) -> RenderableType:
    """Return a table of runs, what is wrong with damaged ones, and a table of the clients of a run.

    That run is one that is not finished, else the last one.
    """
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=0, collapse_padding=True)
    metrics = dict.fromkeys(follower.metric.name for follower in followers if follower.metric)
    for name in ("run", "", "step", "updates", "/".join(metrics) or "metric", "tau", "lost", "left"):
        table.add_column(name, no_wrap=name not in ("run", "lost"), overflow="fold")
    for follower in followers:
        table.add_row(*_draw_run(follower))
    damages = [Text(show_line(follower.damage, _WIDEST)) for follower in followers if follower.damage]
    running = next((f for f in followers if not f.outcome), followers[-1])
    return Group(table, *damages, _draw_clients(running))


def _draw_run(follower: Follower) -> list[RenderableType]:
    last, outcome, left = follower.last, follower.outcome, follower.seconds_left
    if not (outcome or is_held(follower.folder)):
        outcome = "not running"
    if not last:
        state = outcome or "waiting for the first step"
        return [_plain(follower.name), ProgressBar(1.0, 0.0, 20), state, *[""] * 5]
    return [
        _plain(follower.name),
        ProgressBar(1.0, follower.progress, 20),
        f"{last.step:,}",
        f"{last.updates:,}" + (f" ({follower.speed:,.1f}/s)" if follower.speed and not outcome else ""),
        "" if follower.value is None or follower.metric is None else follower.metric.text(follower.value),
        f"{max(job.tau for job in last.jobs)}",
        _plain(_describe_lost(follower)),
        outcome or ("" if left is None else f"{int(left) // 60}:{int(left) % 60:02d}"),
    ]


def _describe_lost(follower: Follower) -> str:
    """Return how many jobs were lost, for the most frequent reasons."""
    lost = {reason: count for reason, count in follower.lost.items() if count}
    shown = dict(follower.lost.most_common(_REASONS)) if len(lost) > _REASONS else lost
    more = [f"{len(lost) - len(shown)} more reasons"] if len(lost) > len(shown) else []
    return ", ".join([*(f"{reason} {count}" for reason, count in shown.items()), *more]) or "none"


def _draw_clients(follower: Follower) -> Table:
    """Return a table of the clients that reported last. Records do not name clients without an accepted update."""
    head = ("client", "updates", "mean time of a job", "last tau", "last update at")
    title = _plain(f"clients of {follower.name} with an accepted update", "table.title")
    table = Table(*head, box=SIMPLE_HEAD, pad_edge=False, title=title)
    recent = sorted(follower.clients.items(), key=lambda item: -item[1].end)
    for client, activity in recent[:_CLIENTS]:
        mean = activity.seconds / activity.updates
        table.add_row(str(client), f"{activity.updates:,}", f"{mean:.1f}", str(activity.tau), f"{activity.end:.1f}")
    if len(recent) > _CLIENTS:
        table.caption = f"and {len(recent) - _CLIENTS} more"
    return table


def _run_name(path: Path, folder: Path) -> str:
    """Return a run's path relative to the folder that is watched."""
    return str(path.relative_to(folder)) if path != folder else path.name


def watch_runs(folder: Path, once: bool) -> None:
    """Show the runs in a folder until all are finished. A run may be the folder itself, or lie one or two levels below.

    Args:
        folder: The folder to watch.
        once: Print the tables once instead.

    Raises:
        ConfigError: The folder does not exist, also after a minute without `once`. Or `once` finds no run.
    """

    def require_folder() -> None:
        if folder.is_dir():
            return
        raise ConfigError(f"{folder} is not a folder; give the folder of an experiment, a run or a deployment")

    followers: dict[Path, Follower] = {}
    if once or folder.exists() or not folder.parent.is_dir():
        require_folder()

    def find_and_draw() -> RenderableType:
        paths = {path.parent for pattern in _PATTERNS for path in folder.glob(pattern)}
        for removed in followers.keys() - paths:
            del followers[removed]
        for path in sorted(path for path in paths if (path / CONFIG).exists()):
            followers.setdefault(path, Follower(path, _run_name(path, folder))).refresh()
        if not followers:
            return _plain(f"waiting for a run in {folder}")
        return draw_runs([followers[path] for path in sorted(followers)])

    first = find_and_draw()
    if once:
        if not followers:
            raise ConfigError(f"no run in {folder} or up to two levels below it")
        console().print(first)
        return
    with Live(first, auto_refresh=False) as live:
        patience = time.monotonic() + _PATIENCE
        quiet = 0  # times in a row that nothing was running; an experiment's next run may be about to begin
        while quiet < _QUIET:
            time.sleep(0.5)
            live.update(find_and_draw(), refresh=True)
            if time.monotonic() > patience:
                require_folder()
            all_ended = bool(followers) and all(follower.outcome for follower in followers.values())
            quiet = quiet + 1 if all_ended else 0
