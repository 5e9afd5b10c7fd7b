"""Run a simulation and write its folder: resume, checkpoints, signals, divergence, a full disk."""

import signal
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save

from fadas.core.records import Record, clients_record
from fadas.errors import NO_SPACE, ConfigError, DiskFull, Diverged, FadasWarning, Interrupted, first_line
from fadas.executors.torch_settings import torch_threads
from fadas.experiments.provenance import provenance
from fadas.experiments.settings import RunConfig
from fadas.report.run_figures import save_run_figures
from fadas.runs.checkpoint import BackgroundWriter, read_checkpoint
from fadas.runs.folder import CLIENTS, METRICS, MODEL, PARTITION, Claim, checkpoints
from fadas.runs.reader import read_clients_records, written_records
from fadas.runs.serialization import atomic_file
from fadas.runs.sinks import Sink, make_sinks
from fadas.runs.summary import Outcome, Summary, Tally
from fadas.runs.writer import NOTHING, Writer, valid_clients_length, valid_length
from fadas.simulation.simulator import Simulation
from fadas.simulation.snapshot import restore, take

OnRecord = Callable[[Record], None]
Say = Callable[[str], None]
_MOST_CLIENTS = 200_000  # whose tiers are written
SMALL = 200_000  # parameters: for smaller models, more threads would only wait for each other


def execute(
    config: RunConfig,
    simulation: Simulation,
    claim: Claim,
    on_record: OnRecord = lambda record: None,
    say: Say = lambda text: None,
    sinks: Sequence[Sink] = (),
) -> Summary:
    """Run a simulation to its end, write its folder and return its summary.

    With a claim in the mode "resume", the run continues from its last good checkpoint. A run that diverges is finished
    too: its summary says so, and there is no model.

    Args:
        config: The run's settings.
        simulation: The run, from `make_simulation`.
        claim: The right to write the run's folder, from `fadas.runs.folder.claim`. It is released at the end.
        on_record: A function that receives the record of each server step.
        say: A function that receives messages.
        sinks: Other receivers of the records, besides those in the run's settings.

    Raises:
        Interrupted: The run was stopped by Ctrl-C or SIGTERM. Its checkpoint is on disk.
        DiskFull: The disk is full. The last checkpoint is intact.
        ConfigError: The module, the loss or the data failed within the run.

    Example:
        >>> claimed = claim(Path("runs/mine/fadas-0"), config.tables)
        >>> summary = execute(config, make_simulation(config, task, make_plan(config, task)), claimed)
    """
    summary = execute_until(config, simulation, claim, None, on_record, say, sinks)
    assert isinstance(summary, Summary)
    return summary


def execute_until(
    config: RunConfig,
    simulation: Simulation,
    claim: Claim,
    pause_at: float | None,
    on_record: OnRecord = lambda record: None,
    say: Say = lambda text: None,
    sinks: Sequence[Sink] = (),
) -> Outcome:
    """Like `execute`, but pause after `pause_at` client updates.

    A paused run leaves a checkpoint. Returns the outcome so far instead of a summary.
    """
    with _stop_on_signals(simulation):
        try:
            run = _Execution(config, simulation, claim, say, sinks)
        except BaseException:
            claim.release()
            raise
        try:
            with torch_threads(training_threads(config, simulation)):
                return run.play(on_record, pause_at)
        except OSError as error:
            if error.errno not in NO_SPACE:
                raise
            raise run.disk_full(error) from None
        except (ConfigError, Interrupted):
            raise
        except Exception as error:  # the module, the loss and the data may be the user's own
            raise run.failed(error) from error
        finally:
            run.close()


def iterate(config: RunConfig, simulation: Simulation, claim: Claim, sinks: Sequence[Sink] = ()) -> Iterator[Record]:
    """Yield the records of a run while it writes its folder. Those that are on disk already come first.

    An iteration that is ended early leaves a checkpoint.

    Args:
        config: The run's settings.
        simulation: The run.
        claim: The right to write the run's folder. It is released at the end.
        sinks: Other receivers of the records, besides those in the run's settings.

    Raises:
        Diverged: Training diverged. The summary says so.
    """
    try:
        run = _Execution(config, simulation, claim, lambda text: None, sinks)
    except BaseException:
        claim.release()
        raise
    try:
        yield from [record for record in written_records(claim.folder) if record.step]
        yield from run.records()
        if not simulation.complete:
            run.save_now()
        elif (summary := run.end()).diverged is not None:
            raise Diverged(summary.diverged)
    except GeneratorExit:
        if not simulation.complete:
            run.save_now()
        raise
    finally:
        run.close()


