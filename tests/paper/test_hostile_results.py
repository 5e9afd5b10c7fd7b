"""Texts in results and on the page are shown as text."""

import warnings

import pytest

from fadas.paper.artefacts import Cell
from fadas.paper.blocks import Block, render_html, render_markdown
from fadas.paper.page_figures import draw_curves
from fadas.report.text import html_text
from helpers.fuzz import HOSTILE, find_raw
from helpers.paper import reproduce, save_result


@pytest.mark.parametrize("text", HOSTILE)
def test_blocks_show_hostile_text_as_text(text):
    page = [Block(kind, text) for kind in ("title", "heading", "text")]
    page.append(Block("table", head=("a", "b"), rows=((text, "x"),)))
    markdown, html = render_markdown(page, "figures"), render_html(page, "figures")
    assert find_raw(markdown) == find_raw(html) == set()
    assert f"<h1>{html_text(text)}</h1>" in html
    row = markdown.splitlines()[-1]
    assert row.startswith("| ")
    assert row.endswith(" | x |")
    assert "<" not in row


def test_markdown_cell_cannot_add_columns():
    table = render_markdown([Block("table", head=("a",), rows=(("x | y",),))], "figures")
    assert table.splitlines()[-1] == r"| x \| y |"


def test_figure_draws_hostile_names_as_text(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        svg, _ = draw_curves("x", "$\\frac{$", "time", {"\ud800\x1b": [(1, 1, 1, 0.5), (2, 2, 2, 0.6)]}, tmp_path)
    text = svg.read_text(encoding="utf-8")
    assert r"$\frac{$" in text
    assert r"\ud800\u001b" in text


def test_report_and_list_show_hostile_results_as_text(tmp_path):
    cell = Cell("cifar10-large-dir0.1", "fadas", 1)
    hostile = "\x1b[31m\ud800\u202e | <blink>"
    versions = {"torch": hostile}
    save_result(tmp_path / "results", cell, device=hostile, commit=hostile, versions=versions)
    assert reproduce(tmp_path, "list").exit_code == 0
    assert reproduce(tmp_path, "report").exit_code == 0
    for page in (tmp_path / "page.md", tmp_path / "page.html"):
        text = page.read_text(encoding="utf-8")
        assert find_raw(text) == set()
        assert r"\u001b[31m\ud800\u202e | " in text
    assert "<blink>" not in text
