"""From a run's settings to its folder: plan, simulate, write."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save

from fadas.errors import FULL, ConfigError, Diverged, Interrupted
from fadas.executors.torch_settings import torch_threads
from fadas.experiments.prepare import OnRecord
from fadas.experiments.provenance import provenance
from fadas.experiments.settings import RunConfig
from fadas.runs import checkpoint
from fadas.runs import writer as runs
from fadas.runs.run_reader import read_lines
from fadas.runs.sinks import _tensorboard
from fadas.runs.summary import summarise
from fadas.simulation.simulator import Simulation
from fadas.simulation.snapshot import restore, take


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
    lines = [] if kept is None else read_lines(folder / "metrics.jsonl")
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
    behind, due, diverged, paused = checkpoint.BackgroundWriter(), False, None, False
    try:
        with torch_threads(count), _interruptible(simulation):
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
            tensors, values = checkpoint.read_checkpoint(path)
            kept, commits = (
                runs.valid_length(folder, values["metrics"]),
                [str(one) for one in values.get("commits", [])],
            )
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
