"""The server: Algorithm 1 on one screen. The simulator and a deployment drive this same object.

The ledger does the bookkeeping, the algorithm does the arithmetic. The server holds x_t and connects the two.
Line numbers are those of Algorithm 1 in the paper.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from fadas.core.ledger import Job, Ledger, Step
from fadas.core.model import Model, ServerState, Update
from fadas.core.recent_updates import ENOUGH, RecentUpdates
from fadas.core.server_step import Taken, UpdateRule, describe_not_finite, find_culprits, take_step
from fadas.core.update_checks import TOO_LONG, Checks, norm, vector_lengths
from fadas.errors import ConfigError, Diverged, NoUsableUpdates

UNDONE = "step not finite"
TOO_EARLY = "too early to judge"  # says nothing about the update
_DIVERGING = ("not finite", UNDONE, TOO_LONG)  # refusals that tell of training, not of clients that are set up wrongly
_REMEMBERED = 100_000  # how many ended jobs to remember, to say why a late update is refused


class Removed(NamedTuple):
    """An accepted update that left the buffer without being part of a step.

    Attributes:
        job: Its job.
        reason: Why. "replaced": the schedule says so, and a plan knows. Otherwise the update is refused after all.
    """

    job: Job
    reason: str


class Received(NamedTuple):
    """Result of `Server.receive`.

    Attributes:
        jobs: Jobs to dispatch now.
        step: The server step, if this update filled the buffer.
        refused: Why the update was refused, or None if it was accepted.
        eta: The size of the step, if there was one.
        updates: The updates of the step.
        removed: Earlier updates that left the buffer without being part of a step.
    """

    jobs: list[Job]
    step: Step | None
    refused: str | None = None
    eta: float | None = None
    updates: Sequence[Update] = ()
    removed: Sequence[Removed] = ()

    @property
    def retracted(self) -> list[Job]:
        """The jobs of earlier updates that are refused after all. No plan knows of them."""
        return [job for job, reason in self.removed if reason != REPLACED]


REPLACED = "replaced"


class Server:
    """Holds the global model, checks the clients' updates, and takes server steps.

    Args:
        algorithm: What to do with M updates, such as `fadas.FADAS()`.
        ledger: Who trains, and from which version.
        model: The initial model x_0.
        checks: The checks that an update must pass before it is accepted.

    Example:
        >>> server = Server(FADAS(), Ledger(Schedule(concurrency=8, buffer=4), clients=20), model)
        >>> jobs = server.start()
    """

    def __init__(self, algorithm: UpdateRule, ledger: Ledger, model: Model, checks: Checks | None = None) -> None:
        self.algorithm = algorithm
        self.ledger = ledger
        self.checks = checks or Checks()
        model = replace(model, vectors=algorithm.exchange.sent(model, {}))
        self.state = ServerState(0, model)
        self.base: dict[int, Model] = {}  # by job id: the model that a running job started from
        self.delta_base: dict[int, Model] = {}  # by job id: the model that its delta is taken against, if another one
        self.updates: dict[int, Update] = {}  # by job id: accepted, and not yet part of a step
        self.recent = RecentUpdates()
        self.recent_vectors: dict[str, RecentUpdates] = {}  # by the name of what comes beside the delta
        self.unjudged: dict[int, float] = {}  # by job id: the norms of deltas that came too early to be compared
        self.failed_early: set[int] = set()  # clients whose jobs have failed before three clients had reported
        self.refused: Counter[str] = Counter()
        self.streak: Counter[str] = Counter()  # refusals since the last accepted update
        self.streak_clients: set[int] = set()
        self.undone = 0  # steps since the last one that was taken
        self.accountant = algorithm.accountant()
        self._ended: dict[int, str] = {}

    @property
    def model(self) -> Model:
        """x_t, the current global model."""
        return self.state.model

    @property
    def buffer(self) -> list[Update]:
        """The updates in the buffer, in the order of their arrival."""
        return [self.updates[job.id] for job in self.ledger.buffer]

    @property
    def waiting(self) -> list[Update]:
        """Updates above the limit per client, which wait for the next step."""
        return [self.updates[job.id] for job in self.ledger.waiting]

    @property
    def privacy(self) -> dict[str, float] | None:
        """The differential privacy spent so far, if the algorithm is private."""
        return self.accountant.spent if self.accountant else None

    def start(self) -> list[Job]:
        """Return the first jobs: M_c clients train from the initial model (line 1 of Algorithm 1)."""
        return self._assign(self.ledger.start())

    def receive(self, update: Update) -> Received:
        """Take a client's update, and a server step if the update fills the buffer (lines 3 to 17 of Algorithm 1).

        A refused update changes nothing but a counter. Its slot goes to another client. A step whose result is not
        finite is not taken: the updates at fault are refused.

        Args:
            update: The update.

        Returns:
            The jobs to start now, the step if one was taken, and why the update was refused if it was. A job trains
            from the model `server.base[job.id]`.

        Raises:
            Diverged: A step is not finite, and most of its clients are at fault.
        """
        job = update.job
        if self.ledger.running.get(job.id) != job:
            reason = self._ended.get(job.id, "unknown job")
            self.refused[reason] += 1
            return Received([], None, reason)
        update, problem = self._check(update)
        if problem:
            return self._refuse(job, problem, [])
        if (after := self.delta_base.get(job.id)) is not None:
            shift = update.base - after.params
            update = replace(update, delta=update.delta + shift, base=after.params)
        self.updates[job.id] = update
        removed: list[Removed] = []
        jobs: list[Job] = []
        taken = None
        while (step := self.ledger.closing_step(job)) and not taken:  # line 8: m = M
            faults = self._find_long(step)
            if not faults:
                taken, faults = self._try_step(step)
            for fault in faults:
                if fault.job != job:
                    removed.append(fault)
                    jobs += self._retract(fault)
            if own := next((fault for fault in faults if fault.job == job), None):
                del self.updates[job.id]
                return self._refuse(job, own.reason, jobs, removed)
        if replaced := self.ledger.replaced_by(job):
            removed.append(Removed(replaced, REPLACED))
            self._forget(removed[-1])
        self.streak.clear()
        self.streak_clients.clear()
        x = self.model  # x_t
        started, step = self.ledger.arrive(job)  # lines 4 to 6: m <- m + 1, sample another client
        self._end(job, "already reported")
        updates = self._commit(step, taken) if step and taken else ()
        return Received([*jobs, *self._assign(started, x)], step, None, taken and taken.eta, updates, removed)

    def _check(self, update: Update) -> tuple[Update, str | None]:
        """Return the update to accept, and why to refuse it."""
        checks, recent, exchange = self.checks, self.recent, self.algorithm.exchange
        update, problem = checks(update, self.model, exchange)
        if problem or not checks.are_relative:
            return update, problem
        length = norm(update.delta) if checks.norm_factor else 0.0
        recent.add(update.job.client, length, update.examples)
        bound = checks.bound(recent)
        if checks.norm_factor and bound is None:
            if self._is_too_early(update.job):
                return update, TOO_EARLY
            self.unjudged[update.job.id] = length
        if not exchange.is_empty and checks.norm_factor:
            for name, other in vector_lengths(update, exchange).items():
                self.recent_vectors.setdefault(name, RecentUpdates()).add(update.job.client, other, update.examples)
        return self._limit(update, length, bound)

    def _limit(self, update: Update, length: float, bound: float | None) -> tuple[Update, str | None]:
        """Compare an update with recent ones. Return the update to accept, and why to refuse it."""
        problem = None
        if self.recent_vectors:
            update, problem = self.checks.limit_vectors(update, self.algorithm.exchange, self.recent_vectors)
        return (update, problem) if problem else self.checks.limit(update, length, bound)

    def _is_too_early(self, job: Job) -> bool:
        """Return whether an update comes before there are enough others to compare its length with.

        Until three clients have reported, each has at most one update in the buffer, and no step is taken. Clients that
        are away, or whose jobs have failed, are not waited for. In a federation of two, only the numbers are checked.
        """
        silent = sum(not self.recent.knows(client) for client in self.failed_early)
        if self.recent.is_enough or self.ledger.members - silent < ENOUGH:
            return False
        has_one = any(update.job.client == job.client for update in self.updates.values())
        return has_one or self.ledger.closing_step(job) is not None

    def _find_long(self, step: Step) -> list[Removed]:
        """Judge updates that were accepted before there was anything to compare them with."""
        faults: list[Removed] = []
        bound = self.checks.bound(self.recent) if self.unjudged else None
        for job in step.jobs if bound is not None else ():
            self.updates[job.id], problem = self._limit(self.updates[job.id], self.unjudged.pop(job.id, 0.0), bound)
            if problem:
                faults.append(Removed(job, problem))
        return faults

    def _try_step(self, step: Step) -> tuple[Taken | None, list[Removed]]:
        """Compute a step. Return it, or the updates that spoil it if it is not finite."""
        before, clients = self.state, self.ledger.clients
        updates = self.checks.cap_examples([self.updates[job.id] for job in step.jobs], self.recent)
        taken = take_step(self.algorithm, before, step, updates, clients)
        problem = describe_not_finite(before, taken.state)
        if problem is None:
            return taken, []
        culprits = find_culprits(self.algorithm, before, step, updates, clients)
        self.undone += 1
        bad, all_clients = ({update.job.client for update in part} for part in (culprits, updates))
        bad = {client for client in bad if self.ledger.is_member(client)}
        most = len(bad) > 1 and 2 * len(bad) > len(all_clients)  # a single client must not end the run
        if most or self.undone > self.ledger.schedule.patience:
            raise Diverged(f"step {step.index + 1} gave {problem} that is not finite")
        return None, [Removed(update.job, UNDONE) for update in culprits]

    def _commit(self, step: Step, taken: Taken) -> list[Update]:
        """Line 17: the model moves to x_{t+1}, and the buffer is emptied. Return the updates of the step."""
        self.state, self.undone = taken.state, 0
        if self.accountant:
            self.accountant.add(job.client for job in step.jobs)
        for job in step.jobs:
            self.unjudged.pop(job.id, None)
        return [self.updates.pop(job.id) for job in step.jobs]

    def _retract(self, fault: Removed) -> list[Job]:
        """Refuse an update of the buffer after all. Return the jobs to dispatch now."""
        self._forget(fault)
        return self._assign(self.ledger.retract(fault.job))

    def _forget(self, removed: Removed) -> None:
        del self.updates[removed.job.id]
        self.unjudged.pop(removed.job.id, None)
        self.refused[removed.reason] += 1

    def gave_up(self, last: int) -> Diverged | ConfigError:
        """Return the error for a run whose last updates were all refused."""
        reasons = ", ".join(f"{reason}: {count}" for reason, count in self.refused.items())
        text = f"the last {last} updates were all refused (refused so far: {reasons})"
        if len(self.streak_clients) == 1 and self.ledger.clients > 1:
            return NoUsableUpdates(f"{text}: all of client {min(self.streak_clients)}, and a step needs more clients")
        if not self.streak or any(reason in _DIVERGING for reason in self.streak):
            return Diverged(text)
        return NoUsableUpdates(f"{text}: check the clients' data and code")

    def drop(self, job: Job, reason: str = "dropped") -> list[Job]:
        """End a job without an update. Return the jobs to dispatch in its place.

        Args:
            job: The job.
            reason: Why it ended. Later updates for this job are refused for this reason.
        """
        jobs = self.ledger.drop(job)
        if self.checks.norm_factor and not self.recent.is_enough:
            self.failed_early.add(job.client)
        self._end(job, reason)
        self.unjudged.pop(job.id, None)
        return self._assign(jobs)

    def refuse_late(self, job: Job | None) -> str:
        """Count an update for a job that has ended or is unknown. Return why the update is refused.

        Args:
            job: The job, or None if it is unknown.
        """
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

    def _refuse(self, job: Job, reason: str, jobs: list[Job], removed: Sequence[Removed] = ()) -> Received:
        self.refused[reason] += 1
        if reason != TOO_EARLY:
            self.streak[reason] += 1
            self.streak_clients.add(job.client)
        return Received([*jobs, *self.drop(job, reason)], None, reason, removed=removed)

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
