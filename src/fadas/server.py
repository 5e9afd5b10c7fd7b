"""The server: Algorithm 1 on one screen. The simulator and a deployment drive this same object.

The ledger does the bookkeeping, the algorithm the arithmetic; the server holds x_t and lets the two meet.
Line numbers are those of Algorithm 1 in the paper.
"""

from fadas.algorithms import Algorithm
from fadas.ledger import Job, Ledger, Step
from fadas.model import Model, ServerState, Update


class Server:
    def __init__(self, algorithm: Algorithm, ledger: Ledger, model: Model) -> None:
        self.algorithm = algorithm
        self.ledger = ledger
        self.state = ServerState(0, model)
        self.base: dict[int, Model] = {}  # by job id: the model that a running job started from
        self.buffer: list[Update] = []

    @property
    def model(self) -> Model:
        """x_t, the current global model."""
        return self.state.model

    def start(self) -> list[Job]:
        """Line 1: M_c clients begin to train from the initial model."""
        return self._assign(self.ledger.start())

    def receive(self, update: Update) -> tuple[list[Job], Step | None]:
        """Lines 3 to 17: take a client's update; the jobs to start now, and the step if it filled the buffer.

        A returned job trains from `server.base[job.id]`: x_t when its slot was refilled before the step, else x_{t+1}.
        """
        x = self.model  # x_t
        jobs, step = self.ledger.arrive(update.job)  # lines 4 to 6: m <- m + 1, sample another client
        self.buffer.append(update)
        del self.base[update.job.id]
        if step:  # line 8: m = M
            self.state = self.algorithm.apply(self.state, step, self.buffer, self.ledger.clients)  # lines 9 to 16
            self.buffer = []  # line 17
        return self._assign(jobs, x), step

    def drop(self, job: Job) -> list[Job]:
        """A job ended without an update: its slot goes to another client."""
        jobs = self.ledger.drop(job)
        del self.base[job.id]
        return self._assign(jobs)

    def _assign(self, jobs: list[Job], before: Model | None = None) -> list[Job]:
        """Remember what each job starts from. A version is freed when the last job that started from it ends."""
        for job in jobs:
            self.base[job.id] = before if before and job.version < self.state.version else self.model
        return jobs
