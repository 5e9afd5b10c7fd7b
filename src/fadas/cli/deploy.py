"""Real deployments: `fadas deploy init` writes a Flower app."""

from pathlib import Path
from typing import Annotated, Any

import typer

from fadas.cli import signals

app = typer.Typer(help="Deploy with Flower.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Deploy with Flower."""


@app.command(epilog="Example: `fadas deploy init my-federation --task digits`")
def init(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder that does not exist yet.")],
    task: Annotated[str, typer.Option(help="The task to start with: digits, cifar10, ...")] = "digits",
) -> None:
    """Write a small, complete Flower app: three files and a pyproject.toml.

    To use your own data, start with any task and change app/task.py.
    """
    import re
    from importlib.resources import files
    from importlib.util import find_spec
    from shutil import rmtree

    from fadas.cli.terminal import print_line
    from fadas.errors import ConfigError, unknown_name
    from fadas.registry import parameters_of
    from fadas.tasks import TASKS

    if not find_spec("flwr"):
        raise ConfigError("fadas deploy needs Flower: run pip install -e '.[flower]' in a checkout")
    ready = [name for name, make in TASKS.items() if _required(parameters_of(make, name)[0]) <= {"clients"}]
    if task not in ready:
        raise unknown_name("task", task, ready)
    if folder.exists():
        raise ConfigError(f"{folder} exists already; choose another folder")
    name = re.sub(r"[^a-z0-9]+", "-", folder.resolve().name.lower()).strip("-") or "federation"
    source = files("fadas") / "flower" / "template"
    signals.require_cleanup()
    folder.mkdir(parents=True)
    try:
        (folder / "app").mkdir()
        for file in ("task.py", "client_app.py", "server_app.py", "pyproject.toml"):
            text = (source / f"{file}.txt").read_text(encoding="utf-8")
            text = text.replace("{task}", task).replace("{name}", name)
            path = folder / file if file.endswith("toml") else folder / "app" / file
            path.write_text(text, encoding="utf-8")
    except BaseException:  # no half of an app is left behind
        rmtree(folder, ignore_errors=True)
        raise
    print_line(f"{folder}: pyproject.toml, app/task.py, app/client_app.py, app/server_app.py")
    print_line("docs/how-to/deploy-simulation.md says how to run it")


def _required(parameters: Any) -> set[str]:
    """Return the names of the parameters without a default."""
    return {name for name, parameter in parameters.items() if parameter.default is parameter.empty}
