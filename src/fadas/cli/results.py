"""Commands that read run folders: report, watch."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from fadas.cli import signals
from fadas.cli.options import flag, with_advice, with_examples
from fadas.errors import Damaged, Interrupted


def report(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder of an experiment, a deployment or a run.")],
    figures: Annotated[Path | None, typer.Option(metavar="DIR", help="Also write each figure as PNG and SVG.")] = None,
) -> None:
    """Compare the finished runs in a folder: print the table and write report.html."""
    show_comparison(folder, figures)


def show_comparison(folder: Path, figures: Path | None = None) -> None:
    """Print the table of the runs in a folder, and write the report.

    Args:
        folder: The folder of an experiment, or of a run.
        figures: Also write each figure to this folder.

    Raises:
        Damaged: Runs are damaged. The others have been shown.
    """
    from fadas.cli.terminal import print_line
    from fadas.runs.reader import read_runs, unfinished_runs

    found, damaged = read_runs(folder)
    if left_out := unfinished_runs(folder):
        print_line(f"not finished, not shown: {', '.join(left_out)}")
    if found:
        _show_runs(found, folder / "report.html", figures)
    if damaged:
        raise Damaged("; ".join(map(str, damaged)))


def _show_runs(runs: Sequence[Any], page: Path, figures: Path | None) -> None:
    from fadas.cli.terminal import print_line, print_table
    from fadas.report.comparison import compare, table_cells, table_header
    from fadas.report.figures import save_figures
    from fadas.report.html import write_report

    comparison = compare(runs)
    print_table(table_header(comparison), table_cells(comparison), runs[0].summary.experiment)
    signals.require_cleanup()
    write_report(runs, page)
    print_line(f"report: {page}")
    if figures:
        save_figures(runs, figures)


@with_advice({Interrupted: "the runs continue"})
def watch(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="An experiment's or a deployment's folder.")],
    once: Annotated[bool, flag("--once", help="Show the current state, and exit.")] = False,
) -> None:
    """Watch runs while they train, simulated or deployed: progress, accuracy, delays, lost work, clients."""
    from fadas.cli.terminal import watch_runs

    signals.require_cleanup()  # the terminal's cursor is hidden
    watch_runs(folder, once)


def add_to(app: typer.Typer) -> None:
    """Add these commands to the app."""
    app.command(epilog=with_examples("fadas watch runs/demo", "fadas watch runs/demo --once"))(watch)
    app.command(epilog=with_examples("fadas report runs/demo", "fadas report runs/demo --figures /tmp/figures"))(report)
