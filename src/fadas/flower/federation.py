"""One run of the strategy: which nodes are connected, which messages are under way, what comes back."""

import secrets
import time
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import replace
from logging import INFO, WARNING
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.common.constant import SUPERLINK_NODE_ID, ErrorCode
from flwr.common.logger import log
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result
from torch import Tensor

from fadas.core.ledger import Job, Ledger
from fadas.core.model import Update
from fadas.core.progress import Progress, Span, mean_loss
from fadas.core.records import Record, initial_record
from fadas.core.saved_state import State, load_server, save_server
from fadas.core.server import TOO_EARLY, Received, Server
from fadas.core.trial_step import try_one_step
from fadas.errors import Diverged
from fadas.flower.arrays import ArrayLayout
from fadas.flower.evaluator import EvaluateFn, Evaluator
from fadas.flower.journal import Journal
from fadas.flower.mailbox import Mailbox
from fadas.flower.messages import error_reason, job_seed, parse_reply, train_message
from fadas.flower.options import Options
from fadas.flower.roster import Roster
from fadas.flower.saved_run import COUNTERS, SavedRun
from fadas.runs.serialization import to_json


class Federation:
    """One run of an `AsyncStrategy`: nodes, messages under way, and the server.

    Args:
        options: The strategy's settings.
        grid: Flower's grid.
        initial: The initial model.
        train_config: Sent to nodes with every train message.
        evaluate: Evaluates the model after a server step.
        steps: The number of server steps to do.
    """

    def __init__(
        self,
        options: Options,
        grid: Grid,
        initial: ArrayRecord,
        train_config: ConfigRecord,
        evaluate: EvaluateFn | None,
        steps: int,
    ) -> None:
        self.options, self.grid, self.train_config, self.steps = options, grid, train_config, steps
        self.evaluator = Evaluator(evaluate, options.interval, steps, options.metric, options.target)
        self.layout = ArrayLayout(initial, options.trainable)
        ledger = Ledger(options.schedule, 0, options.seed, open=True)
        self.server = Server(options.algorithm.deployed(), ledger, self.layout.initial, options.checks)
        self.roster = Roster()
        self.mailbox = Mailbox()
        self.key = secrets.token_bytes(32)  # of the jobs' seeds: from these, nothing about the run's seed follows
        self.sent: dict[int, float] = {}  # by job id, until its step is recorded
        self.ends: dict[int, float] = {}
        self.progress = Progress()
        self.failures: Counter[str] = Counter()  # by kind, since the last accepted update
        self.streak = 0  # the first job that was not yet assigned when these failures began
        self.result = Result(arrays=initial, evaluate_metrics_serverapp=self.evaluator.records)
        self.begin = self.accompanied = time.monotonic()  # the latter: when a node was last connected
        # What the log last said: when no node was connected, and how many nodes may fail without stopping the run.
        self.told, self.spare = float("-inf"), 1
        self.initial: dict[str, float] | None = None  # metrics of the first model, until a step is recorded
        self.unpublished: Record | None = None  # of a step that was saved, but not yet evaluated
        self.journal = Journal(options.folder, options, steps, self.layout.digest) if options.folder else None

    def now(self) -> float:
        """Seconds since the run began."""
        return time.monotonic() - self.begin

    def state(self) -> State:
        """Return what a new start needs to continue."""
        tensors, values = save_server(self.server)
        values |= {
            "key": self.key.hex(),
            "next_id": self.server.ledger.next_id,
            "nodes": self.roster.nodes,
            "absent": self.roster.absent,
            "sent": {id: sent for id, sent in self.sent.items() if id in self.server.updates},
            "ends": self.ends,
            "now": self.now(),
            "unpublished": self.unpublished and to_json(self.unpublished.as_dict()),
            **{name: getattr(self.progress, name) for name in COUNTERS},
        }
        return tensors, values

    def load_state(self, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> int:
        """Continue from a saved state. Return the number of server steps that are done."""
        server, schedule = self.server, self.options.schedule
        saved = SavedRun.parse(values, schedule.buffer)
        load_server(server, tensors, values)
        self.roster.restore(saved.nodes, saved.absent)
        server.ledger.clients = len(saved.nodes)
        server.ledger.resume(server.state.version, saved.buffer, saved.next_id, saved.waiting)
        self.progress, self.sent, self.ends = saved.progress, saved.sent, saved.ends
        self.key, self.unpublished = saved.key or self.key, saved.unpublished
        self.begin -= saved.now
        done = server.state.version - bool(saved.unpublished)
        self.evaluator.continue_after(done, done * schedule.buffer, saved.now)
        return server.state.version

    def _open(self) -> None:
        """Continue the run in the folder, or begin a new one."""
        if not (self.journal and self.journal.open(self.load_state)):
            self.server.start()  # assigns no jobs yet: no node has joined
            return
        log(INFO, "%s: continues after %s", self.journal.folder, self.progress.describe(self.server))
        if self.journal.damaged:
            self._settle_damage(self.journal)

    def _settle_damage(self, journal: Journal) -> None:
        """Continue from an older checkpoint. A step after it may have been released, so its privacy is charged."""
        if self.server.accountant:
            ledger = self.server.ledger
            self.server.accountant.add_unknown(job.client for job in (*ledger.buffer, *ledger.waiting))
            text = "%s: a step may have been lost after its model was sent; its privacy is charged"
            log(WARNING, text, journal.folder)
            journal.checkpoint(self.progress.updates, self.state())
        journal.remove_damaged()

    def play(self, timeout: float) -> Result:
        """Train until all steps are done, and return the result."""
        try_one_step(self.server)
        self._open()
        try:
            return self._play(timeout)
        except Diverged as error:
            if self.journal:
                self.journal.mark_diverged(str(error), self.now())
            raise
        finally:
            if self.journal:
                self.journal.close()

    def _play(self, timeout: float) -> Result:
        server, steps = self.server, self.steps
        if not (self.evaluator.is_idle or server.state.version):
            self.initial = self._evaluate(0)
        if self.unpublished and self.journal:
            self._publish(self.unpublished)
            self.journal.checkpoint(self.progress.updates, self.state())
        last_step = time.monotonic()
        last_look = float("-inf")
        while server.state.version < steps:
            if time.monotonic() - last_look > 1.0:
                self._update_roster()
                last_look = time.monotonic()
            self._wait_for_nodes()
            done = server.state.version
            replies = list(self.grid.pull_messages(list(self.mailbox.under_way))) if self.mailbox.under_way else []
            for reply in replies:
                self._take(reply)
                if server.state.version >= steps:
                    break
            self._expire()
            if server.state.version > done:
                last_step = time.monotonic()
            elif time.monotonic() - last_step > timeout:
                raise RuntimeError(f"no server step in {timeout:.0f} s: giving up")
            if not replies:
                time.sleep(self.options.poll)
        self.result.arrays = self.layout.to_record(server.model)
        if self.journal:
            self.journal.finish(self.result.arrays.to_torch_state_dict(), self.now(), self.key.hex())
        place = f"kept in {self.journal.folder}" if self.journal else "not kept: no folder was given"
        log(INFO, "finished: %s; %s", self.progress.describe(server), place)
        return self.result

    def _update_roster(self) -> None:
        """Admit nodes that have connected, and give no more work to those that are gone."""
        server, roster, ids = self.server, self.roster, set(self.grid.get_node_ids())
        for client in sorted(roster.present):
            if roster.nodes[client] not in ids:
                self._lose(client)
        busy = [job.client for job in server.ledger.running.values()]
        reported = [job.client for job in (*server.ledger.buffer, *server.ledger.waiting)]
        waiting = [*reported, *(client for client in busy if client not in roster.present)]
        for client in roster.admit(ids, busy):
            if server.accountant:
                server.accountant.admit(client, waiting, self.options.schedule.buffer)
        coming = [client for client in roster.absent if roster.nodes[client] in ids]
        for client in sorted(coming, key=lambda client: (client in reported, client)):  # a round needs the others more
            roster.join(client)
            self._send(server.join(client))
        self._warn_of_few_nodes()

    def _warn_of_few_nodes(self) -> None:
        """Log if the connected nodes cannot fill the buffer, or none may fail, because of the limit per client."""
        schedule, nodes = self.options.schedule, len(self.roster.present)
        spare = nodes - schedule.clients_per_step
        if nodes and spare < 1 and spare != self.spare:
            text = "%d nodes with per_client = %d cannot fill a buffer of %d: waiting for more nodes"
            if spare == 0:
                text = "%d nodes with per_client = %d just fill a buffer of %d: one that fails stops the run"
            log(WARNING, text, nodes, schedule.per_client, schedule.buffer)
        self.spare = spare

    def _lose(self, client: int) -> None:
        """A node cannot be reached: it gets no work until it is back, but may still answer."""
        if self.roster.leave(client):
            self.server.ledger.leave(client)

    def _wait_for_nodes(self) -> None:
        """If no node is connected, log that every ten seconds, and give up after `patience` seconds."""
        now, patience = time.monotonic(), self.options.patience
        if self.roster.present or self.mailbox.under_way:
            self.accompanied, self.told = now, float("-inf")
        elif now - self.accompanied > patience:
            raise RuntimeError(f"no node was connected for {patience:.0f} s: giving up")
        elif now - self.told >= 10:
            log(WARNING, "no node is connected: waiting (%.0f of %.0f s)", now - self.accompanied, patience)
            self.told = now

    def _send(self, jobs: list[Job]) -> None:
        options, waiting = self.options, deque(jobs)
        while waiting:
            job = waiting.popleft()
            start, node, seed = self.server.base[job.id], self.roster.nodes[job.client], job_seed(self.key, job.id)
            arrays, beside = self.layout.to_record(start), self.layout.to_vector_records(start)
            message = train_message(job, node, arrays, self.train_config, seed, options.deadline, beside)
            # Push one at a time: for a rejected message the grid returns no id or an empty one.
            ids = [id for id in self.grid.push_messages([message]) if id]
            if ids:
                self.mailbox.add(ids[0], job, node, time.monotonic())
                self.sent[job.id] = self.now()
            else:
                self._lose(job.client)
                waiting += self._drop(job, "not sent")

    def _take(self, reply: Message) -> None:
        id, sender = reply.metadata.reply_to_message_id, reply.metadata.src_node_id
        if id not in self.mailbox.under_way:
            reason = self.server.refuse_late(self.mailbox.jobs.get(id))
            log(WARNING, "a reply of node %s is refused: %s", sender, reason)
            return
        node = self.mailbox.asked[id]
        is_notice = sender == SUPERLINK_NODE_ID and reply.has_error()  # the SuperLink says that a node is gone
        if sender != node and not is_notice:  # Flower refuses such replies too
            self.server.refused["wrong node"] += 1
            log(WARNING, "a reply of node %s is refused: node %s was asked", sender, node)
            return
        job = self.mailbox.remove(id)
        if reply.has_error():
            code = reply.error.code
            if code == ErrorCode.NODE_UNAVAILABLE:
                self._lose(job.client)
            self._send(self._drop(job, error_reason(code), reply.error.reason or ""))
            return
        try:
            base, exchange = self.server.base[job.id], self.server.algorithm.exchange
            update = parse_reply(job, reply.content, base, self.layout, self.options.reply, exchange)
        except Exception as error:  # nothing that a client sends may end the run
            self._send(self._drop(job, "malformed", f"{type(error).__name__} {error}"))
            return
        self._receive(update)

    def _receive(self, update: Update) -> None:
        job = update.job
        received = self.server.receive(update)
        for removed, reason in received.removed:
            log(WARNING, "the update of %s is taken out of the buffer: %s", self._name(removed), reason)
            self._take_span(removed)
        self.progress.removed += len(received.removed)
        if received.refused:
            level = INFO if received.refused == TOO_EARLY else WARNING
            log(level, "the update of %s is refused: %s", self._name(job), received.refused)
            self.sent.pop(job.id)
            if received.refused != TOO_EARLY:
                self._count_failure("refused")
        else:
            self.failures.clear()
            self.progress.accept()
            self.ends[job.id] = self.now()
            if received.step:
                self._record(received)
        if self.journal:
            self.journal.checkpoint(self.progress.updates, self.state())  # before anything else can go wrong
        self._send(received.jobs)

    def _name(self, job: Job) -> str:
        """Return a job and its node, for the log."""
        return f"{job} of node {self.roster.nodes[job.client]}"

    def _drop(self, job: Job, reason: str, text: str = "") -> list[Job]:
        """End a job without an update. Return the jobs to send now, because its slot is refilled."""
        log(WARNING, "%s ended without an update: %s %s", self._name(job), reason, " ".join(text.split())[:200])
        self.sent.pop(job.id, None)
        self.progress.end_job(reason)
        if reason not in ("expired", "not sent"):  # unreachable nodes are counted by `_wait_for_nodes`
            self._count_failure("dropped")
        return self.server.drop(job, reason)

    def _count_failure(self, kind: str) -> None:
        """Give up after many failures of one kind, unless a node still trains a job sent before the first failure.

        If updates come but none is accepted, training has diverged. Failing nodes do not count as divergence.
        """
        if not self.failures:
            self.streak = self.server.ledger.next_id
        self.failures[kind] += 1
        patience = self.options.schedule.patience
        if self.failures[kind] <= patience or any(job.id < self.streak for job in self.mailbox.awaited):
            return
        if kind == "refused":
            raise self.server.gave_up(self.failures[kind])
        raise RuntimeError(f"the last {patience} jobs all failed: giving up")

    def _expire(self) -> None:
        """End jobs that missed their deadline, so that a node that never answers keeps no slot."""
        for id in self.mailbox.sent_before(time.monotonic() - self.options.deadline):
            self._send(self._drop(self.mailbox.remove(id), "expired", f"after {self.options.deadline:.0f} s"))

    def _record(self, received: Received) -> None:
        """Record a server step that was just taken."""
        step, eta, now, loss = received.step, received.eta, self.now(), mean_loss(received.updates)
        assert step is not None
        assert eta is not None
        if self.journal and self.initial:
            self.journal.append(initial_record(self.initial))
        self.initial = None
        record = self.progress.record(
            self.server, step, eta, self._take_span, time=now, wall=now, train_loss=loss, metrics=None
        )
        if self.server.accountant and self.journal:  # the noisy model is on disk before anybody sees it
            self.unpublished = record
            self.journal.checkpoint(self.progress.updates, self.state())
        self._publish(record)

    def _publish(self, record: Record) -> None:
        """Evaluate the model, if that is due, and write the record of its step."""
        done, loss, delays = record.step, record.train_loss, [job.tau for job in record.jobs]
        metrics = self._evaluate(done) if self.evaluator.is_due(record) else None
        self.result.train_metrics_clientapp[done] = MetricRecord({"train_loss": loss})
        spent = " epsilon {epsilon:.4g} at delta {delta:g}".format(**record.privacy) if record.privacy else ""
        log(INFO, "step %d: tau %s, train loss %.4f %s%s", done, delays, loss, metrics or "", spent)
        if self.journal:
            self.journal.append(replace(record, metrics=metrics, time=self.now(), wall=self.now()))
        self.unpublished = None

    def _take_span(self, job: Job) -> Span:
        return self.sent.pop(job.id, 0.0), self.ends.pop(job.id, 0.0)

    def _evaluate(self, step: int) -> dict[str, float] | None:
        begin = time.monotonic()
        metrics = self.evaluator.measure(step, self.layout.to_record(self.server.model))
        self.accompanied += (took := time.monotonic() - begin)  # nobody listened to the nodes meanwhile
        self.mailbox.postpone(took)
        return metrics
