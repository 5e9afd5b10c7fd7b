"""Commands about fadas itself: list, bench."""

import inspect
from typing import Annotated, Any

import typer

from fadas.cli.experiments import Json


def list_() -> None:
    """List the algorithms and the parts they are made of, delay models, tasks and executors."""
    from fadas.algorithms import ALGORITHMS
    from fadas.combine import COMBINES
    from fadas.delays import DELAYS
    from fadas.executors import EXECUTORS
    from fadas.optim import OPTIMIZERS
    from fadas.stepsize import STEP_SIZES
    from fadas.tasks import TASKS
    from fadas.terminal import print_table

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
    what: Annotated[
        str, typer.Argument(help="plan: planning at scale. cpu: executors and a plain PyTorch loop.")
    ] = "cpu",
    scale: Annotated[float, typer.Option(min=0.001, help="Shrink or grow the workload.")] = 1.0,
    json_: Json = False,
) -> None:
    """Measure fadas on this machine."""
    from fadas.bench import BENCHES
    from fadas.build import lookup
    from fadas.terminal import print_json, print_table

    rows = lookup(BENCHES, "benchmark", what)(scale)
    if json_:
        print_json({"bench": what, "rows": rows})
        return
    text = [
        [value if isinstance(value, str) else f"{value:,.2f}".removesuffix(".00") for value in row.values()]
        for row in rows
    ]
    print_table(list(rows[0]), text, what)


def add_to(app: typer.Typer) -> None:
    app.command("list", epilog="Example: `fadas list`")(list_)
    app.command(epilog="Example: `fadas bench plan`")(bench)
