"""Commands about fadas itself: list, bench."""

import inspect
import math
from typing import Annotated, Any

import typer

from fadas.cli.options import Json


def list_() -> None:
    """List the algorithms and the parts they are made of, delay models, tasks and executors."""
    from fadas.algorithms.combine import COMBINES
    from fadas.algorithms.optimizers import OPTIMIZERS
    from fadas.algorithms.presets import ALGORITHMS
    from fadas.algorithms.step_sizes import STEP_SIZES
    from fadas.cli.terminal import print_table
    from fadas.executors import EXECUTORS
    from fadas.simulation.delays import DELAYS
    from fadas.tasks import TASKS

    registries = {
        "algorithms": ALGORITHMS,
        "combine rules": COMBINES,
        "optimizers": OPTIMIZERS,
        "step sizes": STEP_SIZES,
        "delays": DELAYS,
        "tasks": TASKS,
        "executors": EXECUTORS,
    }
    for kind, registry in registries.items():
        print_table([kind, "", "parameters"], [[name, *_about(make)] for name, make in registry.items()])


def _about(make: Any) -> tuple[str, str]:
    """The first line of what a registry's entry says of itself, and its parameters with their defaults."""
    text = (getattr(make, "func", make).__doc__ or "").partition("\n")[0]
    taken = [p for p in inspect.signature(make).parameters.values() if p.name not in ("task", "local", "seed")]
    plain = (str, bool, int, float, tuple, type(None))
    return text, ", ".join(f"{p.name}={p.default}" if isinstance(p.default, plain) else p.name for p in taken)


def bench(
    what: Annotated[str, typer.Argument(metavar="cpu|gpu|ray|plan")] = "cpu",
    scale: Annotated[float, typer.Option(min=0.001, help="Shrink or grow the workload.")] = 1.0,
    json_: Json = False,
) -> None:
    """Measure fadas on this machine: ratios against a plain baseline in the same run, and memory.

    cpu, gpu, ray: executors against plain PyTorch. plan: planning at scale.
    """
    import platform

    import torch

    if not math.isfinite(scale):
        raise typer.BadParameter(f"--scale must be a finite number, not {scale}")
    from fadas.cli.bench import BENCHES
    from fadas.cli.terminal import print_json, print_table
    from fadas.experiments.provenance import commit, versions
    from fadas.registry import lookup

    source = {"versions": versions(), "commit": commit()}  # asked first: the tree may change meanwhile
    tables = lookup(BENCHES, "benchmark", what)(scale)
    machine = {"threads": torch.get_num_threads(), "processor": platform.machine()}
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
    app.command("list", epilog="Example: `fadas list`")(list_)
    app.command(epilog="Example: `fadas bench cpu --json`")(bench)
