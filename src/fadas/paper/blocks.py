"""Pages as lists of blocks, rendered as Markdown and as HTML."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from fadas.report.html import CSS
from fadas.report.text import html_text, show_line, show_lines

Point = tuple[float, float, float, float]  # step, client updates, virtual time, accuracy
Curves = dict[str, list[Point]]  # by name; empty: not run


@dataclass(frozen=True)
class Block:
    """A part of a page.

    Attributes:
        kind: What the block is.
        text: The text. For a figure: the name of its files.
        head: The column headings of a table. For a figure: its title and its axis.
        rows: The rows of a table.
        curves: The curves of a figure, by name.
    """

    kind: Literal["title", "heading", "text", "table", "figure"]
    text: str = ""
    head: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    curves: Curves = field(default_factory=Curves)


def render_markdown(page: Sequence[Block], figures: str) -> str:
    """Return a page as Markdown.

    Args:
        page: The blocks.
        figures: The folder of the figures, relative to the page.
    """
    parts: list[str] = []
    for block in page:
        match block.kind:
            case "title":
                parts.append(f"# {show_line(block.text)}")
            case "heading":
                parts.append(f"## {show_line(block.text)}")
            case "text":
                parts.append(show_lines(block.text))
            case "figure":
                parts.append(f"![{block.head[0]}]({figures}/{block.text}.png)")
            case "table":
                lines = [block.head, tuple("---" for _ in block.head), *block.rows]
                parts.append("\n".join(f"| {' | '.join(map(_markdown_cell, line))} |" for line in lines))
    return "\n\n".join(parts) + "\n"


def _markdown_cell(text: str) -> str:
    return show_line(text).replace("|", r"\|").replace("<", "&lt;")


def render_html(page: Sequence[Block], figures: str) -> str:
    """Return a page as HTML.

    Args:
        page: The blocks.
        figures: The folder of the figures, relative to the page.
    """
    parts: list[str] = []
    for block in page:
        match block.kind:
            case "title":
                parts.append(f"<h1>{html_text(block.text)}</h1>")
            case "heading":
                parts.append(f'<h2 id="{slug(block.text)}">{html_text(block.text)}</h2>')
            case "text":
                parts += map(_paragraph, block.text.split("\n\n"))
            case "figure":
                parts.append(
                    f'<figure><img src="{figures}/{block.text}.svg" alt="{html_text(block.head[0])}"></figure>'
                )
            case "table":
                head = "".join(f"<th>{html_text(cell)}</th>" for cell in block.head)
                rows = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in block.rows)
                parts.append(f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>")
    title = next((block.text for block in page if block.kind == "title"), "fadas")
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>fadas: {html_text(title)}</title><style>{CSS}{_STYLE}</style></head><body>
{chr(10).join(parts)}
</body></html>
"""


# For wide tables: a wider page, no line break between a number and its spread, and a scroll bar on narrow screens.
_STYLE = """body { max-width: 72rem; }
p, ul { max-width: 60rem; }
table { display: block; overflow-x: auto; }
td:first-child { min-width: 9rem; }
td + td { white-space: nowrap; }
td.agrees { background: #eef6ee; }
td.better { background: #e6f0fb; }
td.worse { background: #fbeeee; }
td.missing { color: #98a2ae; }
figure { display: inline-block; max-width: 100%; }
img { max-width: 100%; }
"""
_CLASSES = {"=": "agrees", "▲": "better", "▼": "worse", "·": "missing"}


def _paragraph(text: str) -> str:
    """Return a paragraph or a bulleted list as HTML."""
    if not text.startswith("- "):
        return f"<p>{_inline(text)}</p>"
    items = text.removeprefix("- ").split("\n- ")
    return f"<ul>{''.join(f'<li>{_inline(item)}</li>' for item in items)}</ul>"


def _cell(text: str) -> str:
    """Return a table cell as HTML. The mark at the end of its text gives the cell its colour."""
    colour = _CLASSES.get(text[-1:], "")
    return f"<td{f' class={colour}' if colour else ''}>{_inline(text)}</td>"


def slug(heading: str) -> str:
    """Return the anchor that GitHub gives to a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def _inline(text: str) -> str:
    """Return Markdown text as HTML: code, links within the page, and bold text."""
    text = re.sub(r"`([^`]+)`", r"<code>\1</code>", html_text(text))
    text = re.sub(r"\[([^]]+)\]\((#[^)]+)\)", r'<a href="\2">\1</a>', text)
    return re.sub(r"\*\*([^*]+)\*\*", r"<b>\1</b>", text)
