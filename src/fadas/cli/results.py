"""Commands that read run folders: report, watch."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from fadas.cli import signals
from fadas.cli.options import Columns, Metric, flag, split_names, with_advice, with_examples
from fadas.errors import Damaged, Interrupted


def report(
    folders: Annotated[
        list[Path], typer.Argument(metavar="DIR...", help="Folders of experiments, deployments or runs.")
    ],
    metric: Metric = None,
    columns: Columns = None,
    figures: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Also write each figure as PDF, PNG and SVG.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Where to write the report; default: DIR/report.html, of several: report.html."
        ),
    ] = None,
) -> None:
    """Compare the finished runs in folders: print the table and write report.html.

    With several folders, a label that more than one of them has gets the name of its folder.
    """
    show_comparison(*folders, figures=figures, metric=metric, columns=split_names(columns), out=out)


def show_comparison(
    *folders: Path,
    figures: Path | None = None,
    metric: str | None = None,
    columns: Sequence[str] = (),
    out: Path | None = None,
) -> None:
    """Print the table of the runs in some folders, and write the report.

    Args:
        folders: Folders of experiments, or of runs.
        figures: Also write each figure to this folder.
        metric: The metric to compare by. None: the one that the runs are judged by.
        columns: Further columns of the table.
        out: The file of the report. None: report.html in the folder, or in the current one if there are several.

    Raises:
        Damaged: Runs are damaged. The others have been shown.
    """
    from fadas.cli.terminal import print_line
    from fadas.report.comparison import join_folders
    from fadas.runs.reader import read_runs, unfinished_runs

    found = {folder: read_runs(folder) for folder in dict.fromkeys(folders)}
    if left_out := [name for folder in found for name in unfinished_runs(folder)]:
        print_line(f"not finished, not shown: {', '.join(left_out)}")
    runs = {folder: sound for folder, (sound, _) in found.items()}
    page = out or (folders[0] / "report.html" if len(found) == 1 else Path("report.html"))
    if any(runs.values()):
        _show_runs(join_folders(runs), page, figures, metric, columns)
    if damaged := [str(error) for _, errors in found.values() for error in errors]:
        raise Damaged("; ".join(damaged))


def _show_runs(
    runs: Sequence[Any], page: Path, figures: Path | None, metric: str | None, columns: Sequence[str]
) -> None:
    from fadas.cli.terminal import print_line, print_table
    from fadas.report.comparison import compare
    from fadas.report.figures import save_figures
    from fadas.report.html import write_report
    from fadas.report.table import table_cells, table_header, table_notes

    comparison = compare(runs, metric, columns)
    title = ", ".join(dict.fromkeys(run.summary.experiment for run in runs))
    print_table(table_header(comparison), table_cells(comparison), title, gap=2)
    for note in table_notes(comparison):
        print_line(note)
    print_line("")
    signals.require_cleanup()
    write_report(runs, page, metric, columns)
    print_line(f"report: {page}")
    if figures:
        save_figures(runs, figures, metric)


@with_advice({Interrupted: "the runs continue"})
def watch(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="An experiment's or a deployment's folder.")],
    once: Annotated[bool, flag("--once", help="Show the current state, and exit.")] = False,
) -> None:
    """Watch runs while they train, simulated or deployed: progress, metric, delays, lost work, clients."""
    from fadas.cli.terminal import watch_runs

    signals.require_cleanup()  # the terminal's cursor is hidden
    watch_runs(folder, once)


def add_to(app: typer.Typer) -> None:
    """Add these commands to the app."""
    app.command(epilog=with_examples("fadas watch runs/demo", "fadas watch runs/demo --once"))(watch)
    app.command(
        epilog=with_examples(
            "fadas report runs/demo --figures figures", "fadas report runs/one runs/two --columns loss"
        )
    )(report)
