"""Write a run's folder.

config.toml comes first, metrics.jsonl grows by one line per server step, and summary.json comes last. A folder without
summary.json holds an unfinished run.
"""

import hashlib
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any

from fadas.core.records import Record
from fadas.errors import FadasWarning, first_line
from fadas.runs import lock
from fadas.runs.folder import CONFIG, METRICS, SUMMARY, Claim, is_checkpoint, remove_run
from fadas.runs.formats import FORMAT
from fadas.runs.serialization import to_json, to_toml, write_text
from fadas.runs.sinks import Guard, Sink
from fadas.runs.summary import Summary

DrawFigures = Callable[[Path, Path], None]  # writes the figures of the run in a folder to another folder
Mark = tuple[int, str]  # bytes of metrics.jsonl, and their checksum
_BLOCK = 1 << 20  # bytes that are read at once


class Writer:
    """Writes the folder of one run. Each line is flushed.

    Args:
        claim: The right to write the folder. The writer releases it when it is closed.
        kept: How many bytes of an interrupted run's metrics.jsonl to keep. None: replace any run in the folder.
        sinks: Additional outputs for the records. The run continues without a sink that fails.
        draw: Writes the figures of a run that has ended to a folder, for sinks that take figures. It is called with the
            run's folder and that folder. None: there are no figures.
    """

    def __init__(
        self,
        claim: Claim,
        kept: int | None = None,
        sinks: Sequence[Sink] = (),
        draw: DrawFigures | None = None,
    ) -> None:
        self.folder, self._claim, self._draw = claim.folder, claim, draw
        self._sinks, self._summary = [Guard(sink) for sink in sinks], None
        if kept is None:
            remove_run(self.folder)
            self.write_config(claim.tables)
        self._metrics = (self.folder / METRICS).open("r+b" if kept else "wb")
        self._digest = _digest(self._metrics, kept or 0)
        self._metrics.truncate(kept or 0)
        self._metrics.seek(0, os.SEEK_END)
        for sink in self._sinks:
            sink.call("open", self.folder, claim.tables)

    def write_config(self, tables: Mapping[str, Any]) -> None:
        """Write the run's settings."""
        write_text(self.folder / CONFIG, to_toml({"format": FORMAT, **tables}))

    def append(self, record: Record) -> None:
        """Write the record of a server step."""
        self._append_line(record)
        for sink in self._sinks:
            sink.call("record", record)

    def _append_line(self, record: Record) -> None:
        text = to_json(record.as_dict()).encode() + b"\n"
        self._digest.update(text)
        self._metrics.write(text)
        self._metrics.flush()

    def replace_last(self, record: Record) -> None:
        """Write the last record again. No marks can be taken after that."""
        begin = (self.folder / METRICS).read_bytes()[:-1].rfind(b"\n") + 1
        self._metrics.truncate(begin)
        self._metrics.seek(begin)
        self.append(record)

    def mark(self) -> Mark:
        """Return the length and checksum of metrics.jsonl, after flushing it to disk."""
        lock.require_held(self.folder)
        os.fsync(self._metrics.fileno())
        return self._metrics.tell(), self._digest.hexdigest()

    def write_json(self, name: str, table: Mapping[str, Any]) -> None:
        """Write a JSON file beside the metrics."""
        write_text(self.folder / name, to_json({"format": FORMAT, **table}) + "\n")

    def require_held(self) -> None:
        """Raise an error if the folder is no longer the one that was claimed."""
        lock.require_held(self.folder)

    def write_summary(self, summary: Summary) -> None:
        """Write summary.json: the run has ended."""
        lock.require_held(self.folder)
        self.write_json(SUMMARY, summary.as_dict())
        self._summary = summary

    def finish(self, summary: Summary) -> None:
        """End the run: write its summary, remove its checkpoints, release the folder."""
        lock.require_held(self.folder)
        self._metrics.close()
        self.write_summary(summary)
        for path in self.folder.iterdir():
            if is_checkpoint(path.name):
                path.unlink()
        self.close()

    def close(self) -> None:
        """Close the sinks, and release the folder. Without a summary, the run can be resumed."""
        sinks, self._sinks = self._sinks, []
        try:
            if self._summary and self._draw:
                self._send_figures([sink for sink in sinks if sink.takes_figures], self._draw)
            for sink in sinks:
                sink.call("close", self._summary)
        finally:
            self._claim.release()
            self._metrics.close()

    def _send_figures(self, sinks: Sequence[Guard], draw: DrawFigures) -> None:
        if not sinks:
            return
        with TemporaryDirectory(prefix="fadas-figures-") as folder:
            try:
                draw(self.folder, Path(folder))
            except Exception as error:  # the run has ended well, and its files are complete
                text = f"{self.folder}: no figures for the sinks: {type(error).__name__}: {first_line(error)}"
                warnings.warn(text, FadasWarning, stacklevel=2)
            paths = sorted(Path(folder).glob("*.png"))
            for sink in sinks if paths else ():
                sink.call("add_figures", paths)


def valid_length(folder: Path, mark: Sequence[Any]) -> int:
    """Return the length in bytes of the part of metrics.jsonl that belongs to a mark.

    Raises:
        ValueError: metrics.jsonl has been changed since.
    """
    length, digest = mark
    with (folder / METRICS).open("rb") as file:
        if _digest(file, length).hexdigest() != digest:
            raise ValueError("metrics.jsonl does not match this checkpoint")
    return length


def _digest(file: IO[bytes], length: int) -> Any:
    """Return the checksum of the next `length` bytes of a file, as an object that takes more of them."""
    digest = hashlib.sha256()
    while length and (block := file.read(min(length, _BLOCK))):
        digest.update(block)
        length -= len(block)
    return digest
