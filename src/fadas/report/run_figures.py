"""The figures of one run, for sinks. matplotlib is loaded when they are drawn."""

from pathlib import Path

from fadas.runs.reader import read_run


def save_run_figures(run: Path, folder: Path) -> None:
    """Write the figures of a run that has ended to a folder, as PNG files. A run that diverged has none.

    Args:
        run: The run's folder.
        folder: Where to write.
    """
    from fadas.report.figures import figures

    for drawn in figures([read_run(run)]):
        drawn.save(folder / f"{drawn.name}.png")
