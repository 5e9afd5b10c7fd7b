"""Commands that read what runs left behind: report, watch."""

import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from fadas.cli.terminal import console
from fadas.errors import ConfigError
from fadas.runs.follower import Follower


def report(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder of an experiment, deployment or run.")],
    figures: Annotated[Path | None, typer.Option(metavar="DIR", help="Also write each figure as PNG and SVG.")] = None,
) -> None:
    """Compare the finished runs in a folder: print the table, write report.html."""
    found = show(folder)
    if figures:
        from fadas.report.figures import save

        save(found, figures)


def show(folder: Path) -> Any:
    """Print the table of the runs in a folder and write the report; the runs."""
    from fadas.cli.terminal import print_line, print_table
    from fadas.report.comparison import cells, compare, header
    from fadas.report.html import write
    from fadas.runs.run_reader import find, unfinished

    found = find(folder)
    if left_out := unfinished(folder):
        print_line(f"not finished, left out: {', '.join(left_out)}")
    comparison = compare(found)
    print_table(header(comparison), cells(comparison), found[0].summary["experiment"])
    write(found, folder / "report.html")
    print_line(f"report: {folder / 'report.html'}")
    return found


def watch(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="An experiment's or a deployment's folder.")],
    once: Annotated[bool, typer.Option("--once", help="Show how things stand, and end.")] = False,
) -> None:
    """Watch runs while they train, simulated or deployed: progress, accuracy, delays, lost work, clients."""
    pass

    follow(folder, once)


def add_to(app: typer.Typer) -> None:
    app.command(epilog="Example: `fadas watch runs/demo`")(watch)
    app.command(epilog="Example: `fadas report runs/demo --figures /tmp/figures`")(report)


_CLIENTS = 12  # that are shown: those heard of last

_QUIET = 20

_DEPTHS = ("metrics.jsonl", "*/metrics.jsonl", "*/*/metrics.jsonl")


def view(followers: list[Follower]) -> RenderableType:
    head = ("run", "", "step", "updates", "accuracy", "tau", "lost", "left")
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=0, collapse_padding=True)
    for name in head:
        table.add_column(name, no_wrap=name not in ("run", "lost"), overflow="fold")
    for follower in followers:
        table.add_row(*follower.row)
    running = next((f for f in followers if not f.outcome), followers[-1])
    return Group(table, _clients(running))


def _clients(follower: Follower) -> Table:
    """The clients of one run that were heard of last."""
    head = ("client", "updates", "mean time of a job", "last tau", "last heard of at")
    table = Table(*head, box=SIMPLE_HEAD, pad_edge=False, title=f"clients of {escape(follower.name)}")
    recent = sorted(follower.clients.items(), key=lambda item: -item[1].end)
    for client, heard in recent[:_CLIENTS]:
        mean = heard.seconds / heard.updates
        table.add_row(str(client), f"{heard.updates:,}", f"{mean:.1f}", str(heard.tau), f"{heard.end:.1f}")
    if len(recent) > _CLIENTS:
        table.caption = f"and {len(recent) - _CLIENTS} more"
    return table


def _name(path: Path, folder: Path) -> str:
    return str(path.relative_to(folder)) if path != folder else path.name


def watch(folder: Path, once: bool) -> None:
    """Show the runs in a folder, down to three levels, until all are finished."""
    if not folder.is_dir():
        raise ConfigError(f"{folder} is not a folder")
    followers: dict[Path, Follower] = {}

    def look() -> RenderableType:
        paths = {path.parent for pattern in _DEPTHS for path in folder.glob(pattern)}
        for gone in followers.keys() - paths:
            del followers[gone]
        for path in sorted(path for path in paths if (path / "config.toml").exists()):
            followers.setdefault(path, Follower(path, _name(path, folder))).read()
        return view([followers[path] for path in sorted(followers)]) if followers else f"waiting for a run in {folder}"

    first = look()
    if once:
        if not followers:
            raise ConfigError(f"no run in {folder}")
        console().print(first)
        return
    with Live(first, auto_refresh=False) as live:
        quiet = 0  # looks at which nothing was running: the next run of an experiment may be about to begin
        while quiet < _QUIET:
            time.sleep(0.5)
            live.update(look(), refresh=True)
            over = bool(followers) and all(follower.outcome for follower in followers.values())
            quiet = quiet + 1 if over else 0