def training_threads(config: RunConfig, simulation: Simulation) -> int:
    """Return the number of torch threads with which this process runs a simulation."""
    small = simulation.server.model.params.numel() < SMALL
    return config.threads or (1 if small else torch.get_num_threads())


class _Execution:
    """One run: the simulation, the folder that is written, and the checkpoints."""

    def __init__(
        self, config: RunConfig, simulation: Simulation, claim: Claim, say: Say, sinks: Sequence[Sink]
    ) -> None:
        self.config, self.simulation, self.folder = config, simulation, claim.folder
        self.origin = provenance(config)  # before training: the tree may change meanwhile
        self.commits = [self.origin["commit"]]
        sinks = make_sinks([*config.run.sinks, *sinks], "run.sinks")
        self.kept_clients = 0  # bytes of clients.jsonl
        kept = self._restore(say) if claim.mode == "resume" else None
        if kept is None:
            check_target(simulation, config.run.target, config.run.metric is not None, f"{config.id}: run.target")
        if kept is None and claim.mode != "overwrite" and (self.folder / METRICS).exists():
            say(f"{self.folder}: no usable checkpoint found; starting over")
        self.writer = Writer(claim, kept, sinks, save_run_figures, self.kept_clients)
        self.tally, self.last = Tally(config.run.target, simulation.metric), None
        for record in () if kept is None else written_records(self.folder):
            self.tally.add(record)
            self.last = record
        before = read_clients_records(self.folder / CLIENTS)
        self.clients_step = before[-1].step if before else 0  # of the last evaluation of the clients
        self.keeps_best = config.run.keep == "best"
        self.checkpoints = BackgroundWriter()
        self.save_is_due = False
        self.diverged: str | None = None
        tiers = simulation.plan.tiers if simulation.plan.clients <= _MOST_CLIENTS else None
        if partition := {k: v for k, v in (("counts", simulation.task.label_counts()), ("tiers", tiers)) if v}:
            self.writer.write_json(PARTITION, partition)

    def play(self, on_record: OnRecord, pause_at: float | None) -> Outcome:
        simulation = self.simulation
        for record in self.records():
            on_record(record)
            if pause_at is not None and record.updates >= pause_at and not simulation.complete:
                return self._pause()
        if self.diverged is None and not simulation.complete:
            step = self.save_now()
            raise Interrupted(f"interrupted after step {step}, kept in {self.folder}")
        return self.end()

    def records(self) -> Iterator[Record]:
        """Train, write each record and yield it. Save a checkpoint when one is due."""
        simulation, patience = self.simulation, self.config.run.patience
        if self.tally.is_empty and (initial := simulation.initial):
            self._take(initial)
        try:
            for record in simulation.records():
                self._take(record)
                if patience and self.tally.since_best >= patience:
                    simulation.complete = True
                yield record
                self._save_if_due(record.step)
        except Diverged as error:
            self.diverged = str(error)
            simulation.complete = True

    def end(self) -> Summary:
        """End a run that is complete."""
        simulation = self.simulation
        if self.diverged is not None:
            return self._finish(self.diverged)
        if self.tally.lacks_evaluation:  # an update refused after this record made it the last
            self.writer.replace_last(self.tally.add_evaluation(simulation.metrics))
        self._take_clients()  # the last model is evaluated in any case
        self.writer.require_held()
        if not self.keeps_best or self.tally.best is None or self.tally.best_step == self.tally.step:
            _save_model(simulation, self.folder)
        return self._finish()

    def _take(self, record: Record) -> None:
        """Add a record to the results and to the files. Save the model if it is the best so far."""
        self.tally.add(record)
        self.writer.append(record)
        self.last = record
        self._take_clients()
        if self.keeps_best and record.metrics and self.tally.best_step == record.step:
            _save_model(self.simulation, self.folder)

    def _take_clients(self) -> None:
        """Write the evaluation of the clients after the last record, if there is one that is not written yet."""
        measured, last = self.simulation.clients_metrics, self.last
        if measured and last and last.step > self.clients_step:
            self.clients_step = last.step
            self.writer.append_clients(clients_record(last.step, last.updates, last.time, measured))

    def _save_if_due(self, step: int) -> None:
        every = self.config.run.checkpoint_every
        self.save_is_due = self.save_is_due or bool(every and step % every == 0)
        if self.save_is_due and not self.simulation.complete and self.checkpoints.ready():
            self._save()
            self.save_is_due = False

    def _save(self) -> int:
        tensors, values = take(self.simulation)
        values |= {"metrics": self.writer.mark(), "clients": self.writer.mark_clients(), "commits": self.commits}
        self.checkpoints.write(self.folder, values["version"], tensors, values)
        return values["version"]

    def save_now(self) -> int:
        step = self._save()
        self.checkpoints.wait()
        return step

    def _pause(self) -> Outcome:
        step = self.save_now()
        if self.simulation.stopped:
            raise Interrupted(f"interrupted after step {step}, kept in {self.folder}")
        for older in checkpoints(self.folder)[1:]:  # many runs may be paused: one checkpoint each is enough
            older.unlink(missing_ok=True)
        return self.tally.outcome()

    def _finish(self, diverged: str | None = None) -> Summary:
        config, origin = self.config, {**self.origin, "commit": ", ".join(self.commits)}
        summary = Summary(
            experiment=config.experiment,
            algorithm=config.label,
            seed=config.seed,
            place=config.place,
            **vars(self.tally.outcome(diverged, with_best=bool(self.keeps_best or config.run.patience))),
            wall=self.simulation.progress.wall,
            **origin,
        )
        self.checkpoints.wait()
        self.writer.finish(summary)
        return summary

    def close(self) -> None:
        self.checkpoints.close()
        with suppress(OSError):
            self.writer.close()

    def disk_full(self, error: OSError) -> DiskFull:
        last = next(iter(checkpoints(self.folder)), None)
        rest = f"{last.name} is intact" if last else "there is no checkpoint yet"
        return DiskFull(f"{self.folder}: {error.strerror} after step {self.tally.step}; {rest}")

    def failed(self, error: Exception) -> ConfigError:
        text = first_line(error) if str(error) else "no reason given"
        return ConfigError(f"{self.folder}: failed after step {self.tally.step}: {type(error).__name__}: {text}")

    def _restore(self, say: Say) -> int | None:
        """Bring the simulation to the newest good checkpoint. Return how much of metrics.jsonl belongs to it."""
        for path in checkpoints(self.folder):
            try:
                tensors, values = read_checkpoint(path)
                kept, commits = valid_length(self.folder, values["metrics"]), map(str, values.get("commits", []))
                kept_clients = valid_clients_length(self.folder, values.get("clients", NOTHING))
                restore(self.simulation, tensors, values)
            except (ValueError, KeyError, TypeError, IndexError, AttributeError, OSError) as error:
                say(f"{path} cannot be used: {error}")
                continue
            self.kept_clients = kept_clients
            self.commits = list(dict.fromkeys([*commits, *self.commits]))  # other code may have begun the run
            say(f"{self.folder}: continued after step {values['version']}")
            return kept
        return None


