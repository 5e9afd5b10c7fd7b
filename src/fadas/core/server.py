"""The server: Algorithm 1 on one screen. The simulator and a deployment drive this same object.

The ledger does the bookkeeping, the algorithm does the arithmetic. The server holds x_t and connects the two.
Line numbers are those of Algorithm 1 in the paper.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Protocol, Self

from fadas.core.ledger import Job, Ledger, Step
from fadas.core.model import Model, ServerState, ServerStep, Update
from fadas.core.update_checks import Checks, all_finite
from fadas.errors import Diverged

MOMENTS = ("m", "v", "vhat")  # slots that must stay finite
_REMEMBERED = 100_000  # how many ended jobs to remember, to say why a late update is refused


class Accountant(Protocol):
    """Counts the privacy loss (epsilon, delta) of the steps so far."""

    counts: Counter[int]

    @property
    def spent(self) -> dict[str, float]:
        """Epsilon and delta so far."""
        ...

    def add(self, clients: Iterable[int]) -> None:
        """Count one step of these clients' updates."""
        ...

    def admit(self, client: int, waiting: Iterable[int], size: int) -> None:
        """Charge a newcomer, which may be an earlier client under a new name."""
        ...


class UpdateRule(Protocol):
    """The methods that the server needs of an algorithm. `fadas.Algorithm` has them.

    Example:
        >>> server = Server(fadas.FADAS(), ledger, model)  # any object with these methods will do
    """

    def step_size(self, step: ServerStep, /) -> float:
        """Return eta_t, the size of a step."""
        ...

    def apply(self, state: ServerState, step: Step, updates: Sequence[Update], clients: int, eta: float) -> ServerState:
        """Return the state after a step. Write to no argument."""
        ...

    def accountant(self) -> Accountant | None:
        """Return a new accountant, if the algorithm is differentially private."""
        ...

    def rules(self) -> dict[str, Any]:
        """Return the rules of arithmetic that a checkpoint must keep, so that a resumed run computes as before."""
        ...

    def with_rules(self, rules: Mapping[str, Any]) -> Self:
        """Return the algorithm with the rules of a checkpoint."""
        ...


class Received(NamedTuple):
    """Result of `Server.receive`.

    Attributes:
        jobs: Jobs to dispatch now.
        step: The server step, if this update filled the buffer.
        refused: Why the update was refused, or None if it was accepted.
        eta: The size of the step, if there was one.
    """

    jobs: list[Job]
    step: Step | None
    refused: str | None = None
    eta: float | None = None


class Server:
    """Holds the global model and takes the clients' updates.

    Args:
        algorithm: What to do with M updates.
        ledger: Who trains, and from which version.
        model: x_0.
        checks: The checks that an update must pass before it is accepted.

    Example:
        >>> server = Server(FADAS(), Ledger(Schedule(concurrency=8, buffer=4), clients=20), model)
        >>> jobs = server.start()
    """

    def __init__(self, algorithm: UpdateRule, ledger: Ledger, model: Model, checks: Checks | None = None) -> None:
        self.algorithm = algorithm
        self.ledger = ledger
        self.checks = checks or Checks()
        self.state = ServerState(0, model)
        self.base: dict[int, Model] = {}  # by job id: the model that a running job started from
        self.delta_base: dict[int, Model] = {}  # by job id: the model that its delta is taken against, if another one
        self.buffer: list[Update] = []
        self.refused: Counter[str] = Counter()
        self.accountant = algorithm.accountant()
        self._ended: dict[int, str] = {}

    @property
    def model(self) -> Model:
        """x_t, the current global model."""
        return self.state.model

    @property
    def privacy(self) -> dict[str, float] | None:
        """The differential privacy spent so far, if the algorithm is private."""
        return self.accountant.spent if self.accountant else None

    def start(self) -> list[Job]:
        """Line 1: return the jobs of the M_c clients that train from the initial model."""
        return self._assign(self.ledger.start())

    def receive(self, update: Update) -> Received:
        """Lines 3 to 17: take a client's update, and a server step if the update fills the buffer.

        A refused update changes nothing but a counter. Its slot goes to another client.
        A returned job trains from `server.base[job.id]`: from x_t if its slot was refilled before the step, else from
        x_{t+1}.

        Raises:
            Diverged: The step gave a model or a moment that is not finite.
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
        eta = self._take_step(step) if step else None  # line 8: m = M
        return Received(self._assign(jobs, x), step, None, eta)

    def _take_step(self, step: Step) -> float:
        """Lines 9 to 17: x_t -> x_{t+1}. Return the step size that was used."""
        before, clients = self.state, self.ledger.clients
        seen = ServerStep(step.index, step.jobs, tuple(step.delays), step.seed, before, self.buffer, clients)
        eta = float(self.algorithm.step_size(seen))  # lines 11 to 15
        self.state = self.algorithm.apply(before, step, self.buffer, clients, eta)  # lines 9, 10 and 16
        self.buffer = []  # line 17
        if problem := _not_finite(before, self.state):
            raise Diverged(f"step {step.index + 1} gave {problem} that is not finite")
        if self.accountant:
            self.accountant.add(job.client for job in step.jobs)
        return eta

    def describe_refusals(self, last: int) -> str:
        """Return a message for a run whose last updates were all refused."""
        reasons = ", ".join(f"{reason}: {count}" for reason, count in self.refused.items())
        return f"the last {last} updates were all refused (refused so far: {reasons})"

    def drop(self, job: Job, reason: str = "dropped") -> list[Job]:
        """End a job without an update. Return the jobs to dispatch in its place."""
        jobs = self.ledger.drop(job)
        self._end(job, reason)
        return self._assign(jobs)

    def refuse_late(self, job: Job | None) -> str:
        """Count an update for a job that has ended or is unknown. Return why the update is refused."""
        reason = "unknown job" if job is None else self._ended.get(job.id, "unknown job")
        self.refused[reason] += 1
        return reason

    def join(self, client: int) -> list[Job]:
        """Admit a client, in a deployment. Return the jobs to dispatch now."""
        return self._assign(self.ledger.join(client))

    def _end(self, job: Job, reason: str) -> None:
        """Forget a job. Later updates for it are refused for this reason."""
        self.base.pop(job.id, None)
        self.delta_base.pop(job.id, None)
        self._ended[job.id] = reason
        if len(self._ended) > _REMEMBERED:
            del self._ended[next(iter(self._ended))]

    def _refuse(self, reason: str, jobs: list[Job]) -> Received:
        self.refused[reason] += 1
        return Received(jobs, None, reason)

    def _assign(self, jobs: list[Job], before: Model | None = None) -> list[Job]:
        """Store the model that each job starts from, and the model that its delta is taken against, if they differ.

        A version is freed when the last job that needs it ends.
        """
        released = self.ledger.schedule.refill == "released" and before is not None and before is not self.model
        for job in jobs:
            late = released and job != jobs[-1]
            self.base[job.id] = before if before and (late or job.version < self.state.version) else self.model
            if late:
                self.delta_base[job.id] = self.model
        return jobs


def _not_finite(before: ServerState, now: ServerState) -> str | None:
    """Return the name of the part that is no longer finite, or None.

    The moments are checked too: an optimizer whose moments hold the square of a huge update would never move again.
    """
    if not (all_finite(now.model.params) and all_finite(now.model.buffers, before.model.buffers)):
        return "a model"
    finite = all(all_finite(now.slots[name]) for name in MOMENTS if name in now.slots)
    return None if finite else "an optimizer's memory"
