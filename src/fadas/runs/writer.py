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

from fadas.core.records import ClientsRecord, Record
from fadas.errors import FadasWarning, first_line
from fadas.runs import lock
from fadas.runs.folder import CLIENTS, CONFIG, METRICS, SUMMARY, Claim, is_checkpoint, remove_run
from fadas.runs.formats import FORMAT
from fadas.runs.serialization import to_json, to_toml, write_text
from fadas.runs.sinks import Guard, Sink
from fadas.runs.summary import Summary

DrawFigures = Callable[[Path, Path], None]  # writes the figures of the run in a folder to another folder
Mark = tuple[int, str]  # bytes of a file of lines, and their checksum
NOTHING: Mark = (0, hashlib.sha256().hexdigest())  # the mark of a file without lines
_BLOCK = 1 << 20  # bytes that are read at once


class LineFile:
    """A file of JSON lines. Each line is flushed.

    Args:
        path: The file.
        kept: How many of its bytes to keep. What follows them is removed.
    """

    def __init__(self, path: Path, kept: int = 0) -> None:
        self._path = path
        self._file = path.open("r+b" if kept else "wb")
        self._digest = _digest(self._file, kept)
        self._file.truncate(kept)
        self._file.seek(0, os.SEEK_END)

    def append(self, table: Mapping[str, Any]) -> None:
        """Write a line."""
        text = to_json(table).encode() + b"\n"
        self._digest.update(text)
        self._file.write(text)
        self._file.flush()

    def remove_last(self) -> None:
        """Remove the last line. No marks can be taken after that."""
        begin = self._path.read_bytes()[:-1].rfind(b"\n") + 1
        self._file.truncate(begin)
        self._file.seek(begin)

    def mark(self) -> Mark:
        """Return the length and checksum of the file, after flushing it to disk."""
        os.fsync(self._file.fileno())
        return self._file.tell(), self._digest.hexdigest()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class Writer:
    """Writes the folder of one run. Each line is flushed.

    Args:
        claim: The right to write the folder. The writer releases it when it is closed.
        kept: How many bytes of an interrupted run's metrics.jsonl to keep. None: replace any run in the folder.
        sinks: Additional outputs for the records. The run continues without a sink that fails.
        draw: Writes the figures of a run that has ended to a folder, for sinks that take figures. It is called with the
            run's folder and that folder. None: there are no figures.
        kept_clients: How many bytes of its clients.jsonl to keep.
    """

    def __init__(
        self,
        claim: Claim,
        kept: int | None = None,
        sinks: Sequence[Sink] = (),
        draw: DrawFigures | None = None,
        kept_clients: int = 0,
    ) -> None:
        self.folder, self._claim, self._draw = claim.folder, claim, draw
        self._sinks, self._summary = [Guard(sink) for sink in sinks], None
        if kept is None:
            remove_run(self.folder)
            self.write_config(claim.tables)
        self._metrics = LineFile(self.folder / METRICS, kept or 0)
        self._clients = LineFile(self.folder / CLIENTS, kept_clients) if kept_clients else None
        if not kept_clients:
            (self.folder / CLIENTS).unlink(missing_ok=True)
        for sink in self._sinks:
            sink.call("open", self.folder, claim.tables)

    def write_config(self, tables: Mapping[str, Any]) -> None:
        """Write the run's settings."""
        write_text(self.folder / CONFIG, to_toml({"format": FORMAT, **tables}))

    def append(self, record: Record) -> None:
        """Write the record of a server step."""
        self._metrics.append(record.as_dict())
        for sink in self._sinks:
            sink.call("record", record)

    def append_clients(self, record: ClientsRecord) -> None:
        """Write an evaluation on the clients' own test data. The first one makes clients.jsonl."""
        self._clients = self._clients or LineFile(self.folder / CLIENTS)
        self._clients.append(record.as_dict())

    def replace_last(self, record: Record) -> None:
        """Write the last record again. No marks can be taken after that."""
        self._metrics.remove_last()
        self.append(record)

    def mark(self) -> Mark:
        """Return the length and checksum of metrics.jsonl, after flushing it to disk."""
        lock.require_held(self.folder)
        return self._metrics.mark()

    def mark_clients(self) -> Mark:
        """Return the length and checksum of clients.jsonl, after flushing it to disk."""
        return self._clients.mark() if self._clients else NOTHING

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
            if self._clients:
                self._clients.close()

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
    return _marked_length(folder / METRICS, mark)


def valid_clients_length(folder: Path, mark: Sequence[Any]) -> int:
    """Return the length in bytes of the part of clients.jsonl that belongs to a mark.

    Raises:
        ValueError: clients.jsonl has been changed since.
    """
    return _marked_length(folder / CLIENTS, mark)


def _marked_length(path: Path, mark: Sequence[Any]) -> int:
    """Return the length in bytes of the part of a file that belongs to a mark.

    Raises:
        ValueError: The file has been changed since.
    """
    length, digest = mark
    if not length and not path.exists():
        return 0
    with path.open("rb") as file:
        if _digest(file, length).hexdigest() != digest:
            raise ValueError(f"{path.name} does not match this checkpoint")
    return length


def _digest(file: IO[bytes], length: int) -> Any:
    """Return the checksum of the next `length` bytes of a file, as an object that takes more of them."""
    digest = hashlib.sha256()
    while length and (block := file.read(min(length, _BLOCK))):
        digest.update(block)
        length -= len(block)
    return digest
