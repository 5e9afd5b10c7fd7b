"""A run's folder: config.toml, metrics.jsonl (one line per server step), model.safetensors, at the end summary.json.

summary.json is written last: a folder without it holds a run that did not finish. Reading needs no torch.
"""

import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fadas.errors import ConfigError
from fadas.runs import lock
from fadas.runs.folder import _empty, claim, is_checkpoint
from fadas.runs.run_reader import Line
from fadas.runs.serialization import dumps, to_json


class Writer:
    """Writes one run's folder, in place of an unfinished run or, with `overwrite`, of any. Lines are flushed.

    Until it is closed, no other process may write there.

    With `kept` (bytes of metrics.jsonl, as `mark` gave them) it goes on with an unfinished run after these lines;
    with `resume` and none kept, checkpoints that cannot be used are no reason to refuse.
    """

    def __init__(
        self,
        folder: Path,
        tables: Mapping[str, Any],
        overwrite: bool = False,
        kept: int | None = None,
        resume: bool = False,
    ) -> None:
        self.folder = folder
        resume = resume or kept is not None
        if claim(folder, tables, overwrite, resume):
            raise ConfigError(
                f"{folder} has been written meanwhile by another process; give the command again", "written"
            )
        if kept is None:
            _empty(folder)
            draft = folder / "config.toml.tmp"
            draft.write_text(dumps(tables), encoding="utf-8")
            os.replace(draft, folder / "config.toml")  # whole at any time: others look at it
        self._metrics = (folder / "metrics.jsonl").open("r+b" if kept else "wb")
        self._digest = hashlib.sha256(self._metrics.read(kept) if kept else b"")
        self._metrics.truncate(kept or 0)
        self._metrics.seek(0, os.SEEK_END)

    def append(self, line: Line) -> None:
        text = to_json(line).encode() + b"\n"
        self._digest.update(text)
        self._metrics.write(text)
        self._metrics.flush()

    def amend(self, line: Line) -> None:
        """Write the last line anew. There are no marks after that."""
        begin = (self.folder / "metrics.jsonl").read_bytes()[:-1].rfind(b"\n") + 1
        self._metrics.truncate(begin)
        self._metrics.seek(begin)
        self.append(line)

    def mark(self) -> tuple[int, str]:
        """How long metrics.jsonl is, all of it safely on disk, and its checksum: for `kept`."""
        self.check()
        os.fsync(self._metrics.fileno())
        return self._metrics.tell(), self._digest.hexdigest()

    def write_json(self, name: str, value: Line) -> None:
        draft = self.folder / f"{name}.tmp"
        with draft.open("w", encoding="utf-8") as file:
            file.write(to_json(value) + "\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, self.folder / name)

    def check(self) -> None:
        """An error where the folder is not the one that was begun: files of two runs must not meet there."""
        lock.check_held(self.folder)

    def finish(self, summary: Line) -> None:
        self.check()
        self._metrics.close()
        self.write_json("summary.json", summary)
        for path in self.folder.iterdir():
            if is_checkpoint(path.name):
                path.unlink()
        self.close()

    def close(self) -> None:
        lock.release(self.folder)
        self._metrics.close()


def valid_length(folder: Path, mark: Sequence[Any]) -> int:
    """How much of metrics.jsonl belongs to a `Writer.mark`; a ValueError if that is no more what it was."""
    length, digest = mark
    with (folder / "metrics.jsonl").open("rb") as file:
        if hashlib.sha256(file.read(length)).hexdigest() != digest:
            raise ValueError("metrics.jsonl does not hold what belongs to it")
    return length
