"""Follow a simulation or deployment while it runs, by reading the files that it writes."""

import math
import os
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from fadas.core.metrics import Metric, choose_metric
from fadas.core.records import Record
from fadas.errors import Damaged
from fadas.runs.folder import CONFIG, METRICS, SUMMARY, read_summary
from fadas.runs.reader import read_record, read_settings
from fadas.runs.serialization import require_file

_LIMITS = {"steps": "step", "updates": "updates", "time": "time"}  # key under [run] -> field of a record


class ClientActivity(NamedTuple):
    """The activity of a client so far.

    Attributes:
        updates: Its updates so far.
        seconds: The total length of its jobs.
        tau: The delay of its last update.
        end: When its last update arrived.
    """

    updates: int
    seconds: float
    tau: int
    end: float


class Follower:
    """Reads a run's folder as it grows.

    Attributes:
        outcome: "finished", "diverged" or "damaged"; empty while the run is going on.
        damage: What is wrong, if the run is damaged.
        last: The last record, if there is one.
        value: The last value of the metric, if it was measured.
        metric: The metric that the run is judged by. None: nothing was measured yet.
        clients: The activity of each client.
    """

    def __init__(self, folder: Path, name: str | None = None) -> None:
        self.folder, self.name, self.outcome, self.damage = folder, name or folder.name, "", ""
        self._reset(0)

    def _reset(self, made: int) -> None:
        self._made, self._offset, self._begin, self._first = made, 0, time.monotonic(), 0
        self._lines = 0
        self.config: dict[str, Any] = {}
        self.last: Record | None = None
        self.metric: Metric | None = None
        self.value: float | None = None
        self.clients: dict[int, ClientActivity] = {}

    def refresh(self) -> None:
        """Read new records. A damaged run is reread at the next call, because it may still be being copied."""
        try:
            self.outcome, self.damage = self._read_outcome(), ""
            self._read_new_lines()
        except (OSError, ValueError) as error:
            if isinstance(error, FileNotFoundError) or not (self.folder / METRICS).exists():
                return  # just removed or renamed: keep the last state
            self._reset(0)
            self.outcome, self.damage = "damaged", str(error)

    def _read_outcome(self) -> str:
        if not (self.folder / SUMMARY).exists():
            return ""
        return "diverged" if read_summary(self.folder).diverged else "finished"

    def _read_new_lines(self) -> None:
        """Read new complete lines. Read all lines again if the run was restarted, or resumed from an earlier step."""
        metrics = self.folder / METRICS
        require_file(metrics)
        with metrics.open("rb") as file:
            made = (self.folder / CONFIG).stat().st_mtime_ns
            if made != self._made or os.fstat(file.fileno()).st_size < self._offset:
                self._reset(made)
                self.config = read_settings(self.folder)
            file.seek(self._offset)
            text = file.read()
        complete = text[: text.rfind(b"\n") + 1]
        fresh = not self._offset
        self._offset += len(complete)
        try:
            for line in complete.splitlines():
                self._lines += 1
                self._add(read_record(line, self._lines, self.last))
        except ValueError as error:
            raise Damaged(f"{self.folder} is damaged: {METRICS}: {error}") from None
        if fresh and self.last:  # lines from before we looked say nothing about the speed
            self._begin, self._first = time.monotonic(), self.last.updates

    def _add(self, record: Record) -> None:
        if record.step:  # else it is that of the initial model
            self.last = record
        if record.metrics is not None:
            value = self._choose_metric(record.metrics).value(record.metrics)
            self.value = self.value if value is None else value
        for job in record.jobs:
            before = self.clients.get(job.client, ClientActivity(0, 0.0, 0, 0.0))
            seconds = before.seconds + job.end - job.start
            self.clients[job.client] = ClientActivity(before.updates + 1, seconds, job.tau, job.end)

    def _choose_metric(self, measured: Mapping[str, float]) -> Metric:
        """Return the metric that the run is judged by, which the first evaluation decides if the settings do not."""
        if self.metric is None:
            run = self.config.get("run", {})
            name, better, format = (run.get(key) for key in ("metric", "better", "format"))
            names = [one for one in measured if one != "loss"]
            self.metric = Metric(name, better, format) if name else choose_metric(names)
        return self.metric

    @property
    def progress(self) -> float:
        """The share of the run that is done, measured by the limit that is closest. 0 if no limit is known."""
        limits = self.config.get("run", {})
        shares = [
            getattr(self.last, field) / limits[limit]
            for limit, field in _LIMITS.items()
            if limits.get(limit) and self.last
        ]
        return 1.0 if self.outcome == "finished" else min(1.0, max(shares, default=0.0))

    @property
    def speed(self) -> float:
        """Client updates per second since this follower started."""
        seconds = time.monotonic() - self._begin
        return (self.last.updates - self._first) / seconds if self.last and seconds > 0.5 else 0.0

    @property
    def seconds_left(self) -> float | None:
        """The estimated time left at the current speed, in seconds. None if it cannot be estimated."""
        if not (self.last and self.progress and self.speed):
            return None
        left = (1 - self.progress) / self.progress * self.last.updates / self.speed
        return left if math.isfinite(left) else None

    @property
    def lost(self) -> Counter[str]:
        """Jobs lost so far, by reason."""
        if not self.last:
            return Counter()
        lost = Counter({"dropped": self.last.dropped, "expired": self.last.expired})
        lost.update(self.last.refused)  # late replies are refused as "expired" too
        return lost
