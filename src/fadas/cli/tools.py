"""Commands about fadas itself: list, bench."""

import inspect
import math
from typing import Annotated, Any

import typer

from fadas.cli import signals
from fadas.cli.completion import complete_benchmark
from fadas.cli.options import Json, check_option, with_examples
from fadas.errors import unknown_name
from fadas.validate import MOST_SCALE


def list_(
    kind: Annotated[
        str | None, typer.Argument(metavar="KIND", help="Only this kind, such as tasks. Default: all.")
    ] = None,
) -> None:
    """List what an experiment can use: algorithms and their parts, delay models, tasks, executors and sinks."""
    from fadas.algorithms.combine import COMBINES
    from fadas.algorithms.companions import COMPANIONS
    from fadas.algorithms.optimizers import OPTIMIZERS
    from fadas.algorithms.presets import ALGORITHMS
    from fadas.algorithms.step_sizes import STEP_SIZES
    from fadas.cli.terminal import print_table
    from fadas.executors import EXECUTORS
    from fadas.runs.sinks import SINKS
    from fadas.simulation.delays import DELAYS
    from fadas.tasks import TASKS
    from fadas.training import LOCAL_TRAINERS, RATE_SCHEDULES, STEP_LAWS

    registries = {
        "algorithms": ALGORITHMS,
        "combine rules": COMBINES,
        "optimizers": OPTIMIZERS,
        "step sizes": STEP_SIZES,
        "companions": COMPANIONS,
        "delays": DELAYS,
        "local trainers": LOCAL_TRAINERS,
        "rate schedules": RATE_SCHEDULES,
        "step laws": STEP_LAWS,
        "tasks": TASKS,
        "executors": EXECUTORS,
        "sinks": SINKS,
    }
    if kind is not None and kind not in registries:
        raise unknown_name("kind", kind, registries)
    for title, registry in registries.items():
        if kind in (None, title):
            print_table([title, "", "parameters"], [[name, *_about(make)] for name, make in registry.items()])


def _about(make: Any) -> tuple[str, str]:
    """Return the first line of a registry entry's docstring, and its parameters with their defaults."""
    text = (getattr(make, "func", make).__doc__ or "").partition("\n")[0]
    parameters = [p for p in inspect.signature(make).parameters.values() if p.name not in ("task", "local", "seed")]
    shown = (str, bool, int, float, tuple, type(None))  # types of the defaults that are shown
    return text, ", ".join(f"{p.name}={p.default}" if isinstance(p.default, shown) else p.name for p in parameters)


def bench(
    what: Annotated[
        str, typer.Argument(metavar="cpu|gpu|ray|plan", help="The benchmark.", autocompletion=complete_benchmark)
    ] = "cpu",
    scale: Annotated[float, typer.Option(min=0.001, help="Multiply the workload, e.g. 0.1 for a short trial.")] = 1.0,
    json_: Json = False,
) -> None:
    """Measure speed and memory on this machine. Speed is relative to a plain baseline in the same run.

    `cpu`, `gpu` and `ray` compare executors with plain PyTorch. `plan` measures the planner with up to a million
    clients.
    """
    import platform

    if not math.isfinite(scale):
        raise typer.BadParameter(f"--scale must be a finite number, got {scale}")
    check_option(MOST_SCALE, scale=math.ceil(scale))
    import torch

    from fadas.cli.bench import BENCHES
    from fadas.cli.bench.machine import free_share, warn_if_busy
    from fadas.cli.terminal import print_json, print_table
    from fadas.experiments.provenance import commit, versions
    from fadas.registry import lookup

    source = {
        "versions": versions(),
        "commit": commit(),
    }  # read first: the working tree may change during the benchmark
    measure, cores = lookup(BENCHES, "benchmark", what), torch.get_num_threads()
    signals.require_cleanup()
    free = free_share(cores)
    tables = measure(scale)
    free = min(free, free_share(cores))
    warn_if_busy(free, cores)
    machine = {"threads": cores, "processor": platform.machine(), "free_share": round(free, 2)}
    if torch.cuda.is_available():
        machine["gpu"] = torch.cuda.get_device_name()
    if json_:
        print_json({"bench": what, **source, "machine": machine, "scale": scale, "tables": tables})
        return
    for title, rows in tables.items():
        text = [
            [value if isinstance(value, str) else f"{value:,.2f}".removesuffix(".00") for value in row.values()]
            for row in rows
        ]
        print_table([name.replace("_", " ") for name in rows[0]], text, title)


def add_to(app: typer.Typer) -> None:
    """Add these commands to the app."""
    app.command("list", epilog=with_examples("fadas list", "fadas list tasks"))(list_)
    app.command(epilog=with_examples("fadas bench cpu --json", "fadas bench plan --scale 0.1"))(bench)
