"""report.html: one self-contained page with the table, the differences, the curves, the figures and the settings.

The page carries Plotly along. It works offline: its content security policy forbids all requests, and all scripts but
the two that it comes with.
"""

import re
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path

from fadas.core.metrics import Metric
from fadas.report.clients import clients_table, participation_table
from fadas.report.comparison import Comparison, compare
from fadas.report.figures import Drawn, figures
from fadas.report.looks import Look, looks_of
from fadas.report.page.explorer import data_block, explorer_data, plotly, read_asset, script_hash
from fadas.report.page.settings import compare_settings, draw_own, draw_shared
from fadas.report.page.tables import draw_differences, draw_name, draw_plain_table, draw_table, explain_table
from fadas.report.text import html_text
from fadas.runs.reader import Run, group_runs
from fadas.runs.serialization import write_text

_MOST_METHODS = 40  # of the interactive curves
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


def write_report(runs: Sequence[Run], path: Path, metric: str | None = None, columns: Sequence[str] = ()) -> None:
    """Write the report of some runs to an HTML file.

    Args:
        runs: The runs, from `fadas.runs.reader.find_runs`.
        path: The file.
        metric: The metric to compare by. None: the one that the runs are judged by.
        columns: Further columns of the table, as for `compare`.

    Example:
        >>> write_report(find_runs(Path("runs/demo")), Path("report.html"))
    """
    write_text(path, page(runs, metric, columns))  # replaces a link to another file, instead of the file


def page(runs: Sequence[Run], metric: str | None = None, columns: Sequence[str] = ()) -> str:
    """Return the report of some runs as HTML. Equal runs give equal text.

    Args:
        runs: The runs.
        metric: The metric to compare by. None: the one that the runs are judged by.
        columns: Further columns of the table.
    """
    comparison = compare(runs, metric, columns)
    groups, sound = group_runs(runs), group_runs([run for run in runs if not run.diverged])
    looks = looks_of(dict.fromkeys([*sound, *groups]))  # as in the figures, which have no diverged runs
    name = ", ".join(dict.fromkeys(run.summary.experiment for run in runs))
    title = html_text(name)
    settings = compare_settings(groups)
    names = {name: draw_name(name, look) for name, look in looks.items()}
    script = read_asset("report.js")
    packed, plotly_hash = plotly()
    scripts = f"script-src {script_hash(script)} {plotly_hash}"
    policy = f"default-src 'none'; form-action 'none'; style-src 'unsafe-inline'; img-src data: blob:; {scripts}"
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>fadas: {title}</title><style>{CSS}{read_asset("report.css")}</style></head>
<body><h1>{title}</h1><p class="lead">{_lead(runs, comparison)}</p>
{draw_shared(settings)}
<h2 id="results">Results</h2>
{draw_table(comparison, looks)}
{explain_table(comparison)}
{"".join(_diverged(run) for run in runs if run.diverged)}
{draw_differences(comparison, looks)}
{draw_own(settings, names)}
{_explorer(sound) if sound else ""}
{_clients(runs, comparison.metric, looks)}{"".join(map(_figure, figures(runs, metric)))}
{_scripts(sound, comparison, packed, script) if sound else ""}
</body></html>
"""


def _lead(runs: Sequence[Run], comparison: Comparison) -> str:
    seeds = len({run.summary.seed for run in runs})
    lead = f"Methods: {len(comparison.rows)}. Seeds: {seeds}. Runs: {len(runs)}."
    if any(not run.diverged for run in runs):
        lead += f" Compared at {_format_time(runs, comparison.time)} and at {comparison.updates:,} client updates, the "
        lead += "largest values that all runs reach."
    if any(run.diverged for run in runs):
        lead += " Diverged runs are not compared."
    folders = dict.fromkeys(run.folder.parent.name for run in runs)
    return f"{lead} Folders: {html_text(', '.join(folders))}." if len(folders) > 1 else lead


def _format_time(runs: Sequence[Run], time: float) -> str:
    return f"{time:.0f} seconds" if {run.clock for run in runs} == {"seconds"} else f"virtual time {time:.0f}"


def _clients(runs: Sequence[Run], metric: Metric, looks: Mapping[str, Look]) -> str:
    """Return the tables of clients: how well the last model serves them, and how often they took part."""
    served, part = clients_table(runs, metric), participation_table(runs)
    text = f'<h2 id="served">How well clients are served</h2>{draw_plain_table(*served, looks)}' if served[1] else ""
    title = '<h2 id="took-part">How often clients took part</h2>'
    return text + (f"{title}{draw_plain_table(*part, looks)}\n" if part[1] else "")


def _diverged(run: Run) -> str:
    text = f"{run.folder.name} diverged after step {run.summary.step:,}: {run.diverged}"
    return f"<p>{html_text(text)}</p>\n"


def _explorer(groups: Mapping[str, list[Run]]) -> str:
    """Return the place of the interactive curves. It is filled, and shown, where scripts run."""
    left_out = len(groups) - _MOST_METHODS
    note = f'<p class="hint">{left_out} more methods are not drawn.</p>' if left_out > 0 else ""
    if any(run.is_timeless for runs in groups.values() for run in runs):
        text = "Centralised training has no virtual time: against time, it is a level line at its last value."
        note += f'<p class="hint">{text}</p>'
    return f'<section class="explorer"><h2>Learning curves</h2><div id="curves"></div>{note}</section>\n'


def _scripts(groups: Mapping[str, list[Run]], comparison: Comparison, packed: str, script: str) -> str:
    shown = dict(islice(groups.items(), _MOST_METHODS))
    data = explorer_data(shown, comparison.metric, comparison.target, looks_of(groups))
    return f'{data_block(data)}\n<script type="text/plain" id="plotly">{packed}</script>\n<script>{script}</script>'


def _figure(drawn: Drawn) -> str:
    svg = drawn.svg()
    svg = svg[svg.index("<svg") :]
    # matplotlib uses the same ids in every figure, but an id must be unique within the page
    svg = re.sub("<[^>]*>", lambda tag: re.sub(r'id="|url\(#|href="#', rf"\g<0>{drawn.name}-", tag[0]), svg)
    caption = f"<figcaption>{html_text(drawn.caption)}</figcaption>"
    figure = f'<figure id="{drawn.name}"><div class="scroll">{svg}</div>{caption}</figure>'
    if drawn.is_curve:  # the interactive curves replace it on the screen
        return f'<div class="static"><h2>{html_text(drawn.title)}</h2>{figure}</div>\n'
    if drawn.name == "timeline":
        figure = f'<div class="explorer" id="timelines"></div><div class="static">{figure}</div>'
    return f"<h2>{html_text(drawn.title)}</h2>{figure}\n"
