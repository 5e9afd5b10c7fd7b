"""The report in a real browser, where one is installed. `make test-browser` installs Debian's."""

import json
import re
import shutil
import subprocess

import matplotlib.image
import pytest

from helpers.cli import DEMO, SMALL, run_fadas

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


FLAGS = """--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking
--disable-component-update --disable-sync --hide-scrollbars --window-size=1000,4200 --virtual-time-budget=4000"""


# Writes the sizes of the figures into the page's title, which --dump-dom prints.
PROBE = """<script>
window.onload = () => { document.title = JSON.stringify([...document.querySelectorAll('figure')].map(f => {
  const r = f.querySelector('svg').getBoundingClientRect();
  return [f.id, Math.round(r.width), Math.round(r.height), f.querySelectorAll('path').length];
})); };
</script>"""


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")
def test_browser_draws_every_figure(tmp_path):
    tau_c = "algorithms.fadas-da.tau_c=1"  # makes the step size vary within a short run
    run_fadas("run", DEMO, "--only", "fadas,fadas-da,fedavg", *SMALL, "--set", tau_c, "--out", tmp_path / "o")
    page = tmp_path / "o" / "report.html"
    probed = tmp_path / "probed.html"
    probed.write_text(page.read_text().replace("</head>", PROBE + "</head>"))
    browser = [CHROMIUM, *FLAGS.split(), f"--user-data-dir={tmp_path / 'profile'}"]
    dom = subprocess.run([*browser, "--dump-dom", probed.as_uri()], capture_output=True, text=True, timeout=120).stdout
    figures = json.loads(re.search(r"<title>(.*?)</title>", dom, re.S).group(1))
    assert [name for name, *_ in figures] == ["time", "updates", "delays", "eta", "timeline", "participation", "labels"]
    for name, width, height, paths in figures:
        assert width > 600, name
        assert height > 150, name
        assert paths > 10, name
    picture = tmp_path / "page.png"
    subprocess.run([*browser, f"--screenshot={picture}", page.as_uri()], capture_output=True, timeout=120, check=True)
    pixels = matplotlib.image.imread(picture)[..., :3]
    colourful = (pixels.max(-1) - pixels.min(-1) > 0.3).mean()
    assert colourful > 0.005, "the page shows no coloured curves"
