"""Text from outside is shown as text."""

import tomllib

import pytest
from hypothesis import given, strategies as st

from fadas.report.text import figure_text, html_text, show_line, show_lines
from helpers.fuzz import HOSTILE, texts


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("fadas-da (eta=0.1) é ±", "fadas-da (eta=0.1) é ±"),
        ("\x1b[31m\x00\x7f\x9b", r"\u001b[31m\u0000\u007f\u009b"),
        ("a\nb\rc\td", r"a\nb\rc\td"),
        ("\u202eexe\u2028", r"\u202eexe\u2028"),
        ("\ud800\udcff", r"\ud800\udcff"),
        ("\U000e0041", r"\U000e0041"),
        ("[red]:bug:$x$\\", "[red]:bug:$x$\\"),
    ],
)
def test_show_line_escapes_what_cannot_be_printed(text, shown):
    assert show_line(text) == shown


@given(texts)
def test_shown_text_is_printable_and_shown_the_same_again(text):
    shown = show_line(text)
    assert shown.isprintable()
    assert show_line(shown) == shown
    shown.encode("utf-8")
    assert all(line.isprintable() for line in show_lines(text).split("\n"))


@given(st.text(st.characters(categories=["Cc"]), max_size=5))
def test_escapes_are_those_of_toml(text):
    assert tomllib.loads(f'x = "{show_line(text)}"') == {"x": text}


def test_show_line_with_limit_leaves_out_the_middle():
    assert show_line("a" * 10, 10) == "a" * 10
    short = show_line("b" + "a" * 1000 + "; try again", 100)
    assert len(short) == 100
    assert short.startswith("baaa")
    assert short.endswith("aaa; try again")
    assert " ... " in short


def test_show_lines_keeps_line_breaks():
    assert show_lines("a\n\x1bb\n") == "a\n\\u001bb\n"


def test_html_text_escapes_both_markup_and_control_characters():
    assert html_text('<b class="x">\x1b\n&') == "&lt;b class=&quot;x&quot;&gt;\\u001b\n&amp;"


@pytest.mark.parametrize("text", HOSTILE)
def test_figure_text_is_no_formula_and_not_hidden(text):
    from matplotlib import cbook

    drawn = figure_text(text)
    assert not cbook.is_math_text(drawn)
    assert drawn[:1] not in ("", "_")
    assert drawn.replace(r"\$", "$").strip() == show_line(text, 300).strip()
