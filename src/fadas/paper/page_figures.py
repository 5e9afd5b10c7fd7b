"""The figures of the reproduction page, in the paper's style: test accuracy against rounds, client trips or time."""

from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from fadas.paper.blocks import Curves
from fadas.report.figures import STYLE, percent
from fadas.report.text import figure_text

_AXES = {"step": (0, "communication rounds"), "updates": (1, "client trips"), "time": (2, "time (units of 10 s)")}
_SMOOTH = 10  # evaluations per mean: without smoothing, the lines would hide each other


def draw_curves(name: str, title: str, axis: str, curves: Curves, folder: Path) -> list[Path]:
    """Write a figure as PNG and SVG, with one line per run. Return the paths of both files.

    Args:
        name: The name of the files.
        title: The title above the plot.
        axis: What the x axis shows: "step", "updates" or "time".
        curves: The points of each run, by its name in the legend.
        folder: Where the files are written.
    """
    column, label = _AXES[axis]
    variants = {run.partition(",")[0] for run in curves} == {"FADAS", "FADAS-DA"}
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(5.6, 4.0))
        axes = figure.subplots()
        for row, (run, points) in enumerate(curves.items()):  # rows without a result keep their colour too
            if not points:
                continue
            curve = np.array(points)
            width = min(_SMOOTH, len(curve))
            mean = np.convolve(curve[:, 3], np.ones(width) / width, "valid")
            # if the figure shows both variants, the same setting has the same colour in both
            colour = f"C{row % (len(curves) // 2) if variants else row}"
            style = "--" if variants and run.startswith("FADAS-DA,") else "-"
            axes.plot(curve[width - 1 :, column], mean, style, color=colour, label=figure_text(run), linewidth=1.5)
        axes.set(title=figure_text(title), xlabel=label, ylabel=f"test accuracy, mean of up to {_SMOOTH} evaluations")
        axes.yaxis.set_major_formatter(percent)
        axes.legend(frameon=False, fontsize=8)
        paths = [folder / f"{name}.{kind}" for kind in ("svg", "png")]
        folder.mkdir(parents=True, exist_ok=True)
        figure.savefig(paths[0], bbox_inches="tight", metadata={"Date": None, "Creator": None, "Title": title})
        figure.savefig(paths[1], dpi=130, bbox_inches="tight", metadata={"Software": None})
    return paths
