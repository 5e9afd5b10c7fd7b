"""The bookkeeping of Algorithm 1: which client trains from which version, the buffered updates, and their delays.

The ledger sees neither tensors nor clocks. The planner drives it with virtual time, a deployment with real arrivals,
and both get the same jobs.
"""

import math
from collections.abc import Sequence
from copy import copy
from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple, get_args

from fadas.rng import CHOICE, mix
from fadas.validate import at_least, one_of, whole_number

_MOST = 100_000_000  # clients
Refill = Literal["arrival", "update", "round", "released"]
Excess = Literal["wait", "replace"]


@dataclass(frozen=True, slots=True)
class Schedule:
    """Who trains when: `concurrency` clients at a time, and a server step after every `buffer` updates.

    | `refill`   | A freed slot goes to the next idle client | That client trains from |
    |------------|-------------------------------------------|-------------------------|
    | "arrival"  | before the step is checked (Algorithm 1)  | x_t                     |
    | "update"   | after the step                            | x_{t+1} after a step    |
    | "round"    | after each step, all slots together       | x_{t+1}                 |
    | "released" | as "round" (the authors' released code)   | x_t, except the last    |

    With "released", tau and delta count from x_{t+1}: the server subtracts its last step from the clients' updates.

    Args:
        concurrency: M_c, the number of clients that train at the same time.
        buffer: M, the number of updates per server step.
        refill: When a freed slot goes to the next idle client.
        per_client: The largest number of one client's updates in a step. 0: any number. None: any number, but 1 in a
            deployment with a robust combine rule.
        excess: What happens to an update above `per_client`. "wait": it waits for the next step, and its client gets
            no job until then. "replace": it takes the place of the client's oldest update in the buffer.

    Example:
        >>> Schedule(concurrency=25, buffer=5)
        >>> Schedule(concurrency=8, buffer=4, per_client=1)
    """

    concurrency: int
    buffer: int
    refill: Refill = "arrival"
    per_client: int | None = None
    excess: Excess = "wait"

    def __post_init__(self) -> None:
        whole_number(concurrency=self.concurrency, buffer=self.buffer)
        at_least(0, per_client=self.per_client)
        one_of(get_args(Excess), excess=self.excess)
        if self.concurrency < 1 or self.buffer < 1:
            raise ValueError(f"concurrency and buffer must be at least 1, got {self.concurrency} and {self.buffer}")
        one_of(get_args(Refill), refill=self.refill)
        if self.refills_together and self.buffer > self.concurrency:
            raise ValueError(
                f"buffer ({self.buffer}) exceeds concurrency ({self.concurrency}): a synchronous round could never end"
            )

    @property
    def refills_together(self) -> bool:
        """Whether slots are refilled only after a step, all of them together."""
        return self.refill in ("round", "released")

    @property
    def patience(self) -> int:
        """The number of consecutive failed jobs after which a run ends."""
        return 100 + 20 * self.concurrency

    @property
    def clients_per_step(self) -> int:
        """The smallest number of clients that can fill the buffer."""
        return math.ceil(self.buffer / self.per_client) if self.per_client else 0

    def can_step(self, clients: int) -> bool:
        """Return whether this many clients can fill the buffer."""
        return clients >= self.clients_per_step

    def as_table(self) -> dict[str, Any]:
        """Return the settings as config.toml holds them. `excess` matters only with a limit per client."""
        table = asdict(self)
        return table if self.per_client else {k: v for k, v in table.items() if k not in ("per_client", "excess")}


class Job(NamedTuple):
    """One piece of work: a client trains from a version of the model, and reports an update.

    With `refill = "released"`, it may train from the version before.

    Attributes:
        id: The job's number, from 0 in the order of assignment. It seeds the job's randomness.
        client: The client's number.
        version: The server version that tau counts from.

    Example:
        >>> Job(id=0, client=3, version=0)
    """

    id: int
    client: int
    version: int


@dataclass(frozen=True, slots=True)
class Step:
    """One server step: its number, and the jobs whose updates it takes.

    Args:
        index: t, from 0.
        jobs: The M jobs, in the order of their arrival.
        seed: The run's seed, for random draws in a step.

    Example:
        >>> Step(index=3, jobs=(Job(7, 2, 1), Job(9, 0, 3))).delays
        [2, 0]
    """

    index: int
    jobs: tuple[Job, ...]
    seed: int = 0

    @property
    def delays(self) -> list[int]:
        """tau of each job: how many versions behind x_t it started."""
        return [self.index - job.version for job in self.jobs]


