"""Real deployments: `fadas deploy init` writes a Flower app."""

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="Deploy with Flower.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Deploy with Flower."""


@app.command(epilog="Example: `fadas deploy init my-federation --task digits`")
def init(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder that does not exist yet.")],
    task: Annotated[str, typer.Option(help="The task to begin with: digits, cifar10, ...")] = "digits",
) -> None:
    """Write a complete, small Flower app: three files and a pyproject.toml.

    For data of your own, begin with any task and change app/task.py.
    """
    import re
    from importlib.resources import files

    from fadas.cli.terminal import print_line
    from fadas.errors import ConfigError, unknown_name
    from fadas.tasks import TASKS

    ready = [name for name in TASKS if name != "files"]  # which needs a folder and a network as well
    if task not in ready:
        raise unknown_name("task", task, ready)
    if folder.exists():
        raise ConfigError(f"{folder} exists already")
    name = re.sub(r"[^a-z0-9]+", "-", folder.resolve().name.lower()).strip("-") or "federation"
    source = files("fadas.flower") / "template"
    (folder / "app").mkdir(parents=True)
    for file in ("task.py", "client_app.py", "server_app.py", "pyproject.toml"):
        text = (source / f"{file}.txt").read_text(encoding="utf-8")
        text = text.replace("{task}", task).replace("{name}", name)
        path = folder / file if file.endswith("toml") else folder / "app" / file
        path.write_text(text, encoding="utf-8")
    print_line(f"{folder}: pyproject.toml, app/task.py, app/client_app.py, app/server_app.py; see docs/deploy.md")
