"""A plan made longer than it needs to be, so that the next plans after refusals take no time.

With the refill rules "arrival" and "update", a refusal changes the server steps only. The same clients train at the
same times, because a slot is refilled in either case. So the new plan is the old timeline with its steps counted again,
and a few more jobs at its end. A run that diverges has hundreds of refusals. To play each plan through the ledger took
ten times as long as the run itself.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fadas.core.ledger import Job, Ledger, Schedule

_ARRIVED, _REFUSED = 0, 3  # outcomes, as in the planner


@dataclass(frozen=True, eq=False)
class Lookahead:
    """A timeline that goes on beyond the end of a plan, as arrays.

    Args:
        client: By job id: the client.
        start: By job id: the start in virtual time.
        end: By job id: the end in virtual time.
        outcome: By job id: how the job ends.
        ended: Job ids in the order in which the jobs end.
    """

    client: np.ndarray
    start: np.ndarray
    end: np.ndarray
    outcome: np.ndarray
    ended: np.ndarray

    @staticmethod
    def suits(schedule: Schedule, limits: tuple[int | None, float | None]) -> bool:
        """Return whether refusals change nothing but the steps. A limit in virtual time is left to the ledger."""
        return schedule.refill in ("arrival", "update") and not schedule.per_client and limits[1] is None

    def after_refusal(self, position: int) -> "Lookahead":
        """Return the same timeline, but the update of the job at this position is refused."""
        outcome = self.outcome.copy()
        outcome[self.ended[position]] = _REFUSED
        return Lookahead(self.client, self.start, self.end, outcome, self.ended)

    def cut(
        self, position: int, ledger: Ledger, started: Sequence[Job], steps: int, past: dict[str, np.ndarray]
    ) -> dict[str, np.ndarray] | None:
        """Return the arrays of the plan that ends with a server step. None: this timeline is too short for it.

        Args:
            position: The job `ended[position]` has just ended, and its update was refused.
            ledger: A ledger after that.
            started: The jobs that the ledger has started since.
            steps: The number of server steps of the plan.
            past: The arrays `version`, `time` and `taken` of the last plan. They stay as they are up to now.
        """
        schedule, now, first = ledger.schedule, ledger.version, ledger.next_id
        later = self.ended[position + 1 :]
        arrived = self.outcome[later] == _ARRIVED
        in_buffer = (len(ledger.buffer) + np.cumsum(arrived)) % schedule.buffer
        closing = np.flatnonzero(arrived & (in_buffer == 0))[: steps - now]
        if len(closing) < steps - now:
            return None
        length = int(closing[-1]) + 1
        later, arrived = later[:length], arrived[:length]
        closes = np.zeros(length, np.int64)
        closes[closing] = 1
        version = now + np.cumsum(closes) - (closes if schedule.refill == "arrival" else 0)
        jobs = first + length  # every job that ends makes room for one
        return {
            "client": self.client[:jobs],
            "start": self.start[:jobs],
            "end": self.end[:jobs],
            "outcome": self.outcome[:jobs],
            "ended": self.ended[: position + 1 + length],
            "version": np.concatenate(
                [past["version"][: first - len(started)], np.array([job.version for job in started], np.int64), version]
            ),
            "time": np.concatenate([past["time"][:now], self.end[later[closing]]]),
            "taken": np.concatenate(
                [
                    past["taken"][: now * schedule.buffer],
                    np.array([job.id for job in ledger.buffer], np.int64),
                    later[arrived],
                ]
            ),
        }
