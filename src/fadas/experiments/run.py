"""From a run's settings to its folder: plan, simulate, write."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save

from fadas.core.ledger import Job
from fadas.core.records import Record
from fadas.core.trial_step import rehearse_step
from fadas.errors import FULL, ConfigError, Diverged, Interrupted
from fadas.executors.torch_settings import threads
from fadas.experiments.provenance import provenance
from fadas.experiments.resolve import RunConfig
from fadas.runs import checkpoint
from fadas.runs import writer as runs
from fadas.runs.summary import summarise
from fadas.simulation.planner import Plan, plan
from fadas.simulation.simulator import Simulation, simulate
from fadas.simulation.snapshot import restore, take
from fadas.tasks import TASKS
from fadas.tasks.task import Task
from fadas.training.flat_module import FlatModule
from fadas.training.one_job import train

OnRecord = Callable[[Record], None]


def make_task(config: RunConfig) -> Task:
    """The run's task. A mistake in its settings or data is a ConfigError."""
    try:
        task = config.task()
    except (OSError, ValueError) as error:
        raise ConfigError(f"task: {error}") from error
    except Exception as error:
        if config.tables["task"]["name"] in TASKS:
            raise  # a fault of ours, not of the user's code
        raise ConfigError(f"task: {type(error).__name__}: {error}".splitlines()[0]) from error
    if not isinstance(task, Task):
        raise ConfigError(f"task: {config.tables['task']['name']} makes a {type(task).__name__}, not a Task")
    if len(task.clients) != config.clients:
        raise ConfigError(f"task.clients is {config.clients}, but the task has {len(task.clients)} clients")
    return task


def shared_task(config: RunConfig, tasks: dict[str, Task]) -> Task:
    """The run's task, or the one in `tasks` if it is the same: all methods of an experiment and seed share the data."""
    key = runs.to_json([config.seed, config.tables["task"]])
    if key not in tasks:
        tasks.clear()  # data may be large
        tasks[key] = make_task(config)
    return tasks[key]


def make_plan(config: RunConfig, task: Task | None = None) -> Plan:
    """The run's plan. Only delays that scale with the data need the task."""
    sizes = (task or make_task(config)).sizes if config.delays.scale_by_data else None
    limits = {"steps": config.run.steps, "updates": config.run.updates, "time": config.run.time}
    try:
        return plan(config.schedule, config.clients, config.delays, **limits, seed=config.seed, sizes=sizes)
    except ValueError as error:
        raise ConfigError(f"algorithms.{config.label}: {error}") from None
    except ArithmeticError:
        raise ConfigError("delays: with these parameters, durations are beyond all numbers") from None


def make_simulation(config: RunConfig, task: Task, timeline: Plan) -> Simulation:
    """Everything that can be wrong with a run shows here, before its folder is made."""
    target = config.run.target if config.run.stop_at_target else None
    check_device(config)
    rehearse(config, task)
    try:
        with threads(config.threads or torch.get_num_threads()):  # some executors have as many workers
            executor = config.executor(task, config.local, config.seed)
        return simulate(
            timeline,
            task,
            config.algorithm,
            config.local,
            executor=executor,
            eval_every=config.run.eval_every,
            target=target,
            checks=config.checks,
        )
    except (ValueError, RuntimeError, AssertionError) as error:  # torch's way to refuse a device
        raise ConfigError(f"executor: {str(error).splitlines()[0]}") from None


def check_device(config: RunConfig) -> None:
    try:
        torch.zeros(1, device=config.device).item()
    except Exception as error:  # torch has many ways to refuse a device
        text = str(error).splitlines()[0]
        raise ConfigError(f"executor.device: {config.device!r} cannot be used: {text}") from None


def rehearse(config: RunConfig, task: Task) -> None:
    """One local step, one server step and one evaluation on a little data, so that what does not fit shows now."""
    if config.run.target is not None and "accuracy" not in task.measured:
        raise ConfigError("run.target is an accuracy, which the task does not measure")
    jobs = [Job(k, k % config.clients, 0) for k in range(config.schedule.buffer)]
    local = replace(config.local, steps=1)
    few = None if task.test is None else [tensor[:2] for tensor in task.test]
    try:
        flat = FlatModule(task.module(config.seed), config.device)
        start = flat.read()
        update = train(flat, task, local, config.seed, jobs[0], start)
        after = rehearse_step(config.algorithm, start, [replace(update, job=job) for job in jobs], config.clients)
        checkpoint.check(after.slots)
        flat.load(after.model)
        replace(task, test=few).evaluate(flat.module)
    except Exception as error:  # the module, the loss and the algorithm's parts may be the user's own
        text = (str(error) or "no reason given").splitlines()[0]
        raise ConfigError(f"{config.label} cannot be trained: {type(error).__name__}: {text}") from error


