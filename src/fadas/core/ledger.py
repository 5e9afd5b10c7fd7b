"""The bookkeeping of Algorithm 1: who trains from which version, what waits in the buffer, how stale it is.

The ledger sees neither tensors nor clocks. The planner plays it against virtual time, a deployment plays it by real
arrivals, and both get the same jobs.
"""

from copy import copy
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

from fadas.rng import CHOICE, mix
from fadas.validate import whole_number

_MOST = 100_000_000  # clients
Refill = Literal["arrival", "update", "round", "released"]


@dataclass(frozen=True, slots=True)
class Schedule:
    """Keep `concurrency` (M_c) clients training and step after every `buffer` (M) updates.

    `refill` says when a freed slot goes to the next idle client: on `"arrival"`, before the step is checked, so that
    client trains from x_t (Algorithm 1); on `"update"`, at once but after the step, so the M-th arrival's successor
    trains from x_{t+1}; or per `"round"`, all slots together after each step. `"released"` is `"round"` as the
    paper's authors have it in the code they released: all but the last of these clients train from x_t, as if they had
    been chosen on arrival, but tau and delta count from x_{t+1}: their updates have the server's last step subtracted.
    """

    concurrency: int
    buffer: int
    refill: Refill = "arrival"

    def __post_init__(self) -> None:
        whole_number(concurrency=self.concurrency, buffer=self.buffer)
        if self.concurrency < 1 or self.buffer < 1:
            raise ValueError(f"concurrency and buffer must be at least 1, not {self.concurrency} and {self.buffer}")
        if self.refill not in get_args(Refill):
            raise ValueError(f"refill must be one of {', '.join(get_args(Refill))}, not {self.refill!r}")
        if self.refills_together and self.buffer > self.concurrency:
            raise ValueError(
                f"buffer ({self.buffer}) exceeds concurrency ({self.concurrency}): a synchronous round could never end"
            )

    @property
    def refills_together(self) -> bool:
        return self.refill in ("round", "released")

    @property
    def patience(self) -> int:
        """So many jobs in a row may come to nothing before a run that goes nowhere is ended."""
        return 100 + 20 * self.concurrency


class Job(NamedTuple):
    """`client` trains from x_`version`; or, where `refill` is "released", from the one before."""

    id: int
    client: int
    version: int


@dataclass(frozen=True, slots=True)
class Step:
    """Server step t = `index`: the M jobs in the order of their arrival."""

    index: int
    jobs: tuple[Job, ...]
    seed: int = 0  # of the run, for whatever is drawn at random in a step

    @property
    def delays(self) -> list[int]:
        """tau of each job: how many versions behind x_t it started."""
        return [self.index - job.version for job in self.jobs]


class Ledger:
    """Algorithm 1 without the arithmetic."""

    def __init__(self, schedule: Schedule, clients: int, seed: int = 0, open: bool = False) -> None:
        """`open`: clients may `join` and `leave`, and there may be fewer of them than slots."""
        whole_number(clients=clients, seed=seed)
        if schedule.concurrency > clients and not open:
            raise ValueError(f"concurrency ({schedule.concurrency}) exceeds the number of clients ({clients})")
        if clients > _MOST:
            raise ValueError(f"{clients:,} clients are more than a ledger can hold ({_MOST:,})")
        self.schedule = schedule
        self.clients = clients
        self.seed = int(seed)  # NumPy's would overflow where random numbers are made of it
        self.version = 0
        self.running: dict[int, Job] = {}
        self.buffer: list[Job] = []
        self._idle = list(range(clients))  # in no particular order: choosing swaps the chosen one to the end
        self._next_id = 0
        self._vacant = 0  # slots that no idle client was there to fill
        self._gone: set[int] = set()  # clients that left while they had a job

    def resume(self, version: int, buffer: list[Job], next_id: int) -> list[Job]:
        """Go on in a deployment that was interrupted: nothing is running, so all slots are filled anew."""
        self.version, self.buffer, self._next_id = version, list(buffer), next_id
        return self._dispatch(self.schedule.concurrency - (len(buffer) if self.schedule.refills_together else 0))

    @property
    def next_id(self) -> int:
        return self._next_id

    def join(self, client: int) -> list[Job]:
        """Another client is there, or is there again: it may fill a slot that was vacant."""
        self.clients = max(self.clients, client + 1)
        if client in self._gone:  # it still has a job
            self._gone.discard(client)
            return []
        self._idle.append(client)
        return self._fill()

    def leave(self, client: int) -> None:
        """A client is gone: it gets no more jobs. One that it has goes on until it is reported or dropped."""
        if client in self._idle:
            self._idle.remove(client)
        else:
            self._gone.add(client)

    def copy(self) -> "Ledger":
        other = copy(self)
        other.running, other.buffer, other._idle = dict(self.running), list(self.buffer), list(self._idle)
        return other

    def start(self) -> list[Job]:
        """Line 1: M_c clients start from the initial model."""
        if self._next_id:
            raise ValueError("this ledger has started already")
        return self._dispatch(self.schedule.concurrency)

    def arrive(self, job: Job) -> tuple[list[Job], Step | None]:
        """An update has come (lines 3 to 8): the jobs to start now, and the step if it fills the buffer."""
        self._free(job)
        self.buffer.append(job)
        refill, step = self.schedule.refill, None
        jobs = self._dispatch(1) if refill == "arrival" else []
        if len(self.buffer) == self.schedule.buffer:
            step = Step(self.version, tuple(self.buffer), self.seed)
            self.version += 1
            self.buffer.clear()
        if refill == "update":
            jobs = self._dispatch(1)
        elif self.schedule.refills_together:
            self._vacant += self.schedule.buffer if step else 0
            jobs = self._fill()  # in mid-round too: with too few clients for it, those that have reported train again
        return jobs, step

    def drop(self, job: Job) -> list[Job]:
        """A job ends without an update. Its slot is refilled at once under every rule: a round must be able to end."""
        self._free(job)
        return self._dispatch(1)

    def _free(self, job: Job) -> None:
        if self.running.get(job.id) != job:
            raise ValueError(f"job {job.id} of client {job.client} is not running")
        del self.running[job.id]
        if job.client in self._gone:
            self._gone.discard(job.client)
        else:
            self._idle.append(job.client)

    def _dispatch(self, count: int) -> list[Job]:
        filled = min(count, len(self._idle))
        self._vacant += count - filled
        return [self._next_job() for _ in range(filled)]

    def _fill(self) -> list[Job]:
        vacant, self._vacant = self._vacant, 0
        return self._dispatch(vacant)

    def _next_job(self) -> Job:
        """A uniformly chosen idle client, in O(1). The draw is a function of the job's id: there is no RNG state."""
        idle = self._idle
        pick = mix(self.seed, CHOICE, self._next_id) * len(idle) >> 64
        idle[pick], idle[-1] = idle[-1], idle[pick]
        job = Job(self._next_id, idle.pop(), self.version)
        self.running[job.id] = job
        self._next_id += 1
        return job
