"""TensorBoard: event files in the run's folder."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fadas.runs.folder import SUMMARY
from fadas.runs.serialization import read_text, to_toml
from fadas.runs.sinks.base import Tracker, require_package
from fadas.runs.summary import Summary


class TensorBoard(Tracker):
    """Writes settings, losses, metrics, step sizes, delays and figures as TensorBoard events into the run's folder.

    `run.tensorboard = true` is a short form.

    Args:
        figures: Add the report's figures of the run when it ends.

    Example:
        >>> writer = Writer(claim, sinks=[TensorBoard(figures=False)])
    """

    name = "tensorboard"

    def __init__(self, figures: bool = True) -> None:
        require_package("tensorboard", self.name)
        self.figures = figures

    def begin(self, folder: Path, settings: Mapping[str, Any], run: str | None, step: int) -> str:
        """Open an event file in the run's folder. It replaces steps after the last one that was noted."""
        from torch.utils.tensorboard import SummaryWriter

        self._folder = folder
        _let_second_pass(folder)
        self._writer: Any = SummaryWriter(str(folder), purge_step=step + 1)
        if run is None:
            self._writer.add_text("config", _as_code(to_toml(settings)))
        return folder.name

    def send(self, rows: Sequence[tuple[int, dict[str, float]]]) -> None:
        """Write scalars."""
        for step, values in rows:
            for name, value in values.items():
                self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def send_figures(self, paths: Sequence[Path], step: int) -> None:
        """Write the figures as images."""
        from matplotlib.image import imread

        for path in paths:
            pixels: Any = imread(path)[..., :3]  # without transparency
            self._writer.add_image(f"figures/{path.stem}", pixels, step, dataformats="HWC")

    def end(self, summary: Summary | None) -> None:
        """Write the summary, and close the event file."""
        if summary is not None:
            self._writer.add_text("summary", _as_code(read_text(self._folder / SUMMARY)))
        self._writer.close()


def _let_second_pass(folder: Path) -> None:
    """Wait if the folder's newest event file was begun in this second.

    TensorBoard reads files in the order of their names, which hold the second. A resumed run's file must come last.
    """
    names = [path.name.split(".") for path in folder.glob("events.out.tfevents.*")]
    if str(int(time.time())) in [name[3] for name in names]:
        time.sleep(1)


def _as_code(text: str) -> str:
    """Return Markdown that shows a text as it is."""
    return "\n".join(f"    {line}" for line in text.splitlines())