def execute(
    config: RunConfig,
    simulation: Simulation,
    folder: Path,
    on_record: OnRecord,
    overwrite: bool = False,
    resume: bool = False,
    say: Callable[[str], None] = lambda text: None,
    pause_at: float | None = None,
) -> dict[str, Any]:
    """Run the simulation, write its folder, return its summary. With `resume`, go on from the last good checkpoint.

    A run that diverges is finished too: its summary says so, and there is no model.
    After `pause_at` client updates it ends with a checkpoint, and what it amounts to so far is returned.
    """
    origin = provenance(config)
    commits = [origin["commit"]]
    make_sink = _tensorboard() if config.run.tensorboard else None
    found = _resume(simulation, folder, say) if resume else None
    kept = found[0] if found else None
    if found:  # other code may have begun it
        commits = list(dict.fromkeys([*found[1], *commits]))
    lost = kept is None and not overwrite and (folder / "metrics.jsonl").exists()
    writer = runs.Writer(folder, config.tables, overwrite, kept, resume)
    if lost:
        say(f"{folder}: interrupted before, without a checkpoint that can be used; begun anew")
    lines = [] if kept is None else runs.read_lines(folder / "metrics.jsonl")
    sink = make_sink(folder) if make_sink else None
    if counts := simulation.task.label_counts():
        writer.write_json("partition.json", {"counts": counts})

    def save() -> int:
        tensors, values = take(simulation)
        behind.write(folder, values["version"], tensors, {**values, "metrics": writer.mark(), "commits": commits})
        return values["version"]

    small = simulation.server.model.params.numel() < 200_000  # threads would only wait for each other
    count = config.threads or (1 if small else torch.get_num_threads())
    every = config.run.checkpoint_every
    behind, due, diverged, paused = checkpoint.Behind(), False, None, False
    try:
        with threads(count), _interruptible(simulation):
            try:
                for record in simulation:
                    lines.append(record.as_dict())
                    writer.append(lines[-1])
                    if sink:
                        sink(record)
                    on_record(record)
                    due = due or bool(every and record.step % every == 0)
                    if due and not simulation.complete and behind.ready():
                        save()
                        due = False
                    paused = pause_at is not None and record.updates >= pause_at and not simulation.complete
                    if paused:
                        break
            except Diverged as error:
                diverged = str(error)
            else:
                if not simulation.complete:
                    step = save()
                    behind.wait()
                    if paused and not simulation.stopped:
                        for older in checkpoint.found(folder)[1:]:  # many may wait: one of each will do
                            older.unlink(missing_ok=True)
                        return summarise(lines, config.run.target)
                    raise Interrupted(f"interrupted after step {step}, kept in {folder}")
                if lines[-1]["metrics"] is None:  # it became the last step after its record
                    lines[-1]["metrics"] = simulation.metrics
                    writer.amend(lines[-1])
                writer.check()
                _save_model(simulation, folder)
            summary = {
                "experiment": config.experiment,
                "algorithm": config.label,
                "seed": config.seed,
                "place": config.place,
                **summarise(lines, config.run.target, diverged),
                "wall": simulation.progress.wall,
                **origin,
                "commit": ", ".join(commits),
            }
            behind.wait()
            writer.finish(summary)
    except OSError as error:
        if error.errno not in FULL:
            raise
        last = next(iter(checkpoint.found(folder)), None)
        rest = f"{last.name} is intact" if last else "there is no checkpoint yet"
        raise ConfigError(f"{folder}: {error.strerror} after step {len(lines)}; {rest}", "full") from None
    except (ConfigError, Interrupted):
        raise
    except Exception as error:  # the module, the loss and the data may be the user's own
        text = (str(error) or "no reason given").splitlines()[0]
        raise ConfigError(f"{folder}: failed after step {len(lines)}: {type(error).__name__}: {text}") from error
    finally:
        behind.close()
        with suppress(OSError):
            writer.close()
    return summary


def _resume(simulation: Simulation, folder: Path, say: Callable[[str], None]) -> tuple[int, list[str]] | None:
    """Bring the simulation to the newest checkpoint that can be used.

    How much of metrics.jsonl belongs to it, and the commits whose code trained it.
    """
    for path in checkpoint.found(folder):
        try:
            tensors, values = checkpoint.read(path)
            kept, commits = runs.kept(folder, values["metrics"]), [str(one) for one in values.get("commits", [])]
            restore(simulation, tensors, values)
            say(f"{folder}: continued after step {values['version']}")
            return kept, commits
        except (ValueError, KeyError, TypeError, IndexError, AttributeError, OSError) as error:
            say(f"{path} cannot be used: {error}")
    return None


@contextmanager
def _interruptible(simulation: Simulation) -> Iterator[None]:
    """Ctrl-C and SIGTERM end the run after the update in hand; a second one ends it at once."""

    def handle(number: int, frame: Any) -> None:
        if simulation.stopped:
            raise KeyboardInterrupt
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


def _save_model(simulation: Simulation, folder: Path) -> None:
    if simulation.task.save:
        simulation.task.save(simulation.module(), folder)
    else:
        state = {name: tensor.cpu().contiguous() for name, tensor in simulation.state_dict().items()}
        (folder / "model.safetensors").write_bytes(save(state))  # save_file hides it from others, and hides OSErrors


def _tensorboard() -> Callable[[Path], OnRecord]:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise ConfigError("run.tensorboard needs the extra: pip install -e '.[tensorboard]' in a checkout") from None

    def make_sink(folder: Path) -> OnRecord:
        writer = SummaryWriter(str(folder))

        def sink(record: Record) -> None:
            values = {
                "eta": record.eta,
                "train/loss": record.train_loss,
                "tau_max": max(job.tau for job in record.jobs),
            }
            values |= {f"test/{name}": value for name, value in (record.metrics or {}).items()}
            for name, value in values.items():
                writer.add_scalar(name, value, record.step)
            writer.flush()

        return sink

    return make_sink
