"""The report in a real browser, where one is installed. `make test-browser` installs Debian's.

With FADAS_SCREENSHOTS=DIR, the pictures stay in this folder, to be looked at.
"""

import json
import os
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path

import matplotlib.image
import pytest

from fadas.report.html import write_report
from helpers.cli import DEMO, run_fadas
from helpers.folders import make_run

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")

FLAGS = """--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking
--disable-component-update --disable-sync --hide-scrollbars --virtual-time-budget=20000 --enable-logging=stderr"""

# Uses the page as a reader would, and writes what it saw into the title, which --dump-dom prints.
PROBE = """<script>
addEventListener('load', async () => {
  const wait = () => new Promise((done) => setTimeout(done, 400));
  const seen = {};
  const visible = (element) => element.getBoundingClientRect().height > 0;
  for (let k = 0; k < 20 && !document.querySelector('#curves .main-svg'); k++) await wait();
  const chart = document.querySelector('#curves .chart');
  const pick = async (label, value) => {
    const box = [...document.querySelectorAll('#curves label')].find((one) => one.textContent.startsWith(label));
    if (!box) return;
    const select = box.querySelector('select, input');
    select.value = value;
    select.dispatchEvent(new Event(select.tagName === 'INPUT' ? 'input' : 'change'));
    await wait();
  };
  const lines = () => chart.data.filter((trace) => trace.hovertemplate).length;
  seen.interactive = document.documentElement.classList.contains('interactive');
  seen.figures = [...document.querySelectorAll('figure')].filter(visible).map((figure) => figure.id);
  seen.wide = document.documentElement.scrollWidth > innerWidth;
  seen.names = [...document.querySelectorAll('.chips button')].map((button) => button.textContent);
  seen.lines = lines();
  seen.type = chart.layout.xaxis.type;
  document.querySelector('.chips button').click(); await wait();
  seen.hidden = lines();
  document.querySelector('.chips button').click(); await wait();
  const all = document.querySelector('.chips .all');
  if (all) { all.click(); await wait(); seen.none = lines(); all.click(); await wait(); }
  // Texts that overlap, or that stick out of the chart.
  const boxes = [...chart.querySelectorAll('.main-svg text')].filter((text) => text.textContent)
    .map((text) => ({ text: text.textContent, box: text.getBoundingClientRect() })).filter(({ box }) => box.width);
  const frame = chart.getBoundingClientRect();
  const sticksOut = ({ box }) => box.left < frame.left - 1 || box.right > frame.right + 1;
  seen.cut = boxes.filter(sticksOut).map(({ text }) => text);
  seen.overlaps = boxes.flatMap((one, at) => boxes.slice(at + 1).filter((two) => one.box.left < two.box.right
    && two.box.left < one.box.right && one.box.top < two.box.bottom - 2 && two.box.top < one.box.bottom - 2)
    .map((two) => `${one.text} on ${two.text}`));
  seen.ticks = [...chart.querySelectorAll('.xtick')].map((tick) => tick.textContent);
  const traces = chart.data.length;
  await pick('spread', 2); seen.seeds = chart.data.length - traces; await pick('spread', 0);
  await pick('x axis', 1); seen.linear = chart.layout.xaxis.type;
  await pick('against', 1); seen.updates = chart.layout.xaxis.title.text;
  await pick('metric', 1); seen.metric = chart.layout.yaxis.title.text;
  await pick('y axis', 1); seen.logarithmic = chart.layout.yaxis.type;
  const before = chart.data.length;
  await pick('smoothing', 10); seen.raw = chart.data.length - before;
  await pick('smoothing', 0); await pick('metric', 0);
  Plotly.Fx.hover(chart, [{ curveNumber: chart.data.findIndex((trace) => trace.hovertemplate), pointNumber: 1 }]);
  await wait();
  seen.hover = chart.querySelector('.hoverlayer').textContent;
  // Zoom with the mouse, and back with a double click.
  await pick('against', 1);
  const area = chart.querySelector('.nsewdrag'), { left, top, width, height } = area.getBoundingClientRect();
  const fire = (target, kind, share) => target.dispatchEvent(new MouseEvent(kind, { bubbles: true, cancelable: true,
    view: window, button: 0, buttons: 1, clientX: left + share * width, clientY: top + height / 2 }));
  const [first, last] = chart.layout.xaxis.range;
  fire(area, 'mousedown', 0.25);
  for (const share of [0.3, 0.5, 0.75]) fire(document, 'mousemove', share);
  fire(document, 'mouseup', 0.75); await wait();
  seen.zoomed = chart.layout.xaxis.range.map((value) => (value - first) / (last - first));
  for (const _ of [1, 2]) { fire(area, 'mousedown', 0.5); fire(document, 'mouseup', 0.5); }
  await wait();
  seen.back = chart.layout.xaxis.range.map((value) => (value - first) / (last - first));
  seen.buttons = [...chart.querySelectorAll('.modebar-btn')].map((button) => button.dataset.title);
  seen.bars = document.querySelectorAll('#timelines .bars path').length;
  const timelines = document.querySelectorAll('#timelines option');
  seen.methods = timelines.length;
  if (timelines.length) {
    const shapes = () => [...document.querySelectorAll('#timelines .bars path')].map((path) => path.outerHTML).join();
    const select = timelines[0].parentElement, before_choice = shapes();
    select.value = timelines.length - 1; select.dispatchEvent(new Event('change')); await wait();
    seen.moved = shapes() !== before_choice;
  }
  seen.markup = document.querySelectorAll('#curves b, .hoverlayer a, .hoverlayer [style*="bold"]').length;
  seen.requests = performance.getEntriesByType('resource').length;
  document.title = JSON.stringify(seen);
});
</script>"""


