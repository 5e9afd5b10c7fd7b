"""What trackers hold, read back from the files that they wrote."""

import json
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_BLOCK, _FIRST, _FULL, _LAST = 1 << 15, 7, 1, 4  # the file is a LevelDB log with a header of seven bytes


def read_events(folder: Path) -> Any:
    """The events that TensorBoard finds in a run's folder."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder))
    events.Reload()
    return events


def read_scalars(folder: Path, name: str) -> dict[int, list[float]]:
    """The values of one of TensorBoard's curves, by step."""
    found: dict[int, list[float]] = {}
    for event in read_events(folder).Scalars(name):
        found.setdefault(event.step, []).append(event.value)
    return found


class OfflineRun:
    """A W&B run that was written offline: all its files, in the order in which they were begun.

    Attributes:
        files: How many files there are: one for each time that the run was begun or resumed.
        run: Its description.
        config: Its settings.
        history: The values of each step, in the order of writing. A step may be there several times.
        summary: The last values of its summary.
        artifacts: The files of each artifact, by its type.
        exits: The exit codes.
    """

    def __init__(self, folder: Path, run: str, killed=0) -> None:
        deadline = time.monotonic() + 20
        while True:  # W&B's own process writes the last lines a moment after the run is finished
            self._read(sorted(folder.glob(f"wandb/offline-run-*-{run}*/*.wandb"), key=lambda path: path.parent.name))
            if len(self.exits) + killed >= self.files or time.monotonic() > deadline:
                break
            time.sleep(0.05)

    def _read(self, paths: list[Path]) -> None:
        self.history: list[tuple[int, dict[str, Any]]] = []
        self.config: dict[str, Any] = {}
        self.summary: dict[str, Any] = {}
        self.artifacts: dict[str, list[str]] = {}
        self.exits: list[int] = []
        self.files = len(paths)
        for path in paths:
            for data in _read_log(path.read_bytes()):
                self._take(data)

    def _take(self, data: bytes) -> None:
        from wandb.proto import wandb_internal_pb2

        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        if record.HasField("run"):
            self.run = record.run
            self.config |= {item.key: json.loads(item.value_json) for item in record.run.config.update}
        elif record.HasField("history"):
            items = {item.key or "/".join(item.nested_key): item for item in record.history.item}
            values = {key: json.loads(item.value_json) for key, item in items.items()}
            self.history.append((record.history.step.num, values))
        elif record.HasField("summary"):
            items = {item.key or "/".join(item.nested_key): item for item in record.summary.update}
            self.summary |= {key: json.loads(item.value_json) for key, item in items.items()}
        elif record.HasField("artifact"):
            paths = [entry.path for entry in record.artifact.manifest.contents]
            self.artifacts[record.artifact.type] = paths
        elif record.HasField("request") and record.request.HasField("log_artifact"):
            artifact = record.request.log_artifact.artifact
            self.artifacts[artifact.type] = [entry.path for entry in artifact.manifest.contents]
        elif record.HasField("exit"):
            self.exits.append(record.exit.exit_code)

    def curve(self, name: str) -> dict[int, list[Any]]:
        """The values of one name, by step."""
        found: dict[int, list[Any]] = {}
        for step, values in self.history:
            if name in values:
                found.setdefault(step, []).append(values[name])
        return found


def _read_log(data: bytes) -> Iterator[bytes]:
    place, parts = _FIRST, b""
    while place + 7 <= len(data):
        if _BLOCK - place % _BLOCK < 7:  # too little is left of this block for a header
            place += _BLOCK - place % _BLOCK
            continue
        _, length, kind = struct.unpack_from("<IHB", data, place)
        if place + 7 + length > len(data):
            return  # being written
        parts += data[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (_FULL, _LAST):
            yield parts
            parts = b""
