"""The name of each curve at its end, where no eye has to travel to a legend."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.lines import Line2D

_MOST = 8  # names; more would overlap
_HEIGHT = 12.0  # of a name, in points
_WIDTH = 7.0  # of a character, in points


def label_lines(axes: Axes, lines: Sequence[Line2D], names: Sequence[str]) -> None:
    """Write a name beside the end of each line, in the line's colour. With many lines, draw a legend beside the plot.

    Args:
        axes: The plot, with its final scales.
        lines: The lines.
        names: The name of each line.
    """
    if len(lines) > _MOST:
        axes.legend(lines, names, frameon=False, loc="upper left", bbox_to_anchor=(1.01, 1.0))
        return
    axes.autoscale_view()
    ends = [line.get_xydata()[-1] for line in lines]  # type: ignore[index]
    points = axes.transData.transform(ends) * 72 / axes.get_figure(root=True).dpi  # type: ignore[union-attr]
    placed: list[tuple[float, float, float]] = []  # left, right, height
    for x, y, line, name, end in sorted(zip(*points.T, lines, names, ends), key=lambda label: label[1]):
        left, right, height = x, x + _WIDTH * len(name), y
        for other_left, other_right, other in sorted(placed, key=lambda label: label[2]):
            if left < other_right and other_left < right and abs(height - other) < _HEIGHT:
                height = other + _HEIGHT
        placed.append((left, right, height))
        axes.annotate(
            name,
            end,
            (5, height - y),
            textcoords="offset points",
            va="center",
            color=line.get_color(),
            bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1},  # above other lines
            annotation_clip=False,
        )
