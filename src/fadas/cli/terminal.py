"""What the commands show: results on standard output, live progress on standard error."""

import sys
from types import TracebackType
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
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
from rich.table import Table
from rich.text import Text

from fadas.runs.serialization import to_json


class _Speed(ProgressColumn):
    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        number = f"{speed:,.0f}" if speed and speed >= 10 else f"{speed or 0:.2g}"
        return Text(f"{number} {task.fields['unit']}/s" if speed else "", style="dim")


class Display:
    """A bar for each piece of work on a terminal; elsewhere one line for each that is finished."""

    def __init__(self, width: int, unit: str) -> None:
        self._width, self._unit = width, unit
        console = Console(stderr=True)
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}"),
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
        id = self._progress.add_task(escape(name).ljust(self._width), total=total, note="", unit=self._unit)
        return Bar(self._progress, id, name)

    def say(self, text: str) -> None:
        """A line that stays, above the bars."""
        self._progress.console.print(text, highlight=False, markup=False, soft_wrap=True)


class Bar:
    def __init__(self, progress: Progress, id: TaskID, name: str) -> None:
        self._progress, self._id, self._name = progress, id, name

    def update(self, done: int, note: str | None = None, total: int | None = None) -> None:
        self._progress.update(self._id, completed=done, total=total)
        if note is not None:
            self._progress.update(self._id, note=escape(note))

    def finish(self, text: str, done: int) -> None:
        self._progress.update(self._id, total=done, completed=done)
        if self._progress.disable:
            self._progress.console.print(f"{self._name}: {text}", highlight=False, markup=False, soft_wrap=True)


def print_table(head: list[str], rows: list[list[str]], title: str = "") -> None:
    table = Table(title=title or None, box=SIMPLE_HEAD, title_justify="left", pad_edge=False, padding=0)
    prose = False
    for number, name in enumerate(head):
        cells = [row[number] for row in rows]
        wide = max(map(len, cells), default=0) > 40  # prose may fold, names and numbers may not
        prose = prose or wide
        numeric = number > 0 and any(cell[:1].isdigit() for cell in cells)
        table.add_column(name, justify="right" if numeric else "left", no_wrap=not wide)
    for row in rows:
        table.add_row(*map(escape, row))
    console(prose).print(table)


def console(prose: bool = False) -> Console:
    """Standard output. On a narrow terminal rich would cut numbers off; better that their lines wrap."""
    return Console(width=None if prose else max(Console().width, 200))


def print_line(text: str) -> None:
    Console().print(text, highlight=False, markup=False, soft_wrap=True)


def print_json(value: Any) -> None:
    """One object on one line."""
    sys.stdout.write(to_json(value) + "\n")
    sys.stdout.flush()
