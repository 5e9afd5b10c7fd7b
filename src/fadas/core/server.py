"""The server: Algorithm 1 on one screen. The simulator and a deployment drive this same object.

The ledger does the bookkeeping, the algorithm the arithmetic; the server holds x_t and lets the two meet.
Line numbers are those of Algorithm 1 in the paper.
"""

from collections import Counter
from dataclasses import replace
from typing import NamedTuple

from fadas.algorithms.algorithm import Algorithm
from fadas.algorithms.privacy import Private, Spending
from fadas.core.ledger import Job, Ledger, Step
from fadas.core.model import Model, ServerState, Update
from fadas.core.update_checks import Checks, all_finite
from fadas.errors import Diverged

_REMEMBERED = 100_000  # jobs that have ended, so that what is said of a late update is true


class Received(NamedTuple):
    """What came of an update: the jobs to start now; the step if it filled the buffer; why it was refused if it was."""

    jobs: list[Job]
    step: Step | None
    refused: str | None = None


class Server:
    def __init__(self, algorithm: Algorithm, ledger: Ledger, model: Model, checks: Checks | None = None) -> None:
        self.algorithm = algorithm
        self.ledger = ledger
        self.checks = checks or Checks()
        self.state = ServerState(0, model)
        self.base: dict[int, Model] = {}  # by job id: the model that a running job started from
        self.delta_base: dict[int, Model] = {}  # by job id, where it is another: the model that its delta is taken against
        self.buffer: list[Update] = []
        self.refused: Counter[str] = Counter()
        self.spending = Spending(algorithm.combine) if isinstance(algorithm.combine, Private) else None
        self._ended: dict[int, str] = {}

    @property
    def model(self) -> Model:
        """x_t, the current global model."""
        return self.state.model

    @property
    def privacy(self) -> dict[str, float] | None:
        """The differential privacy spent so far, where it is used."""
        return self.spending.spent if self.spending else None

    def start(self) -> list[Job]:
        """Line 1: M_c clients begin to train from the initial model."""
        return self._assign(self.ledger.start())

    def receive(self, update: Update) -> Received:
        """Lines 3 to 17: take a client's update; or refuse it, which changes nothing but a counter and frees its slot.

        A returned job trains from `server.base[job.id]`: x_t when its slot was refilled before the step (or as if
        it had been), else x_{t+1}. A step to what is not finite raises `Diverged`.
        """
        if self.ledger.running.get(update.job.id) != update.job:
            return self._refuse(self._ended.get(update.job.id, "unknown job"), [])
        update, problem = self.checks(update, self.model)
        if problem:
            return self._refuse(problem, self.drop(update.job, problem))
        if (after := self.delta_base.get(update.job.id)) is not None:
            shift = update.base - after.params
            update = replace(update, delta=update.delta + shift, base=after.params)
        x = self.model  # x_t
        jobs, step = self.ledger.arrive(update.job)  # lines 4 to 6: m <- m + 1, sample another client
        self.buffer.append(update)
        self._end(update.job, "already reported")
        if step:  # line 8: m = M
            before = self.state
            self.state = self.algorithm.apply(before, step, self.buffer, self.ledger.clients)  # lines 9 to 16
            self.buffer = []  # line 17
            if problem := _problem(before, self.state):
                raise Diverged(f"step {step.index + 1} gave {problem} that is not finite")
            if self.spending:
                self.spending.add(job.client for job in step.jobs)
        return Received(self._assign(jobs, x), step)

    def none_accepted(self, last: int) -> str:
        """What there is to say where the last so many updates were all refused."""
        reasons = ", ".join(f"{reason}: {count}" for reason, count in self.refused.items())
        return f"none of the last {last} updates was accepted (refused so far: {reasons})"

    def drop(self, job: Job, reason: str = "dropped") -> list[Job]:
        """A job ended without an update: its slot goes to another client."""
        jobs = self.ledger.drop(job)
        self._end(job, reason)
        return self._assign(jobs)

    def join(self, client: int) -> list[Job]:
        """A client has come, in a deployment: the jobs to start now."""
        return self._assign(self.ledger.join(client))

    def _end(self, job: Job, reason: str) -> None:
        """Forget a job; an update that still comes for it will be refused for this reason."""
        self.base.pop(job.id, None)
        self.delta_base.pop(job.id, None)
        self._ended[job.id] = reason
        if len(self._ended) > _REMEMBERED:
            del self._ended[next(iter(self._ended))]

    def _refuse(self, reason: str, jobs: list[Job]) -> Received:
        self.refused[reason] += 1
        return Received(jobs, None, reason)

    def _assign(self, jobs: list[Job], before: Model | None = None) -> list[Job]:
        """Remember what each job starts from, and what its delta is taken against where that is another version.

        A version is freed when the last job that needs it ends.
        """
        released = self.ledger.schedule.refill == "released" and before is not None and before is not self.model
        for job in jobs:
            late = released and job != jobs[-1]
            self.base[job.id] = before if before and (late or job.version < self.state.version) else self.model
            if late:
                self.delta_base[job.id] = self.model
        return jobs


def _problem(before: ServerState, now: ServerState) -> str | None:
    """What is not finite any more. An optimizer that remembers a huge update's square would stand still for ever."""
    if not (all_finite(now.model.params) and all_finite(now.model.buffers, before.model.buffers)):
        return "a model"
    sound = all(all_finite(now.slots[name]) for name in MOMENTS if name in now.slots)
    return None if sound else "an optimizer's memory"


MOMENTS = ("m", "v", "vhat")  # the slots of the optimizers here
