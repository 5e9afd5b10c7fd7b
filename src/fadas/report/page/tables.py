"""The tables of report.html: the comparison, and the differences between the best method and the others."""

from collections.abc import Mapping, Sequence

from fadas.report.comparison import Comparison
from fadas.report.looks import Look
from fadas.report.table import (
    columns_of,
    describe_ranking,
    difference_interval_text,
    difference_text,
    table_cells,
    table_header,
)
from fadas.report.text import html_text

_MOST = 30  # rows of differences


def swatch(look: Look) -> str:
    """Return a method's line as a small picture, in its colour and its line style."""
    dashes = ("", "5 3", "7 2 1.5 2", "1.5 2")[look.dash]
    return (
        '<svg class="swatch" width="22" height="8" viewBox="0 0 22 8" aria-hidden="true"><line x1="1" y1="4" x2="21" '
        f'y2="4" stroke="{look.colour}" stroke-width="2.5" stroke-dasharray="{dashes}"/></svg>'
    )


def draw_name(name: str, look: Look | None = None) -> str:
    """Return a method's name as HTML, with its line beside it."""
    return f'<span class="name">{swatch(look) if look else ""}<span>{html_text(name)}</span></span>'


def draw_table(comparison: Comparison, looks: Mapping[str, Look]) -> str:
    """Return the table of the comparison as HTML. The best methods of a column are marked where they were tested."""
    head, *_ = [table_header(comparison, wide=True)]
    columns = columns_of(comparison, wide=True)
    meanings = ["", *(column.meaning for column in columns)]
    top = "".join(
        f'<th title="{html_text(meaning)}">{html_text(cell)}</th>' for cell, meaning in zip(head, meanings, strict=True)
    )
    body = ""
    for row, cells in zip(comparison.rows, table_cells(comparison, wide=True), strict=True):
        marks = [_mark(comparison, column.key, row.algorithm) for column in columns]
        body += f"<tr><th>{draw_name(cells[0], looks[row.algorithm])}</th>"
        body += "".join(f"<td{mark}>{html_text(cell)}</td>" for cell, mark in zip(cells[1:], marks, strict=True))
        body += "</tr>"
    return (
        f'<div class="scroll"><table class="results"><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'
    )


def draw_plain_table(header: Sequence[str], rows: Sequence[Sequence[str]], looks: Mapping[str, Look]) -> str:
    """Return a table as HTML. The first column names methods."""
    top = "".join(f"<th>{html_text(cell)}</th>" for cell in header)
    body = ""
    for name, *cells in rows:
        values = "".join(f"<td>{html_text(cell)}</td>" for cell in cells)
        body += f"<tr><th>{draw_name(name, looks.get(name))}</th>{values}</tr>"
    return (
        f'<div class="scroll"><table class="results"><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'
    )


def _mark(comparison: Comparison, column: str, name: str) -> str:
    ranking = comparison.rankings.get(column)
    if ranking is None or name not in ranking.leaders or ranking.all_level:
        return ""
    return f' class="{"best" if ranking.winner else "level"}"'


def explain_table(comparison: Comparison) -> str:
    """Return how to read the table, as HTML: the rule of each column, the spread, the test."""
    metric = comparison.metric
    several = any(row.seeds > 1 for row in comparison.rows)
    better = f"{metric.better.capitalize()} {metric.name} is better."
    lines = [f"<b>{html_text(column.title.replace(chr(10), ' '))}</b>: {html_text(column.meaning)}"
             for column in columns_of(comparison, wide=True)]  # fmt: skip
    if several:
        lines.append("<b>±</b>: sample standard deviation over the seeds, with n - 1.")
    if verdict := describe_ranking(comparison.ranking, metric.name):
        lines.append(f"<b>Marked</b>: {html_text(_explain_marks(comparison))}")
        lead = f'<p class="verdict">{html_text(_capital(verdict))}. {html_text(better)}</p>'
    else:
        lead = f'<p class="verdict">{html_text(better)}</p>'
    items = "".join(f"<li>{line}</li>" for line in lines)
    return f"{lead}<details><summary>How to read this table</summary><ul>{items}</ul></details>"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _explain_marks(comparison: Comparison) -> str:
    reason = comparison.ranking.reason
    if reason:
        return f"nothing, because {reason}."
    return (
        "bold is a method that is better than every other, at 5 % after the correction. Pale green are the methods "
        "that no test tells from the best of their column. If no test tells two methods apart, none is marked. "
        "Tests are paired t-tests over the common seeds, with Holm's correction over all pairs of the column. "
        "Baselines without federated learning are tested, too, but never marked."
    )


def draw_differences(comparison: Comparison, looks: Mapping[str, Look]) -> str:
    """Return the differences between the best method and each other, as an HTML table."""
    ranking, metric = comparison.ranking, comparison.metric
    if not (ranking.tested and ranking.candidates):
        return ""
    first = ranking.candidates[0]
    others = [row.algorithm for row in comparison.rows if row.by_seed and row.algorithm != first]
    rows = ""
    for name in others[:_MOST]:
        one = ranking.difference(first, name)
        interval = None if one.low is None or one.high is None else (one.low, one.high)
        verdict = "different" if one.is_significant else "level" if one.p is not None else "no test"
        cells = [
            str(one.seeds),
            difference_text(metric, one.mean, interval),
            difference_interval_text(metric, interval),
        ]
        cells += [_p_text(one.p), _p_text(one.adjusted), verdict]
        rows += f"<tr><th>{draw_name(name, looks[name])}</th>"
        rows += "".join(f"<td>{html_text(cell)}</td>" for cell in cells) + "</tr>"
    more = f"<p>{len(others) - _MOST} more methods are not listed.</p>" if len(others) > _MOST else ""
    best = "the best mean, " if len(ranking.candidates) > 1 else ""
    head = ("", "common\nseeds", "difference", "95 % interval", "p", "p, Holm", "")
    top = "".join(f"<th>{html_text(cell)}</th>" for cell in head)
    return f"""<h2 id="differences">Is the difference real?</h2>
<p class="lead">The final {html_text(metric.name)} of <b>{html_text(first)}</b>, {best}minus that of each other
method, seed by seed: mean, 95 % confidence interval by Student's t, p-value of the paired t-test, and the p-value after
Holm's correction over {ranking.tested} pairs of methods.</p>
<div class="scroll"><table class="results"><thead><tr>{top}</tr></thead><tbody>{rows}</tbody></table></div>{more}
"""


def _p_text(p: float | None) -> str:
    return "-" if p is None else "< 0.001" if p < 0.001 else f"{p:.3f}"