def browse(page: Path, *options) -> str:
    """Open a page. Return what the browser printed: the page, and what scripts complained about."""
    command = [CHROMIUM, *FLAGS.split(), f"--user-data-dir={page.parent / 'profile'}", *options, page.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180)
    complaints = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    assert complaints == []
    return done.stdout


def probe(page: Path, width: int = 1200) -> dict:
    """Use a page, and return what was seen. The probe is one more script, so the page's policy must admit it."""
    text = page.read_text(encoding="utf-8")
    policy = re.search(r'<meta http-equiv="Content-Security-Policy"[^>]+>', text)[0]
    probed = page.with_name("probed.html")
    probed.write_text(text.replace(policy, policy_with(PROBE, policy)).replace("</head>", PROBE + "</head>"))
    dom = browse(probed, "--dump-dom", f"--window-size={width},2000")
    return json.loads(unescape(re.search(r"<title>(.*?)</title>", dom, re.S)[1]))


def policy_with(script: str, policy: str) -> str:
    """A policy that also admits a script."""
    from fadas.report.page.explorer import script_hash

    source = script.removeprefix("<script>").removesuffix("</script>")
    return policy.replace("script-src ", f"script-src {script_hash(source)} ")


def take_picture(page: Path, width: int, height: int, name: str = "") -> Path:
    """Take a picture of a page. A narrow one is shown in a frame: Chromium's windows have 500 pixels at least."""
    folder = Path(os.environ.get("FADAS_SCREENSHOTS", page.parent))
    folder.mkdir(parents=True, exist_ok=True)
    picture = folder / f"{name or width}.png"
    frame = page.with_name("frame.html")
    frame.write_text(
        f"<body style='margin:0'><iframe src='{page.name}' width={width} height={height} style='border:0'>"
    )
    browse(frame, f"--screenshot={picture}", f"--window-size={max(width, 500)},{height}")
    return picture


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """The report of a small demo: three methods, two seeds."""
    folder = tmp_path_factory.mktemp("browser")
    tau_c = "algorithms.fadas-da.tau_c=1"  # makes the step size vary within a short run
    small = ["--set", "run.updates=50", "--set", "run.eval_every=2", "--set", "run.seeds=[1,2]"]
    options = ["--only", "fadas,fadas-da,fedavg", *small, "--set", tau_c]
    run_fadas("run", DEMO, *options, "--out", folder / "o")
    return folder / "o" / "report.html"