@contextmanager
def _stop_on_signals(simulation: Simulation) -> Iterator[None]:
    """Let Ctrl-C and SIGTERM end the run after the current update, and a second one end it at once.

    A signal that comes too late, while a run that is complete writes its summary, is sent again at the end.
    """
    received: list[int] = []

    def handle(number: int, frame: Any) -> None:
        if simulation.stopped:
            raise KeyboardInterrupt
        received.append(number)
        simulation.stop()

    before: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            if signal.getsignal(number) is not signal.SIG_IGN:
                before[number] = signal.signal(number, handle)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if received:
        signal.raise_signal(received[0])


def check_target(simulation: Simulation, target: float | None, chosen: bool, where: str) -> None:
    """Find a target that the initial model reaches already, as it does if the metric's direction is mistaken.

    Args:
        simulation: The simulation, before it starts.
        target: The target. None: there is none.
        chosen: Whether the user chose the metric. Then this is an error, else a warning.
        where: What to call the target: "fadas-1: run.target".

    Raises:
        ConfigError: The target is reached before the run.
    """
    initial = simulation.initial if target is not None else None
    if target is None or initial is None or not (why := simulation.metric.why_reached(target, initial.metrics)):
        return
    problem = f"{where} = {target:g} is reached before the run: {why}"
    if chosen:
        raise ConfigError(problem)
    warnings.warn(problem, FadasWarning, stacklevel=2)


def _save_model(simulation: Simulation, folder: Path) -> None:
    if simulation.task.save:
        simulation.task.save(simulation.module(), folder)
        return
    state = {name: tensor.cpu().contiguous() for name, tensor in simulation.state_dict().items()}
    with atomic_file(folder / MODEL) as file:
        file.write(save(state))
