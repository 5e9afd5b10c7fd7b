"""The page of a report."""

import re

from fadas.report.html import page
from helpers.folders import FAST_RUN, SLOW_RUN, make_run


def test_page_is_self_contained_with_every_figure():
    html = page([FAST_RUN, SLOW_RUN])
    for name in ("time", "updates", "delays", "eta", "timeline"):
        assert re.search(rf'<figure id="{name}"><svg.*?</svg>', html, re.S), name
    assert not re.search(r'(?:src|href)="(?!#|data:)[^"]', html.replace('href="http://www.w3.org', "")), "outside links"
    assert "<script" not in html
    assert "&lt;b&gt;x&lt;/b&gt;" in html, "names must be escaped"
    ids = re.findall(r'\bid="([^"]+)"', html)
    assert len(ids) == len(set(ids)), "two elements of the page share an id"
    assert html == page([FAST_RUN, SLOW_RUN]), "equal runs must give equal pages"


def test_page_omits_empty_figures():
    html = page([SLOW_RUN])
    assert '<figure id="timeline">' in html
    assert '<figure id="eta">' not in html
    assert '<figure id="delays">' not in html
    blind = page([make_run("blind", [(10, 5, None), (20, 10, None)], target=None)])
    assert '<figure id="time">' not in blind
    assert "<td>-</td>" in blind
