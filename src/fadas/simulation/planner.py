"""The plan: the whole timeline of a run, known before anything is trained.

Durations do not depend on the results of training, so the planner drives the ledger with a virtual clock first. The
plan says which client trains from which version, when and how each job ends, and when the server takes a step.
"""

import heapq
import warnings
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from fadas.core.ledger import Job, Ledger, Schedule, Step
from fadas.core.records import LATEST, tau_statistics
from fadas.errors import FadasWarning
from fadas.rng import DROPOUT, DURATION, TIER
from fadas.simulation.delays import DelayModel, Delays, Large, TieredDelays
from fadas.simulation.faults import check_clients, is_failing, last_outage_end
from fadas.simulation.lookahead import Lookahead
from fadas.validate import Range, at_least, positive, whole_number

ARRIVED, DROPPED, EXPIRED, REFUSED = range(4)
_BLOCK = 1 << 14  # random numbers that are drawn at once
_MOST = 100_000_000  # updates: such a plan takes ten gigabytes
_WAIT = 1_000_000  # jobs that may be lost during temporary failures: they take seconds of planning


@dataclass(frozen=True, eq=False)
class Plan:
    """The whole timeline of a run, as arrays. `fadas.plan` makes it.

    Args:
        schedule: M_c, M and the refill rule.
        clients: The number of clients.
        seed: The run's seed.
        delays: How long jobs take, and what goes wrong.
        sizes: The number of examples of each client, if the delays depend on it.
        limits: The largest number of server steps, and the end in virtual time.
        client: By job id: the client.
        version: By job id: the version that tau counts from.
        start: By job id: the start in virtual time.
        end: By job id: the end in virtual time.
        outcome: By job id: how the job ends. 0: its update arrives. 1: it drops out. 2: it misses the deadline. 3: its
            update is refused.
        ended: Job ids in the order in which the jobs end, up to the arrival that closes the last step. Other jobs end
            later.
        time: By server step: its virtual time.
        taken: The job ids of the updates in each server step, one step after the other.
        ahead: What happens after the end, if it is known. It makes further plans faster.

    Example:
        >>> plan = fadas.plan(fadas.Schedule(concurrency=25, buffer=5), clients=50, steps=500, seed=1)
        >>> plan.arrivals.shape
        (500, 5)
    """

    schedule: Schedule
    clients: int
    seed: int
    delays: Delays
    sizes: Sequence[int] | None
    limits: tuple[int | None, float | None]
    client: np.ndarray
    version: np.ndarray
    start: np.ndarray
    end: np.ndarray
    outcome: np.ndarray
    ended: np.ndarray
    time: np.ndarray
    taken: np.ndarray
    ahead: Lookahead | None = None

    def ledger(self) -> Ledger:
        """Return a new ledger. Driven along `ended`, it assigns exactly the jobs of this plan."""
        return Ledger(self.schedule, self.clients, self.seed)

    def job(self, id: int) -> Job:
        """Return the job with this id."""
        return Job(id, int(self.client[id]), int(self.version[id]))

    @property
    def steps(self) -> int:
        """The number of server steps."""
        return len(self.time)

    @cached_property
    def arrivals(self) -> np.ndarray:
        """Job ids by server step: [steps, M]."""
        return self.taken.reshape(self.steps, self.schedule.buffer)

    @cached_property
    def needed(self) -> np.ndarray:
        """For each job, whether its update arrives before the last server step. Other jobs need not be trained."""
        mask = np.zeros(len(self.client), bool)
        mask[self.ended[self.outcome[self.ended] == ARRIVED]] = True
        return mask

    @cached_property
    def due(self) -> np.ndarray:
        """For each job, its index in `ended`, or the length of `ended` if it is not there."""
        positions = np.full(len(self.client), len(self.ended))
        positions[self.ended] = np.arange(len(self.ended))
        return positions

    @cached_property
    def tau(self) -> np.ndarray:
        """The delay of every update, in server versions: [steps, M]."""
        return np.arange(self.steps)[:, None] - self.version[self.arrivals]

    @cached_property
    def tiers(self) -> dict[str, list[int]] | None:
        """The clients of each delay tier, from the fastest tier to the slowest. None: the delay model has no tiers.

        A delay model has tiers if it has a method `tiers(clients, rng)`, as `Large` does, and their names in
        `tier_names`.
        """
        model = self.delays.model
        if not isinstance(model, TieredDelays):
            return None
        of_client = model.tiers(self.clients, np.random.default_rng([self.seed, TIER]))
        return {name: np.flatnonzero(of_client == tier).tolist() for tier, name in enumerate(model.tier_names)}

    def statistics(self) -> dict[str, float]:
        """Return what `fadas plan` prints. As in the paper, tau_avg and tau_med are over each step's largest delay."""
        outcomes = np.bincount(self.outcome[self.ended], minlength=4)
        return {
            **tau_statistics(self.tau.max(1).tolist()),
            "virtual_time": float(self.time[-1]),
            "updates": len(self.taken),
            "steps": self.steps,
            "dropped": int(outcomes[DROPPED]),
            "expired": int(outcomes[EXPIRED]),
        }


