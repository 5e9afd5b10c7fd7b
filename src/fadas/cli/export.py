"""The command that writes results for other programs."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from fadas.cli.options import Columns, Metric, split_names, with_examples


def export(
    folders: Annotated[list[Path], typer.Argument(metavar="DIR...", help="Folders of experiments or runs.")],
    format: Annotated[str, typer.Option(metavar="csv|latex|markdown|parquet", help="The format.")] = "csv",
    table: Annotated[
        str | None,
        typer.Option(
            metavar="comparison|runs|steps|jobs|clients|labels",
            help="What to write: the table of `fadas report`, or one row for each run, server step, job, "
            "client, or label of a client. "
            "Default: comparison for LaTeX and Markdown, and with --metric or --columns, else runs.",
        ),
    ] = None,
    metric: Metric = None,
    columns: Columns = None,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Default: standard output.")] = None,
) -> None:
    """Write finished runs as CSV, LaTeX, Markdown or Parquet.

    LaTeX tables need the package booktabs. Parquet needs the extra `parquet`.
    """
    from fadas.errors import ConfigError
    from fadas.report.export import export as export_table
    from fadas.runs.serialization import atomic_file

    try:
        content = export_table(folders, format, table, metric, split_names(columns))  # pyright: ignore[reportArgumentType]  # checked there
    except ValueError as error:
        raise error if isinstance(error, ConfigError) else ConfigError(f"--{error}") from None
    if out is None:
        sys.stdout.flush()
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()
        return
    with atomic_file(out) as file:
        file.write(content)


def add_to(app: typer.Typer) -> None:
    """Add this command to the app."""
    examples = with_examples(
        "fadas export runs/demo",
        "fadas export runs/demo --format latex --out table.tex",
        "fadas export runs/demo --table clients",
    )
    app.command(epilog=examples)(export)
