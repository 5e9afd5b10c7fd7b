"""One run of the strategy: who is connected, what is under way, what comes back."""

import time
from collections import Counter, deque
from collections.abc import Callable
from logging import INFO, WARNING
from typing import TYPE_CHECKING

import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.common.constant import ErrorCode
from flwr.common.logger import log
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result

from fadas.core.ledger import Job, Ledger, Step
from fadas.core.model import Update
from fadas.core.records import JobRecord, Record
from fadas.core.server import Server
from fadas.core.trial_step import trial_step
from fadas.errors import ConfigError, Diverged
from fadas.flower.arrays import ArrayLayout
from fadas.flower.journal import Journal
from fadas.flower.messages import parse_reply, train_message
from fadas.flower.roster import Roster

if TYPE_CHECKING:
    from fadas.flower.strategy import AsyncStrategy

_EXPIRED = (ErrorCode.MESSAGE_UNAVAILABLE, ErrorCode.REPLY_MESSAGE_UNAVAILABLE)  # Flower's word for it
_REMEMBERED = 100_000  # messages that have ended, so that what is said of a late reply is true


class Federation:
    """One run of an `AsyncStrategy`: nodes, messages under way, and the server."""

    def __init__(
        self,
        strategy: "AsyncStrategy",
        grid: Grid,
        initial: ArrayRecord,
        train_config: ConfigRecord,
        evaluate: Callable[[int, ArrayRecord], MetricRecord | None] | None,
        steps: int,
    ) -> None:
        self.strategy, self.grid, self.evaluate, self.train_config = strategy, grid, evaluate, train_config
        self.steps = steps
        self.layout = ArrayLayout(initial, strategy.trainable)
        ledger = Ledger(strategy.schedule, 0, strategy.seed, open=True)
        self.server = Server(strategy.algorithm, ledger, self.layout.initial, strategy.checks)
        rehearse(self.server)
        self.roster = Roster()
        self.under_way: dict[str, tuple[Job, float]] = {}  # by message id: a job, and when it was sent
        self.ended: dict[str, str] = {}  # by message id: why another reply will be refused
        self.sent: dict[int, float] = {}  # by job id, until its step is recorded
        self.ends: dict[int, float] = {}
        self.losses: list[float] = []
        self.updates = self.dropped = self.expired = 0
        self.failures: Counter[str] = Counter()  # by kind, since the last update that was taken
        self.streak = 0  # the first job that was not yet given out when these failures began
        self.result = Result(arrays=initial)
        self.begin = self.accompanied = time.monotonic()  # the latter: when a node was last there
        self.told = float("-inf")  # when it was last said that none is
        self.journal = Journal(strategy.folder, self) if strategy.folder else None
        if not (self.journal and self.journal.restore()):
            self.server.start()  # no jobs yet: nobody has been met

    def now(self) -> float:
        return time.monotonic() - self.begin

    def play(self, timeout: float) -> Result:
        try:
            return self._play(timeout)
        except Diverged as error:
            if self.journal:
                self.journal.diverged(str(error))
            raise
        finally:
            if self.journal:
                self.journal.close()

    def _play(self, timeout: float) -> Result:
        server, steps = self.server, self.steps
        if self.evaluate and not server.state.version:
            self._evaluate(0)
        last = time.monotonic()
        heard = float("-inf")
        while server.state.version < steps:
            if time.monotonic() - heard > 1.0:
                self._meet()
                heard = time.monotonic()
            self._wait()
            done = server.state.version
            replies = list(self.grid.pull_messages(list(self.under_way))) if self.under_way else []
            for reply in replies:
                self._take(reply)
                if server.state.version >= steps:
                    break
            self._expire()
            if server.state.version > done:
                last = time.monotonic()
            elif time.monotonic() - last > timeout:
                raise RuntimeError(f"no server step in {timeout:.0f} s: giving up")
            if not replies:
                time.sleep(self.strategy.poll)
        self.result.arrays = self.layout.write(server.model)
        if self.journal:
            self.journal.finish()
        return self.result

    def _meet(self) -> None:
        """Who is connected now: newcomers may train, idle ones that are gone may not."""
        server, roster, ids = self.server, self.roster, set(self.grid.get_node_ids())
        for client in sorted(roster.present):
            if roster.nodes[client] not in ids:
                self._lose(client)
        busy = [job.client for job in server.ledger.running.values()]
        reported = [job.client for job in server.ledger.buffer]
        waiting = [*reported, *(client for client in busy if client not in roster.present)]
        for client in roster.admit(ids, busy):
            if server.spending:
                server.spending.admit(client, waiting, self.strategy.schedule.buffer)
        coming = [client for client in roster.absent if roster.nodes[client] in ids]
        for client in sorted(coming, key=lambda client: (client in reported, client)):  # a round needs the others more
            roster.join(client)
            self._send(server.join(client))

    def _lose(self, client: int) -> None:
        """A node cannot be reached: it gets no work until it is met again, but may still answer."""
        if self.roster.leave(client):
            self.server.ledger.leave(client)

    def _wait(self) -> None:
        """Nobody is there: said at once and every ten seconds, and borne for `patience` seconds."""
        now, patience = time.monotonic(), self.strategy.patience
        if self.roster.present or self.under_way:
            self.accompanied, self.told = now, float("-inf")
        elif now - self.accompanied > patience:
            raise RuntimeError(f"no node was connected for {patience:.0f} s: giving up")
        elif now - self.told >= 10:
            log(WARNING, "no node is connected: waiting (%.0f of %.0f s)", now - self.accompanied, patience)
            self.told = now

    def _send(self, jobs: list[Job]) -> None:
        strategy, waiting = self.strategy, deque(jobs)
        while waiting:
            job = waiting.popleft()
            arrays, node = self.layout.write(self.server.base[job.id]), self.roster.nodes[job.client]
            message = train_message(job, node, arrays, self.train_config, strategy.seed, strategy.deadline)
            # one by one: for a message that it does not take, a grid returns no id or an empty one
            ids = [id for id in self.grid.push_messages([message]) if id]
            if ids:
                self.under_way[ids[0]] = (job, time.monotonic())
                self.sent[job.id] = self.now()
            else:
                self._lose(job.client)
                waiting += self._drop(job, "not sent")

    def _take(self, reply: Message) -> None:
        id = reply.metadata.reply_to_message_id
        if id not in self.under_way:
            reason = self.ended.get(id, "unknown job")
            log(WARNING, "a reply of node %s is refused: %s", reply.metadata.src_node_id, reason)
            self.server.refused[reason] += 1
            return
        job = self._end(id, "already reported")
        if reply.has_error():
            code = reply.error.code
            if code == ErrorCode.NODE_UNAVAILABLE:
                self._lose(job.client)
            reason = "expired" if code in _EXPIRED else f"error {code}"
            self._send(self._drop(job, reason, reply.error.reason or ""))
            return
        try:
            news, loss = parse_reply(job, reply.content, self.server.base[job.id], self.layout, self.strategy.reply)
        except Exception as error:  # nothing that a client sends may end the run
            self._send(self._drop(job, "malformed", f"{type(error).__name__} {error}"))
            return
        received = self.server.receive(news)
        if received.refused:
            log(WARNING, "the update of %s is refused: %s", job, received.refused)
            self.sent.pop(job.id)
            self._failed("refused")
        else:
            self.failures.clear()
            self.updates += 1
            self.losses.append(loss)
            self.ends[job.id] = self.now()
            if received.step:
                self._record(received.step)
        if self.journal:
            self.journal.checkpoint()  # before anything else can go wrong
        self._send(received.jobs)

    def _drop(self, job: Job, reason: str, text: str = "") -> list[Job]:
        """A job ended without an update: counted, logged; the jobs to send now, for its slot is refilled."""
        log(WARNING, "%s ended without an update: %s %s", job, reason, " ".join(text.split())[:200])
        self.sent.pop(job.id, None)
        if reason == "expired":
            self.expired += 1
        else:
            self.dropped += 1
            if reason != "not sent":  # that says nothing of the nodes; without any that can be reached, `_wait` ends it
                self._failed("dropped")
        return self.server.drop(job, reason)

    def _failed(self, kind: str) -> None:
        """Give up after many failures of a kind; but not while a slower node has been at work since before them.

        Where updates come, but none can be accepted, the training has diverged. Nodes that fail say nothing about it.
        """
        if not self.failures:
            self.streak = self.server.ledger.next_id
        self.failures[kind] += 1
        patience = self.strategy.schedule.patience
        if self.failures[kind] <= patience or any(job.id < self.streak for job, _ in self.under_way.values()):
            return
        if kind == "refused":
            raise Diverged(self.server.none_accepted(self.failures[kind]))
        raise RuntimeError(f"none of the last {patience} jobs gave an update that could be used: giving up")

    def _expire(self) -> None:
        """Jobs beyond their deadline: a node that never answers keeps no slot."""
        late = time.monotonic() - self.strategy.deadline
        for id, (job, sent) in list(self.under_way.items()):
            if sent < late:
                self._end(id, "expired")
                self._send(self._drop(job, "expired", f"after {self.strategy.deadline:.0f} s"))

    def _end(self, id: str, reason: str) -> Job:
        """A message is no longer under way."""
        self.ended[id] = reason
        if len(self.ended) > _REMEMBERED:
            del self.ended[next(iter(self.ended))]
        return self.under_way.pop(id)[0]

    def _record(self, step: Step) -> None:
        done = step.index + 1
        metrics = None
        if self.evaluate and (done % self.strategy.eval_every == 0 or done == self.steps):
            metrics = self._evaluate(done)
        loss = sum(self.losses) / len(self.losses)
        self.losses.clear()
        self.result.train_metrics_clientapp[done] = MetricRecord({"train_loss": loss})
        log(INFO, "step %d: tau %s, train loss %.4f %s", done, step.delays, loss, metrics or "")
        jobs = tuple(
            JobRecord(job.id, job.client, tau, self.sent.pop(job.id, 0.0), self.ends.pop(job.id, 0.0))
            for job, tau in zip(step.jobs, step.delays, strict=True)
        )
        record = Record(
            step=done,
            time=self.now(),
            wall=self.now(),
            updates=self.updates,
            eta=float(self.strategy.algorithm.step_size(step.delays)),
            jobs=jobs,
            train_loss=loss,
            dropped=self.dropped,
            expired=self.expired,
            refused=dict(self.server.refused),
            privacy=self.server.privacy,
            metrics=metrics,
        )
        if self.journal:
            self.journal.append(record.as_dict())

    def _evaluate(self, step: int) -> dict[str, float] | None:
        assert self.evaluate
        begin = time.monotonic()
        record = self.evaluate(step, self.layout.write(self.server.model))
        took = time.monotonic() - begin  # in which nobody listened: not the nodes' fault
        self.accompanied += took
        self.under_way = {id: (job, sent + took) for id, (job, sent) in self.under_way.items()}
        if record is None:
            return None
        self.result.evaluate_metrics_serverapp[step] = record
        return {name: float(value) for name, value in record.items() if isinstance(value, int | float)}


def rehearse(server: Server) -> None:
    """One step of M zero updates, its result thrown away: what cannot work shows before anybody trains in vain."""
    x, jobs = server.model, [Job(k, k, 0) for k in range(server.ledger.schedule.buffer)]
    updates = [Update(job, torch.zeros_like(x.params), x.buffers, x.params, 1) for job in jobs]
    try:
        trial_step(server.algorithm, x, updates, server.ledger.schedule.concurrency + len(jobs))  # as many may come
    except Exception as error:  # the algorithm's parts may be the user's own
        text = f"{type(error).__name__}: {error}".splitlines()[0]
        raise ConfigError(f"{server.algorithm} cannot take a step of {len(jobs)} updates: {text}") from error
