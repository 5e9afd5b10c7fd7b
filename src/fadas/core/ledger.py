"""The bookkeeping of Algorithm 1: which client trains from which version, the buffered updates, and their delays.

The ledger sees neither tensors nor clocks. The planner drives it with virtual time, a deployment with real arrivals,
and both get the same jobs.
"""

from copy import copy
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

from fadas.rng import CHOICE, mix
from fadas.validate import one_of, whole_number

_MOST = 100_000_000  # clients
Refill = Literal["arrival", "update", "round", "released"]


@dataclass(frozen=True, slots=True)
class Schedule:
    """Keep `concurrency` clients training, and take a server step after every `buffer` updates.

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

    Example:
        >>> Schedule(concurrency=25, buffer=5)
    """

    concurrency: int
    buffer: int
    refill: Refill = "arrival"

    def __post_init__(self) -> None:
        whole_number(concurrency=self.concurrency, buffer=self.buffer)
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


class Job(NamedTuple):
    """One training assignment: `client` trains from x_`version`. With `refill = "released"`, from the version before.

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
    """Server step t.

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
    """Algorithm 1 without the arithmetic.

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
        if clients > _MOST:
            raise ValueError(f"a ledger holds at most {_MOST:,} clients, got {clients:,}")
        self.schedule = schedule
        self.clients = clients
        self.seed = int(seed)  # a NumPy integer would overflow in `mix`
        self.version = 0
        self.running: dict[int, Job] = {}
        self.buffer: list[Job] = []
        self._idle = list(range(clients))  # in no particular order: choosing a client swaps it to the end
        self._next_id = 0
        self._vacant = 0  # slots without a client, because none was idle
        self._gone: set[int] = set()  # clients that left while they had a job

    def resume(self, version: int, buffer: list[Job], next_id: int) -> list[Job]:
        """Continue an interrupted deployment: nothing is running, so all slots are filled again."""
        self.version, self.buffer, self._next_id = version, list(buffer), next_id
        return self._dispatch(self.schedule.concurrency - (len(buffer) if self.schedule.refills_together else 0))

    @property
    def next_id(self) -> int:
        """The number of the next job."""
        return self._next_id

    def join(self, client: int) -> list[Job]:
        """Admit a client, or an earlier one again. Return the jobs that fill vacant slots."""
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

    def copy(self) -> "Ledger":
        """Return an independent copy."""
        other = copy(self)
        other.running, other.buffer, other._idle = dict(self.running), list(self.buffer), list(self._idle)
        return other

    def start(self) -> list[Job]:
        """Line 1: return the jobs of the M_c clients that start from the initial model."""
        if self._next_id:
            raise ValueError("this ledger has already started")
        return self._dispatch(self.schedule.concurrency)

    def arrive(self, job: Job) -> tuple[list[Job], Step | None]:
        """Lines 3 to 8: take a job's update. Return the jobs to start now, and the step if the buffer is full."""
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
            jobs = self._fill()  # also within a round: with too few clients, those that have reported train again
        return jobs, step

    def drop(self, job: Job) -> list[Job]:
        """End a job without an update. Its slot is refilled at once under every rule, so that a round can end."""
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
        """Choose an idle client uniformly, in O(1). The draw depends only on seed and job id: there is no RNG state."""
        idle = self._idle
        pick = mix(self.seed, CHOICE, self._next_id) * len(idle) >> 64
        idle[pick], idle[-1] = idle[-1], idle[pick]
        job = Job(self._next_id, idle.pop(), self.version)
        self.running[job.id] = job
        self._next_id += 1
        return job
