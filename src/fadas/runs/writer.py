"""Write a run's folder.

config.toml comes first, metrics.jsonl grows by one line per server step, and summary.json comes last. A folder without
summary.json holds an unfinished run.
"""

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from fadas.core.records import Record
from fadas.runs import lock
from fadas.runs.folder import CONFIG, METRICS, SUMMARY, Claim, is_checkpoint, remove_run
from fadas.runs.formats import FORMAT
from fadas.runs.reader import read_record
from fadas.runs.serialization import to_json, to_toml, write_text
from fadas.runs.sinks import Sink
from fadas.runs.summary import Summary

Mark = tuple[int, str]  # bytes of metrics.jsonl, and their checksum
_BLOCK = 1 << 20  # bytes that are read at once


class Writer:
    """Writes the folder of one run. Each line is flushed.

    Args:
        claim: The right to write the folder. The writer releases it when it is closed.
        kept: How many bytes of an interrupted run's metrics.jsonl to keep. None: replace any run in the folder.
        sinks: Additional outputs for the records.
    """

    def __init__(self, claim: Claim, kept: int | None = None, sinks: Sequence[Sink] = ()) -> None:
        self.folder, self._claim, self._sinks = claim.folder, claim, sinks
        if kept is None:
            remove_run(self.folder)
            self.write_config(claim.tables)
        self._metrics = (self.folder / METRICS).open("r+b" if kept else "wb")
        self._digest = _digest(self._metrics, kept or 0)
        self._metrics.truncate(kept or 0)
        self._metrics.seek(0, os.SEEK_END)
        for sink in sinks:
            sink.open(self.folder, claim.tables)

    def write_config(self, tables: Mapping[str, Any]) -> None:
        """Write the run's settings."""
        write_text(self.folder / CONFIG, to_toml({"format": FORMAT, **tables}))

    def append(self, record: Record) -> None:
        """Write the record of a server step."""
        self._append_line(record)
        for sink in self._sinks:
            sink.record(record)

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
        self._append_line(record)

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

    def finish(self, summary: Summary) -> None:
        """End the run: write its summary, remove its checkpoints, release the folder."""
        lock.require_held(self.folder)
        self._metrics.close()
        self.write_summary(summary)
        for path in self.folder.iterdir():
            if is_checkpoint(path.name):
                path.unlink()
        self.close(summary)

    def close(self, summary: Summary | None = None) -> None:
        """Release the folder. Without a summary, the run can be resumed."""
        for sink in self._sinks:
            sink.close(summary)
        self._sinks = ()
        self._claim.release()
        self._metrics.close()


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


def written_records(folder: Path) -> Iterator[Record]:
    """Yield the records in a folder's metrics.jsonl one by one. A long run's records would fill the memory."""
    with (folder / METRICS).open("rb") as file:
        for number, line in enumerate(file, 1):
            yield read_record(line, number)


def _digest(file: IO[bytes], length: int) -> Any:
    """Return the checksum of the next `length` bytes of a file, as an object that takes more of them."""
    digest = hashlib.sha256()
    while length and (block := file.read(min(length, _BLOCK))):
        digest.update(block)
        length -= len(block)
    return digest
