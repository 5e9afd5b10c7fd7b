"""The page of a report."""

import base64
import hashlib
import json
import re
import zlib

from fadas.report.html import page
from fadas.report.looks import looks_of
from fadas.report.page.explorer import explorer_data
from fadas.report.page.settings import compare_settings
from fadas.runs.reader import group_runs
from helpers.folders import FAST_RUN, SLOW_RUN, make_run


def test_page_is_self_contained_with_every_figure():
    html = page([FAST_RUN, SLOW_RUN])
    for name in ("time", "updates", "train-loss", "delays", "eta", "timeline"):
        assert re.search(rf'<figure id="{name}"><div class="scroll"><svg.*?</svg>', html, re.S), name
    assert not re.search(r'(?:src|href)="(?!#|data:)[^"]', html.replace('href="http://www.w3.org', "")), "outside links"
    assert not re.search(r"@import|url\((?!#)", html)
    assert "&lt;b&gt;x&lt;/b&gt;" in html, "names must be escaped"
    ids = re.findall(r'\bid="([^"]+)"', html.split("<script>")[0])
    assert len(ids) == len(set(ids)), "two elements of the page share an id"
    assert html == page([FAST_RUN, SLOW_RUN]), "equal runs must give equal pages"


def test_page_admits_its_own_scripts_only():
    html = page([FAST_RUN])
    (policy,) = re.findall(r'<meta http-equiv="Content-Security-Policy" content="([^"]+)">', html)
    assert policy.startswith("default-src 'none'; form-action 'none';")
    scripts = re.search(r"script-src (.+)$", policy).group(1).split()
    (own,) = re.findall(r"<script>(.*?)</script>", html, re.S)
    (packed,) = re.findall(r'<script type="text/plain" id="plotly">(.*?)</script>', html, re.S)
    sources = [own.encode(), zlib.decompress(base64.b64decode(packed))]
    assert scripts == [f"'sha256-{base64.b64encode(hashlib.sha256(one).digest()).decode()}'" for one in sources]
    assert b"plotly.js" in sources[1][:200]


def test_data_of_the_page_are_the_curves_of_the_runs():
    hostile = make_run("</script><b>&", [(10, 5, 0.5), (30, 10, 0.75)])
    (text,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page([FAST_RUN, hostile]))
    assert not set("<>&") & set(text)
    data = json.loads(text)
    assert [one["label"] for one in data["metrics"]] == ["test accuracy", "training loss"]
    assert [method["name"] for method in data["methods"]] == ["fast", "</script><b>&"]
    assert data["methods"][1]["runs"][0]["curves"][0] == [[10, 30], [5, 10], [1, 2], [0.5, 0.75]]
    assert data["methods"][0]["colour"] == looks_of(["fast"])["fast"].colour
    assert [one["name"] for one in data["timelines"]] == ["fast", "</script><b>&"]
    rows, clients, starts, durations, versions, taus = data["timelines"][0]["jobs"]
    assert sorted(zip(clients, versions, taus, strict=True)) == [
        (0, 0, 0), (0, 1, 0), (0, 2, 0), (1, -3, 3), (1, -2, 3), (1, -1, 3),
    ]  # fmt: skip
    assert len(rows) == len(starts) == len(durations) == 6


def test_long_curves_are_thinned_and_losses_averaged():
    run = make_run("a", [(k, k, 0.5) for k in range(1, 2002)])
    groups = {"a": [run]}
    data = explorer_data(groups, run.metric, None, looks_of(groups))
    accuracy, loss = data["methods"][0]["runs"][0]["curves"]
    assert len(accuracy[0]) <= 502
    assert (accuracy[0][0], accuracy[0][-1], loss[0][-1]) == (1, 2001, 2001)
    assert len(loss[0]) <= 500
    assert data["timelines"][0]["left"] == 2 * 2001 - 1500


def test_settings_are_shared_or_beside_the_methods():
    tables = {"task": {"name": "digits", "clients": 3}, "schedule": {"concurrency": 25, "buffer": 5}}
    runs = [
        make_run(
            name, [(10, 5, 0.5)], seed, **tables, algorithms={name: {"preset": preset, "eta": eta}}, local={"lr": lr}
        )
        for name, preset, eta, lr in (("fadas", "fadas", 0.1, 1.0), ("mine", "fedbuff", 0.2, 1.0))
        for seed in (1, 2)
    ]
    settings = compare_settings(group_runs(runs))
    assert settings.shared == {
        "task.name": "digits",
        "task.clients": "3",
        "schedule.concurrency": "25",
        "schedule.buffer": "5",
        "local.lr": "1",
        "run.seeds": "1, 2",
    }
    assert settings.own == {"fadas": {"eta": "0.1"}, "mine": {"preset": "fedbuff", "eta": "0.2"}}
    html = page(runs)
    assert "<i>concurrency (M_c)</i> 25" in html
    assert html.index("M_c") < html.index("Results")


def test_page_omits_empty_figures():
    html = page([SLOW_RUN])
    assert '<figure id="timeline">' in html
    assert '<figure id="eta">' not in html
    assert '<figure id="delays">' not in html
    blind = page([make_run("blind", [(10, 5, None), (20, 10, None)], target=None)])
    assert '<figure id="time">' not in blind
    assert "<td>-</td>" in blind
    assert "<script>" not in page([make_run("wild", [], diverged="at once")])