def plan(
    schedule: Schedule,
    clients: int,
    delays: Delays | DelayModel | None = None,
    *,
    steps: int | None = None,
    updates: int | None = None,
    time: float | None = None,
    seed: int = 0,
    sizes: Sequence[int] | None = None,
) -> Plan:
    """Make the plan of a run: its timeline in virtual time, until the first limit is reached. Nothing is trained.

    Args:
        schedule: M_c, M and the refill rule.
        clients: The number of clients.
        delays: How long jobs take, and what goes wrong. A delay model alone is enough. None: the paper's large delays.
        steps: End after this many server steps.
        updates: End after this many client updates.
        time: End at this virtual time.
        seed: The run's seed.
        sizes: The number of examples of each client, for delays that scale with the data.

    Returns:
        The plan. It says which client trains from which version, when and how each job ends, and when the server takes
        a step.

    Raises:
        ValueError: There is no limit, no server step is possible within the limits, or the plan would be too large.

    Example:
        >>> plan = fadas.plan(fadas.Schedule(concurrency=25, buffer=5), clients=50, steps=500, seed=1)
        >>> plan.statistics()["tau_max"]
    """
    whole_number(steps=steps, updates=updates, seed=seed)
    limits = [
        limit for limit in (steps, updates // schedule.buffer if updates is not None else None) if limit is not None
    ]
    if not limits and time is None:
        raise ValueError("a plan needs a limit: steps, updates or time")
    if limits and min(limits) < 1:
        raise ValueError(
            f"the limits (steps={steps}, updates={updates}) do not allow one step of {schedule.buffer} updates"
        )
    if limits and min(limits) * schedule.buffer > _MOST:
        raise ValueError(f"a plan holds at most {_MOST:,} updates, got {min(limits) * schedule.buffer:,}")
    if time is not None:
        positive(time=time)
    at_least(0, seed=seed)
    ledger = Ledger(schedule, clients, seed)
    delays = delays if isinstance(delays, Delays) else Delays() if delays is None else Delays(delays)
    check_clients(delays.faults, clients)
    _warn_of_empty_tiers(delays, clients, seed)
    timeline = _Timeline(delays, clients, seed, sizes)
    timeline.dispatch(ledger.start(), 0.0)
    stop = (min(limits) if limits else None, time)
    timeline.play(ledger, *stop)
    arrays: dict[str, Any] = timeline.arrays()
    return Plan(schedule, clients, ledger.seed, delays, sizes, stop, **arrays)


def _warn_of_empty_tiers(delays: Delays, clients: int, seed: int) -> None:
    """Warn if the delays of this seed lack a tier that the user did not leave out, for example the stragglers."""
    model = delays.model
    if not isinstance(model, Large):
        return
    wanted = model.wanted_tiers()
    empty = [name for name in model.empty_tiers(clients, np.random.default_rng([seed, TIER])) if name in wanted]
    if not empty:
        return
    tiers = ", ".join(f"{name!r} ({_format_range(getattr(model, name))})" for name in empty)
    text = f"none of the {clients} clients is in the delay tier {tiers}"
    if model.shares is None:
        text = f"seed {seed}: {text}; fix the tiers with `shares`, for example shares = [0.6, 0.3, 0.1]"
    else:
        text = f"{text}: its share is less than one client"
    warnings.warn(text, FadasWarning, stacklevel=3)


def _format_range(bounds: Range) -> str:
    return f"{bounds[0]:g} to {bounds[1]:g}"


def replan(
    old: Plan,
    position: int,
    ledger: Ledger,
    jobs: list[Job],
    refused: Sequence[int] | None = None,
    step: Step | None = None,
) -> Plan:
    """Return a new plan after the server has refused an update. The past stays as it was.

    Args:
        old: The plan so far.
        position: The job `old.ended[position]` has just ended.
        ledger: A ledger after that. It is not changed.
        jobs: The jobs that the ledger has started since.
        refused: The jobs whose updates are refused. None: the one that has just ended.
        step: The server step that was taken nevertheless.
    """
    now = int(old.ended[position])
    refused = [now] if refused is None else refused
    if old.ahead is not None and list(refused) == [now] and step is None and old.limits[0] is not None:
        ahead = old.ahead.after_refusal(position)
        past = {"version": old.version, "time": old.time, "taken": old.taken}
        if arrays := ahead.cut(position, ledger, jobs, old.limits[0], past):
            return replace(old, ahead=ahead, **arrays)
    timeline = _Timeline(old.delays, old.clients, old.seed, old.sizes)
    timeline.continue_from(old, position, ledger.next_id - len(jobs), ledger, step)
    for id in refused:
        timeline.outcome[id] = REFUSED
    timeline.dispatch(jobs, float(old.end[now]))
    future = ledger.copy()
    timeline.play(future, *old.limits)
    arrays, ahead = timeline.arrays(), None
    if Lookahead.suits(old.schedule, old.limits) and old.limits[0] is not None:
        ahead = timeline.look_ahead(future, old.limits[0] + old.schedule.patience // old.schedule.buffer + 1)
    return Plan(old.schedule, old.clients, old.seed, old.delays, old.sizes, old.limits, **arrays, ahead=ahead)


class _Timeline:
    """The jobs so far, and a heap of (end, id) of the running jobs."""

    def __init__(self, delays: Delays, clients: int, seed: int, sizes: Sequence[int] | None) -> None:
        self.delays = delays
        self.duration = delays.bind(clients, np.random.default_rng([seed, TIER]), sizes)
        self.durations_rng = np.random.default_rng([seed, DURATION])
        self.dropouts_rng = np.random.default_rng([seed, DROPOUT])
        self.client, self.version, self.outcome = array("q"), array("q"), array("b")
        self.start, self.end = array("d"), array("d")
        self.ended = array("q")
        self.time = array("d")  # by server step
        self.taken = array("q")
        self._closed = 0  # how many jobs have ended up to the last step
        self.running: list[tuple[float, int]] = []

    def continue_from(self, old: Plan, position: int, jobs: int, ledger: Ledger, step: Step | None) -> None:
        """Copy an earlier plan up to `position`, when the first `jobs` jobs had begun, and a `step` was just taken."""
        for name in ("client", "version", "outcome", "start", "end"):
            getattr(self, name).extend(getattr(old, name)[:jobs].tolist())
        self.ended.extend(old.ended[: position + 1].tolist())
        self.time.extend(old.time[: ledger.version].tolist())
        before = ledger.version - bool(step)
        self.taken.extend(old.taken[: before * old.schedule.buffer].tolist())
        if step:
            self.taken.extend(job.id for job in step.jobs)
        if self.taken:
            self._closed = 1 + int(np.flatnonzero(old.ended[: position + 1] == self.taken[-1])[0])
        self.running = [(self.end[id], id) for id in ledger.running if id < jobs]
        heapq.heapify(self.running)
        if block := jobs // _BLOCK:  # skip the blocks whose jobs have all begun
            for rng in (self.durations_rng, self.dropouts_rng):
                rng.bit_generator.advance(block * _BLOCK)  # type: ignore[attr-defined]
        if jobs % _BLOCK:
            self._draw()

    def play(self, ledger: Ledger, steps: int | None, until: float | None) -> None:
        """Drive the ledger in virtual time until the first limit: server steps, or the time `until`."""
        times = self.time
        last_arrival = len(self.ended)
        patience = min(int(1000 / (1 - self.delays.dropout)), 1_000_000) + 100 * ledger.schedule.concurrency
        outages_end, waited = last_outage_end(self.delays.faults), 0
        while steps is None or len(times) < steps:
            now, id = heapq.heappop(self.running)
            if until is not None and now > until:
                break
            self.ended.append(id)
            if len(self.ended) > _MOST:
                raise ValueError(f"a plan holds at most {_MOST:,} jobs, and the time limit ({until}) allows more")
            job = ledger.running[id]
            if self.outcome[id] != ARRIVED:
                if self.start[id] < outages_end and waited < _WAIT:  # wait for the end of temporary failures
                    waited, last_arrival = waited + 1, len(self.ended)
                if len(self.ended) - last_arrival > patience:
                    causes = self._possible_causes()
                    text = f"no update arrived in {waited + patience:,} jobs: all clients are stopped by {causes}"
                    if self.start[id] < outages_end:  # otherwise nothing shows that the failures ever end
                        text += f"; failures last until time {outages_end:g}, too long after {now:g} to wait"
                    raise ValueError(text)
                self.dispatch(ledger.drop(job), now)
                continue
            last_arrival, waited = len(self.ended), 0
            jobs, step = ledger.arrive(job)
            self.dispatch(jobs, now)
            if step:
                times.append(now)
                self.taken.extend([job.id for job in step.jobs])
                self._closed = last_arrival
        if not times:
            raise ValueError(f"the time limit ({until}) ends before the first server step")
        del self.ended[self._closed :]  # later endings belong to a step that was never taken

    def look_ahead(self, ledger: Ledger, steps: int) -> Lookahead | None:
        """Go on to a later step. None: that is not possible, for example because all clients fail for ever."""
        try:
            self.play(ledger, steps, None)
        except ValueError:
            return None
        arrays = self.arrays()
        return Lookahead(*(arrays[name] for name in ("client", "start", "end", "outcome", "ended")))

    def _possible_causes(self) -> str:
        """Return what may keep updates from arriving."""
        failing = any(fault.kind == "fail" for fault in self.delays.faults)
        causes = {"the deadline": self.delays.deadline, "the dropout": self.delays.dropout, "[faults]": failing}
        return " or ".join(cause for cause, active in causes.items() if active)

    def _draw(self) -> None:
        """Draw the random numbers of the next block of jobs."""
        self._u = np.maximum(self.durations_rng.random(_BLOCK), 2.0**-54).tolist()
        self._v = self.dropouts_rng.random(_BLOCK).tolist() if self.delays.dropout else None

    def dispatch(self, jobs: list[Job], now: float) -> None:
        """Start jobs: decide when and how each of them ends."""
        for job in jobs:
            k = job.id % _BLOCK
            if k == 0:  # job ids are consecutive, so the k-th number of a stream belongs to the k-th job
                self._draw()
            length = self.duration(job.client, self._u[k])
            outcome = ARRIVED
            if self._v and self._v[k] < self.delays.dropout:
                # Given v < dropout, v / dropout is uniform too. It is the share of the work done before dropping out.
                length, outcome = length * self._v[k] / self.delays.dropout, DROPPED
            if self.delays.faults and is_failing(self.delays.faults, job.client, now):
                outcome = DROPPED
            if self.delays.deadline is not None and length > self.delays.deadline:
                length, outcome = self.delays.deadline, EXPIRED
            end = now + length
            if not now < end < LATEST:  # also false if the length is too small to change the time
                raise ValueError(
                    f"client {job.client} at time {now}: a duration must be positive and end before time {LATEST}, "
                    f"got {length}"
                )
            heapq.heappush(self.running, (end, job.id))
            self.client.append(job.client)
            self.version.append(job.version)
            self.outcome.append(outcome)
            self.start.append(now)
            self.end.append(end)

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the arrays of a `Plan`."""
        names = ("client", "version", "outcome", "start", "end", "ended", "time", "taken")
        return {name: np.array(getattr(self, name)) for name in names}
