"""Drawing a report leaves matplotlib's backend, and pyplot's figures, to the user."""

import subprocess
import sys

from helpers.cli import DEMO, SMALL, run_fadas

DRAW = """
import sys
import matplotlib
matplotlib.use("svg")
from pathlib import Path
from fadas.report.figures import figures, save_figures
from fadas.runs.reader import find_runs
import fadas.paper.page_figures
runs = find_runs(Path(sys.argv[1]))
save_figures(runs, Path(sys.argv[2]))
assert matplotlib.get_backend().lower() == "svg", matplotlib.get_backend()
assert "matplotlib.pyplot" not in sys.modules
print(len(list(figures(runs))))
"""


def test_drawing_figures_leaves_backend_as_it_is(tmp_path):
    run_fadas("run", DEMO, *SMALL, "--only", "fadas,fedavg", "--out", tmp_path / "runs", "--no-report")
    command = [sys.executable, "-c", DRAW, tmp_path / "runs", tmp_path / "figures"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= 5
    assert (tmp_path / "figures" / "time.png").stat().st_size > 10_000
