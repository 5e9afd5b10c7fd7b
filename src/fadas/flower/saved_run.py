"""What a deployment's checkpoint holds beside the server: checked before anything is restored from it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fadas.core.ledger import Job
from fadas.core.progress import Progress
from fadas.core.records import LATEST, Record
from fadas.core.saved_state import saved_count, saved_number
from fadas.runs.reader import read_record

COUNTERS = ("updates", "removed", "dropped", "expired")
_LARGEST = 2**62  # job ids and counters


@dataclass(frozen=True)
class SavedRun:
    """The values of a checkpoint that belong to the federation.

    Attributes:
        next_id: The number of the next job.
        nodes: The node of each client.
        absent: The clients that were away.
        buffer: The jobs whose updates were in the buffer.
        waiting: The jobs whose updates waited for the next step.
        sent: By job id: when the job was sent.
        ends: By job id: when its update arrived.
        now: Seconds since the run began.
        progress: The counters.
        key: The key of the jobs' seeds. None: the checkpoint is of an earlier version.
        unpublished: The record of a step that was saved, but not yet evaluated.
    """

    next_id: int
    nodes: list[int]
    absent: list[int]
    buffer: list[Job]
    waiting: list[Job]
    sent: dict[int, float]
    ends: dict[int, float]
    now: float
    progress: Progress
    key: bytes | None
    unpublished: Record | None

    @classmethod
    def parse(cls, values: Mapping[str, Any], buffer_size: int) -> "SavedRun":
        """Return the values of a checkpoint.

        Args:
            values: The checkpoint's values.
            buffer_size: M.

        Raises:
            ValueError: The values are impossible.
        """
        nodes = [_within(node, "a node", 2**64) for node in values["nodes"]]
        buffer, waiting = (
            [Job(*(saved_count(number, kind) for number in job)) for job, *_ in values.get(kind, [])]
            for kind in ("buffer", "waiting")
        )
        run = cls(
            next_id=_within(values["next_id"], "next_id"),
            nodes=nodes,
            absent=[_within(client, "absent", len(nodes)) for client in values.get("absent", [])],
            buffer=buffer,
            waiting=waiting,
            sent=_times(values["sent"], "sent"),
            ends=_times(values["ends"], "ends"),
            now=_time(values["now"], "now"),
            progress=Progress(**{name: _within(values.get(name, 0), name) for name in COUNTERS}),
            key=bytes.fromhex(values["key"]) if "key" in values else None,
            unpublished=read_record(values["unpublished"]) if values.get("unpublished") else None,
        )
        run._require_consistent(values["version"], buffer_size)
        return run

    def _require_consistent(self, version: int, buffer_size: int) -> None:
        jobs, progress = [*self.buffer, *self.waiting], self.progress
        accepted = progress.updates - progress.removed
        for possible, what in (
            (len(set(self.nodes)) == len(self.nodes), "a node is named twice"),
            (len(self.buffer) < buffer_size, f"the buffer holds {len(self.buffer)} updates, as many as a step"),
            (all(job.id < self.next_id for job in jobs), "next_id is the number of an earlier job"),
            (all(job.client < len(self.nodes) for job in jobs), "an update is of a client that does not exist"),
            (self.key is None or len(self.key) == 32, "the key must have 32 bytes"),
            (accepted == version * buffer_size + len(jobs), f"{accepted} updates do not make {version} steps"),
            (self.unpublished is None or self.unpublished.step == version, "the unpublished step is not the last one"),
        ):
            if not possible:
                raise ValueError(what)


def _within(value: Any, name: str, bound: int = _LARGEST) -> int:
    if saved_count(value, name) >= bound:
        raise ValueError(f"{name} must be below {bound}, got {value}")
    return value


def _time(value: Any, name: str) -> float:
    if saved_number(value, name) >= LATEST:
        raise ValueError(f"{name} is too late: {value}")
    return float(value)


def _times(table: Mapping[str, Any], name: str) -> dict[int, float]:
    return {int(id): _time(value, name) for id, value in table.items()}
