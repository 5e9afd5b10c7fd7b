"""Results as CSV, LaTeX, Markdown or Parquet."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, get_args

from fadas.errors import ConfigError
from fadas.report.comparison import compare, join_folders
from fadas.report.frames import TABLES
from fadas.report.table import table_cells, table_header, table_notes
from fadas.report.text import show_line
from fadas.runs.reader import find_runs
from fadas.validate import one_of

Format = Literal["csv", "latex", "markdown", "parquet"]
TABLE_NAMES = ("comparison", *TABLES)
_LATEX = {"&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}"}
_LATEX |= {"~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "\\": r"\textbackslash{}", "±": r"$\pm$"}
_LATEX |= {"<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", '"': r"\char34{}"}


def export(
    folders: Sequence[Path],
    format: Format,
    table: str | None = None,
    metric: str | None = None,
    columns: Sequence[str] = (),
) -> bytes:
    """Return a table of finished runs in a format for other programs.

    Args:
        folders: The folders of experiments or runs.
        format: "csv", "latex", "markdown" or "parquet".
        table: "comparison": what `fadas report` prints, one row for each method. "runs", "steps", "jobs", "clients" or
            "labels": see `fadas.load_runs`. None: the comparison for LaTeX and Markdown, and where `metric` or
            `columns` are given, else the runs.
        metric: The metric of the comparison. None: the one that the runs are judged by.
        columns: Further columns of the comparison, as for `compare`.

    Raises:
        ConfigError: A folder holds no finished runs, or Parquet cannot be written here.

    Example:
        >>> Path("table.tex").write_bytes(export([Path("runs/demo")], "latex"))
    """
    one_of(get_args(Format), format=format)
    chosen = metric is not None or bool(columns)
    table = table or ("comparison" if chosen or format in ("latex", "markdown") else "runs")
    one_of(TABLE_NAMES, table=table)
    if chosen and table != "comparison":
        raise ConfigError(f"a metric and further columns are for the comparison; the {table} have all metrics")
    if table == "comparison" and format != "parquet":
        runs = join_folders({folder: find_runs(folder) for folder in dict.fromkeys(folders)})
        comparison = compare(runs, metric, columns)
        header = [title.replace("\n", " ") for title in table_header(comparison)]
        return _written(header, table_cells(comparison), format, table_notes(comparison)).encode()
    if table == "comparison":
        advice = "export the runs, steps, jobs or clients as Parquet"
        raise ConfigError(f"the comparison holds texts such as 43.4% ± 0.7; {advice}")
    frame = TABLES[table](folders)
    if frame.empty:
        raise ConfigError(f"these runs have no {table}; choose another table")
    if format == "parquet":
        return _parquet(frame)
    if format == "csv":
        return frame.to_csv(index=False, lineterminator="\n").encode()
    rows = [[_short_text(value) for value in row] for row in frame.itertuples(index=False)]
    return _written(list(map(str, frame.columns)), rows, format).encode()


def _written(header: Sequence[str], rows: Sequence[Sequence[str]], format: Format, notes: Sequence[str] = ()) -> str:
    rows = [[show_line(cell) for cell in row] for row in rows]
    if format == "csv":
        import csv

        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([header, *rows])
        return text.getvalue()
    if format == "markdown":
        escaped = [[cell.replace("|", "\\|") for cell in row] for row in (header, *rows)]
        rule = ["---", *["---:"] * (len(header) - 1)]
        return "".join(f"| {' | '.join(row)} |\n" for row in (escaped[0], rule, *escaped[1:]))
    lines = [" & ".join(map(_latex_text, row)) + r" \\" for row in (header, *rows)]
    columns = "l" + "r" * (len(header) - 1)
    return "\n".join(
        [
            r"% needs \usepackage{booktabs}",
            *(f"% {show_line(note)}" for note in notes),
            rf"\begin{{tabular}}{{{columns}}}",
            r"\toprule",
            lines[0],
            r"\midrule",
            *lines[1:],
            r"\bottomrule",
            r"\end{tabular}",
            "",
        ]
    )


def _latex_text(cell: str) -> str:
    """Return a cell as LaTeX that shows it as it is. Hyphens stay hyphens, and a bracket is no argument."""
    text = "".join(_LATEX.get(character, character) for character in cell).replace("--", "-{}-").replace("--", "-{}-")
    return f"{{}}{text}" if text[:1] in ("[", "*") else text


def _parquet(frame: Any) -> bytes:
    try:
        return frame.to_parquet(index=False)
    except ImportError:
        raise ConfigError("Parquet needs the extra: pip install '.[parquet]' in a checkout") from None


def _short_text(value: Any) -> str:
    """Return a value for a reader, with six digits: CSV and Parquet have all of them."""
    if value is None or value != value:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else str(value)