def test_reader_can_hover_zoom_hide_and_switch_axes(report):
    seen = probe(report)
    assert seen["interactive"]
    assert seen["figures"] == ["delays", "eta", "participation", "labels"], "the others are interactive"
    assert seen["names"] == ["fadas", "fadas-da", "fedavg", "all / none"]
    assert (seen["lines"], seen["hidden"]) == (3, 2)
    assert seen["linear"] == "linear"
    assert seen["updates"] == "client updates"
    assert (seen["metric"], seen["logarithmic"]) == ("test loss", "log")
    assert seen["raw"] == 3, "the raw line of each method is behind the smoothed one"
    assert "fadas: " in seen["hover"]
    assert "±" in seen["hover"]
    assert seen["zoomed"] == pytest.approx([0.25, 0.75], abs=0.02)
    assert seen["back"] == pytest.approx([0, 1], abs=0.02)
    assert seen["none"] == 0
    assert seen["seeds"] == 3, "two lines for the seeds instead of one band, for each of three methods"
    assert (seen["cut"], seen["overlaps"]) == ([], [])
    assert seen["moved"], "another method has other bars"
    assert seen["bars"] > 20
    assert seen["methods"] == 3, "every method has a timeline"
    assert not [title for title in seen["buttons"] if re.search("cloud|link|share|edit", title, re.I)]
    assert seen["requests"] == 0, "the page must work offline"


def test_page_is_not_wider_than_a_phone(report):
    narrow = report.with_name("narrow.html")
    text = report.read_text(encoding="utf-8").replace("<html ", '<html style="width:400px" ', 1)
    narrow.write_text(text, encoding="utf-8")
    seen = probe(narrow, 500)
    assert not seen["wide"]
    assert (seen["cut"], seen["overlaps"]) == ([], [])
    assert len(seen["ticks"]) >= 2


@pytest.mark.parametrize("width", [1200, 400])
def test_page_shows_coloured_curves(report, width):
    pixels = matplotlib.image.imread(take_picture(report, width, 4500))[..., :3]
    colourful = (pixels.max(-1) - pixels.min(-1) > 0.3).mean()
    assert colourful > 0.005, "the page shows no coloured curves"


def test_print_has_static_figures(report, tmp_path):
    folder = Path(os.environ.get("FADAS_SCREENSHOTS", tmp_path))
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / "print.pdf"
    browse(report, f"--print-to-pdf={target}", "--no-pdf-header-footer")
    assert target.read_bytes().startswith(b"%PDF")
    assert 2 <= len(re.findall(rb"/Type /Page\b", target.read_bytes())) <= 12


def test_hostile_names_stay_text(tmp_path):
    names = ["<b>bold</b>", '<a href="javascript:alert(1)">x</a>', "</script><script>alert(1)</script>", "$x$ %{y}"]
    runs = [make_run(name, [(10, 5, 0.5), (20, 10, 0.7)], target=None) for name in names]
    write_report(runs, tmp_path / "report.html")
    seen = probe(tmp_path / "report.html")
    assert seen["names"][:4] == names
    assert seen["markup"] == 0
    assert "<b>bold</b>: 70.0%" in seen["hover"]


def test_page_without_scripts_has_all_figures(report, tmp_path):
    plain = tmp_path / "plain.html"
    plain.write_text(
        re.sub(r"<script>.*?</script>", "", report.read_text(encoding="utf-8"), flags=re.S), encoding="utf-8"
    )
    pixels = matplotlib.image.imread(take_picture(plain, 1200, 7000, "no-script"))[..., :3]
    assert (pixels.max(-1) - pixels.min(-1) > 0.3).mean() > 0.005