class Ledger:
    """The bookkeeping of Algorithm 1: which client trains from which version, and which updates make a step.

    Args:
        schedule: M_c, M and the refill rule.
        clients: The number of clients.
        seed: The run's seed. It decides which clients are chosen.
        open: Clients may `join` and `leave`, and there may be fewer of them than slots.

    Example:
        >>> ledger = Ledger(Schedule(concurrency=2, buffer=1), clients=5)
        >>> first, second = ledger.start()
        >>> jobs, step = ledger.arrive(first)
    """

    def __init__(self, schedule: Schedule, clients: int, seed: int = 0, open: bool = False) -> None:
        whole_number(clients=clients, seed=seed)
        if schedule.concurrency > clients and not open:
            raise ValueError(f"concurrency ({schedule.concurrency}) exceeds the number of clients ({clients})")
        if not open and not schedule.can_step(clients):
            raise ValueError(
                f"{clients} clients with per_client = {schedule.per_client} never fill a buffer of {schedule.buffer}"
            )
        if clients > _MOST:
            raise ValueError(f"a ledger holds at most {_MOST:,} clients, got {clients:,}")
        self.schedule = schedule
        self.clients = clients
        self.seed = int(seed)  # a NumPy integer would overflow in `mix`
        self.version = 0
        self.running: dict[int, Job] = {}
        self.buffer: list[Job] = []
        self.waiting: list[Job] = []  # above the limit per client: for the next step, at most one of each client
        self._idle = list(range(clients))  # in no particular order: choosing a client swaps it to the end
        self._next_id = 0
        self._vacant = 0  # slots without a client, because none was idle
        self._gone: set[int] = set()  # clients that left while they had a job

    def resume(self, version: int, buffer: list[Job], next_id: int, waiting: Sequence[Job] = ()) -> list[Job]:
        """Continue an interrupted deployment. Return the jobs to start now: nothing is running, so all slots are free.

        Args:
            version: The number of server steps so far.
            buffer: The jobs whose updates are in the buffer.
            next_id: The number of the next job.
            waiting: The jobs whose updates wait for the next step.
        """
        self.version, self.buffer, self.waiting, self._next_id = version, list(buffer), list(waiting), next_id
        self._gone.update(job.client for job in waiting)  # until they join again
        used = len(buffer) + len(waiting) if self.schedule.refills_together else 0
        return self._dispatch(self.schedule.concurrency - used)

    @property
    def next_id(self) -> int:
        """The number of the next job."""
        return self._next_id

    def join(self, client: int) -> list[Job]:
        """Admit a client, or an earlier one again. Return the jobs that fill vacant slots.

        Args:
            client: The client's number. A new client has the next free number.
        """
        self.clients = max(self.clients, client + 1)
        if client in self._gone:  # it still has a job
            self._gone.discard(client)
            return []
        self._idle.append(client)
        return self._fill()

    def leave(self, client: int) -> None:
        """Give a client no more jobs. A job that it has stays open until it is reported or dropped."""
        if client in self._idle:
            self._idle.remove(client)
        else:
            self._gone.add(client)

    @property
    def members(self) -> int:
        """The number of clients that take part."""
        return len(self._idle) + len(self.running) + len(self.waiting) - len(self._gone)

    def is_member(self, client: int) -> bool:
        """Return whether a client takes part, that is, has not left."""
        busy = any(job.client == client for job in (*self.running.values(), *self.waiting))
        return client in self._idle or (busy and client not in self._gone)

    def copy(self) -> "Ledger":
        """Return an independent copy."""
        other = copy(self)
        other.running, other._idle, other._gone = dict(self.running), list(self._idle), set(self._gone)
        other.buffer, other.waiting = list(self.buffer), list(self.waiting)
        return other

    def start(self) -> list[Job]:
        """Return the first jobs: M_c clients train from the initial model (line 1 of Algorithm 1)."""
        if self._next_id:
            raise ValueError("this ledger has already started")
        return self._dispatch(self.schedule.concurrency)

    def closing_step(self, job: Job) -> Step | None:
        """Return the step that this job's update would complete. Nothing changes."""
        if len(self.buffer) + 1 < self.schedule.buffer or self._is_excess(job):
            return None
        return Step(self.version, (*self.buffer, job), self.seed)

    def replaced_by(self, job: Job) -> Job | None:
        """Return the buffered job whose update this job's update would replace. Nothing changes."""
        if self.schedule.excess != "replace" or not self._is_excess(job):
            return None
        return next(other for other in self.buffer if other.client == job.client)

    def arrive(self, job: Job) -> tuple[list[Job], Step | None]:
        """Take a job's update (lines 3 to 8 of Algorithm 1).

        Args:
            job: The job, which must be running.

        Returns:
            The jobs to start now, and the server step if the buffer is full.

        Raises:
            ValueError: The job is not running.
        """
        schedule = self.schedule
        if schedule.per_client and self._is_excess(job):
            return self._arrive_in_excess(job), None
        self._free(job)
        self.buffer.append(job)
        refill, step = schedule.refill, None
        jobs = self._dispatch(1) if refill == "arrival" else []
        if len(self.buffer) == schedule.buffer:
            step = Step(self.version, tuple(self.buffer), self.seed)
            self.version += 1
            self.buffer, self.waiting = self.waiting, []
            for waited in self.buffer:
                self._make_idle(waited.client)
        if refill == "update":
            jobs = self._dispatch(1)
        elif self.schedule.refills_together:
            self._vacant += schedule.buffer if step else 0
            jobs = self._fill()  # also within a round: with too few clients, those that have reported train again
            jobs = jobs or self._lend()
        if step and schedule.per_client:
            jobs = [*jobs, *self._fill()]  # clients that waited may fill vacant slots
        return jobs, step

    def retract(self, job: Job) -> list[Job]:
        """Take a job's update out of the buffer. Return the jobs to start now.

        An update of the same client that waits takes its place.
        """
        self.buffer.remove(job)
        jobs = self._dispatch(1) if self.schedule.refills_together else []  # else its slot was refilled when it arrived
        if waited := next((other for other in self.waiting if other.client == job.client), None):
            self.waiting.remove(waited)
            self.buffer.append(waited)
            self._make_idle(waited.client)
        return [*jobs, *self._fill()]

    def drop(self, job: Job) -> list[Job]:
        """End a job without an update. Its slot is refilled at once under every rule, so that a round can end."""
        self._free(job)
        return self._dispatch(1)

    def _is_excess(self, job: Job) -> bool:
        """Return whether the buffer holds as many updates of the job's client as a step may."""
        limit = self.schedule.per_client
        return bool(limit) and sum(other.client == job.client for other in self.buffer) >= limit

    def _arrive_in_excess(self, job: Job) -> list[Job]:
        if replaced := self.replaced_by(job):
            self._free(job)
            self.buffer.remove(replaced)
            self.buffer.append(job)
            return self._dispatch(1)
        self._end(job)  # its client stays busy until the update moves to the buffer
        self.waiting.append(job)
        if not self.schedule.refills_together:
            return self._dispatch(1)
        return self._fill() or self._lend()

    def _lend(self) -> list[Job]:
        """Start a job beyond M_c's slots if nothing else could end the round, because updates wait for the next one."""
        if self.running or not self.waiting:
            return []
        jobs = self._dispatch(1)
        self._vacant -= len(jobs)  # the next round has a slot less
        return jobs

    def _free(self, job: Job) -> None:
        self._end(job)
        self._make_idle(job.client)

    def _end(self, job: Job) -> None:
        if self.running.get(job.id) != job:
            raise ValueError(f"job {job.id} of client {job.client} is not running")
        del self.running[job.id]

    def _make_idle(self, client: int) -> None:
        if client in self._gone:
            self._gone.discard(client)
        else:
            self._idle.append(client)

    def _dispatch(self, count: int) -> list[Job]:
        filled = min(count, len(self._idle))
        self._vacant += count - filled
        return [self._next_job() for _ in range(filled)]

    def _fill(self) -> list[Job]:
        vacant = max(0, self._vacant)  # a slot that was lent to an earlier round is negative
        self._vacant -= vacant
        return self._dispatch(vacant)

    def _next_job(self) -> Job:
        """Choose an idle client uniformly, in O(1). The draw depends only on seed and job id: there is no RNG state."""
        idle = self._idle
        pick = mix(self.seed, CHOICE, self._next_id) * len(idle) >> 64
        idle[pick], idle[-1] = idle[-1], idle[pick]
        job = Job(self._next_id, idle.pop(), self.version)
        self.running[job.id] = job
        self._next_id += 1
        return job
