"""The counters of a run and the records of its server steps, for simulations and deployments."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fadas.core.ledger import Job, Step
from fadas.core.model import Update
from fadas.core.records import JobRecord, Record
from fadas.core.server import Server

Span = tuple[float, float]  # when a job started and when its update arrived


@dataclass
class Progress:
    """The counters so far. Checkpoints hold these fields under these names."""

    updates: int = 0  # accepted
    removed: int = 0  # of these: refused after all, or replaced
    dropped: int = 0  # jobs that ended without an update
    expired: int = 0  # jobs that missed their deadline

    def accept(self) -> None:
        """Count an update that the server accepted."""
        self.updates += 1

    def end_job(self, reason: str) -> None:
        """Count a job that ended without an update."""
        if reason == "expired":
            self.expired += 1
        else:
            self.dropped += 1

    def describe(self, server: Server) -> str:
        """Return the counters in words, such as "30 steps, 60 updates, 1 refused"."""
        counts = {"steps": server.state.version, "updates": self.updates}
        lost = {"refused": server.refused.total(), "jobs dropped": self.dropped, "jobs expired": self.expired}
        counts |= {name: count for name, count in lost.items() if count}
        return ", ".join(f"{count:,} {name}" for name, count in counts.items())

    def record(
        self,
        server: Server,
        step: Step,
        eta: float,
        span: Callable[[Job], Span],
        *,
        time: float,
        wall: float,
        train_loss: float,
        metrics: dict[str, float] | None,
    ) -> Record:
        """Return the record of a server step that was just taken.

        Args:
            server: The server, after the step.
            step: The step.
            eta: The step size that was used.
            span: Returns when a job started and when its update arrived.
            time: When the step was taken.
            wall: Seconds since the run began.
            train_loss: The mean training loss of the step's updates.
            metrics: The evaluation after the step, if there was one.
        """
        jobs = tuple(
            JobRecord(job.id, job.client, tau, *span(job)) for job, tau in zip(step.jobs, step.delays, strict=True)
        )
        return Record(
            step=step.index + 1,
            time=time,
            wall=wall,
            updates=self.updates - self.removed,
            eta=eta,
            jobs=jobs,
            train_loss=train_loss,
            dropped=self.dropped,
            expired=self.expired,
            refused=dict(server.refused),
            privacy=server.privacy,
            metrics=metrics,
        )


def mean_loss(updates: Sequence[Update]) -> float:
    """Return the mean training loss of a step's updates."""
    losses = [update.metrics["loss"] for update in updates]
    return float(sum(losses) / len(losses))  # waits for a device that is still computing
