"""report.html: one self-contained page with the table, the figures and the settings of every run."""

import re
from collections.abc import Sequence
from pathlib import Path

from fadas.report.clients import clients_table, participation_table
from fadas.report.comparison import Comparison, compare, table_cells, table_header
from fadas.report.figures import Drawn, figures
from fadas.report.text import html_text
from fadas.runs.reader import Run
from fadas.runs.serialization import to_toml, write_text

CSS = """
:root { color-scheme: light; }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; padding: 0 1rem; color: #1c2430; }
h1 { font-size: 1.6rem; margin-bottom: 0; }
h2 { font-size: 1.15rem; margin: 2.2rem 0 .4rem; }
p.lead, figcaption { color: #5b6675; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: .35rem .6rem; border-bottom: 1px solid #e3e7ec; }
th { font-weight: 600; vertical-align: bottom; }
th:first-child, td:first-child { text-align: left; }
td.best { font-weight: 700; background: #eef6ee; }
figure { margin: 1rem 0; }
figure svg { width: 100%; height: auto; }
pre { background: #f5f7f9; padding: .8rem; overflow: auto; }
"""


def write_report(runs: Sequence[Run], path: Path) -> None:
    """Write the report of some runs to an HTML file.

    Args:
        runs: The runs, from `fadas.runs.reader.find_runs`.
        path: The file.

    Example:
        >>> write_report(find_runs(Path("runs/demo")), Path("report.html"))
    """
    write_text(path, page(runs))  # replaces a link to another file, instead of the file


def page(runs: Sequence[Run]) -> str:
    """Return the report of some runs as HTML. Equal runs give equal text."""
    comparison = compare(runs)
    name = html_text(runs[0].summary.experiment)
    lead = f"Runs: {len(runs)}. Methods: {len(comparison.rows)}."
    if any(not run.diverged for run in runs):
        lead += f" Compared at {_format_time(runs, comparison.time)} and at {comparison.updates:,} client updates, the "
        lead += "largest values that all runs reach."
    if any(run.diverged for run in runs):
        lead += " Diverged runs are not compared."
    if any(row.seeds > 1 for row in comparison.rows):
        lead += " The number after ± is the population standard deviation over the seeds."
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>fadas: {name}</title><style>{CSS}</style></head>
<body><h1>{name}</h1><p class="lead">{lead}</p>
{_table(table_header(comparison), table_cells(comparison), _best_cells(comparison))}
{"".join(_diverged(run) for run in runs if run.diverged)}
{_clients(runs)}{"".join(map(_figure, figures(runs)))}
<h2>Settings</h2>
{"".join(_settings(run) for run in runs)}
</body></html>
"""


def _format_time(runs: Sequence[Run], time: float) -> str:
    return f"{time:.0f} seconds" if {run.clock for run in runs} == {"seconds"} else f"virtual time {time:.0f}"


def _best_cells(comparison: Comparison) -> set[tuple[int, int]]:
    """Return (row, column) of the best entries in the columns of accuracies and times."""
    best: set[tuple[int, int]] = set()
    for column, key, pick in ((1, "at_time", max), (2, "at_updates", max), (3, "time_to_target", min)):
        values = [getattr(row, key) for row in comparison.rows]
        known = [value for value in values if value is not None and (column != 3 or comparison.target is not None)]
        best |= {(i, column) for i, value in enumerate(values) if len(known) > 1 and value == pick(known)}
    return best


def _table(head: list[str], rows: list[list[str]], best: set[tuple[int, int]]) -> str:
    top = "".join(f"<th>{html_text(cell)}</th>" for cell in head)
    body = "".join(
        "<tr>"
        + "".join(f"<td{' class=best' if (i, j) in best else ''}>{html_text(cell)}</td>" for j, cell in enumerate(row))
        + "</tr>"
        for i, row in enumerate(rows)
    )
    return f"<table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"


def _clients(runs: Sequence[Run]) -> str:
    """Return the tables of clients: how well the last model serves them, and how often they took part."""
    served, part = clients_table(runs), participation_table(runs)
    text = f"<h2>How well clients are served</h2>{_table(*served, set())}" if served[1] else ""
    return text + (f"<h2>How often clients took part</h2>{_table(*part, set())}\n" if part[1] else "")


def _diverged(run: Run) -> str:
    text = f"{run.folder.name} diverged after step {run.summary.step:,}: {run.diverged}"
    return f"<p>{html_text(text)}</p>\n"


def _figure(drawn: Drawn) -> str:
    svg = drawn.svg()
    svg = svg[svg.index("<svg") :]
    # matplotlib uses the same ids in every figure, but an id must be unique within the page
    svg = re.sub("<[^>]*>", lambda tag: re.sub(r'id="|url\(#|href="#', rf"\g<0>{drawn.name}-", tag[0]), svg)
    caption = f"<figcaption>{html_text(drawn.caption)}</figcaption>"
    return f'<h2>{drawn.title}</h2><figure id="{drawn.name}">{svg}{caption}</figure>\n'


def _settings(run: Run) -> str:
    title, settings = f"{html_text(run.label)}, seed {run.summary.seed}", html_text(to_toml(run.config))
    return f"<details><summary>{title}</summary><pre>{settings}</pre></details>\n"
