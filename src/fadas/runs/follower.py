"""A live view of runs, simulated or deployed, from their folders: whoever trains them writes, this only reads."""

import json
import os
import time
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import RenderableType
from rich.markup import escape
from rich.progress_bar import ProgressBar

from fadas.runs.reader import DAMAGE


class Heard(NamedTuple):
    """What is known of a client."""

    updates: int
    seconds: float  # of all its jobs
    tau: int  # of the last one
    end: float


class Follower:
    """A run's folder, read as it grows. `outcome` is finished, diverged or damaged; empty while the run goes on."""

    def __init__(self, folder: Path, name: str | None = None) -> None:
        self.folder, self.name, self.outcome = folder, name or folder.name, ""
        self._forget(0)
        self.row = self._row()

    def _forget(self, made: int) -> None:
        self._made, self._offset, self._begin, self._first = made, 0, time.monotonic(), 0
        self.config: dict[str, Any] = {}
        self.last: dict[str, Any] = {}
        self.accuracy: float | None = None
        self.clients: dict[int, Heard] = {}

    def read(self) -> None:
        """See how the run stands. A damaged one is read from its beginning the next time: it may be copied just now."""
        try:
            self.outcome = self._ended()
            self._follow()
            self.row = self._row()
        except FileNotFoundError:  # removed or renamed at this very moment: what was known stands
            pass
        except (*DAMAGE, OSError):  # by whatever its files hold; the other runs are none the worse for it
            self._forget(0)
            self.outcome = "damaged"
            self.row = self._row()

    def _ended(self) -> str:
        try:
            summary = json.loads((self.folder / "summary.json").read_text(encoding="utf-8"))
        except FileNotFoundError:
            return ""
        return "diverged" if summary.get("diverged") else "finished"

    def _follow(self) -> None:
        """Take the whole lines that are new; all of them where the run was begun anew, or has lost some by a resume."""
        settings = self.folder / "config.toml"
        with (self.folder / "metrics.jsonl").open("rb") as file:
            made = settings.stat().st_mtime_ns
            if made != self._made or os.fstat(file.fileno()).st_size < self._offset:
                self._forget(made)
                self.config = tomllib.loads(settings.read_text(encoding="utf-8"))
            file.seek(self._offset)
            text = file.read()
        whole = text[: text.rfind(b"\n") + 1]
        fresh = not self._offset
        self._offset += len(whole)
        for line in whole.splitlines():
            self.last = json.loads(line)
            self.accuracy = (self.last["metrics"] or {}).get("accuracy", self.accuracy)
            for job in self.last["jobs"]:
                before = self.clients.get(job["client"], Heard(0, 0.0, 0, 0.0))
                seconds = before.seconds + job["end"] - job["start"]
                self.clients[job["client"]] = Heard(before.updates + 1, seconds, int(job["tau"]), job["end"])
        if fresh and self.last:  # what was there before we looked says nothing about the speed
            self._begin, self._first = time.monotonic(), self.last["updates"]

    @property
    def progress(self) -> float:
        """From 0 to 1, by the first limit that will be reached; 0 where none is known."""
        limits = self.config.get("run", {})
        keys = {"steps": "step", "updates": "updates", "time": "time"}
        shares = [self.last[key] / limits[limit] for limit, key in keys.items() if limits.get(limit) and self.last]
        return 1.0 if self.outcome == "finished" else min(1.0, max(shares, default=0.0))

    @property
    def speed(self) -> float:
        """Client updates per second since we have been looking."""
        seconds = time.monotonic() - self._begin
        return (self.last["updates"] - self._first) / seconds if self.last and seconds > 0.5 else 0.0

    def _row(self) -> list[RenderableType]:
        if not self.last:
            state = self.outcome or "waiting for the first step"
            return [escape(self.name), ProgressBar(1.0, 0.0, 20), state, *[""] * 5]
        last, outcome = self.last, self.outcome
        lost = Counter({"dropped": last["dropped"], "expired": last["expired"]})
        lost.update(last["refused"])  # which may be for the same reason: late replies are "expired" too
        left = (
            (1 - self.progress) / self.progress * last["updates"] / self.speed if self.progress and self.speed else None
        )
        return [
            escape(self.name),
            ProgressBar(1.0, self.progress, 20),
            f"{last['step']:,}",
            f"{last['updates']:,}" + (f" ({self.speed:,.1f}/s)" if self.speed and not outcome else ""),
            "" if self.accuracy is None else f"{self.accuracy:.1%}",
            f"{max(int(job['tau']) for job in last['jobs'])}",
            escape(", ".join(f"{reason} {count}" for reason, count in lost.items() if count)) or "none",
            outcome or ("" if left is None else f"{int(left) // 60}:{int(left) % 60:02d}"),
        ]
