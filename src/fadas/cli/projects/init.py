"""fadas init: a small project to begin with."""

from enum import StrEnum
from importlib.resources import files
from pathlib import Path
from typing import Annotated

import typer

from fadas.cli.options import with_examples
from fadas.cli.projects.writing import fill_in, project_name, write_project


class Template(StrEnum):
    """The projects that `fadas init` writes. Each is a folder of `templates/`."""

    classification = "classification"
    regression = "regression"
    language = "language"
    method = "method"


def init(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new or empty folder.")],
    template: Annotated[Template, typer.Option(help="What the project shows.")] = Template.classification,
) -> None:
    """Write a small project with data and a model of your own: experiment.toml, task.py and README.md.

    | template | what it shows |
    |---|---|
    | `classification` | your own table of examples, divided among clients |
    | `regression` | a number to predict, with your own loss and metrics |
    | `language` | a small model that predicts the next character of a text |
    | `method` | your own server method, compared with FedBuff |

    Each runs as it is, in less than a minute on one core, and downloads nothing.
    """
    name = project_name(folder, "project")
    write_project(folder, {path: fill_in(text, name=name) for path, text in read_template(template.value).items()})


def read_template(name: str) -> dict[str, str]:
    """Return the files of a template. The project `method` has the task of `classification`."""
    root = files("fadas.cli.projects") / "templates"
    folders = [root / "classification", root / name] if name == "method" else [root / name]
    found = {path.name.removesuffix(".txt"): path for folder in folders for path in folder.iterdir()}
    return {name: found[name].read_text(encoding="utf-8") for name in sorted(found)}


def add_to(app: typer.Typer) -> None:
    """Add this command to the app."""
    app.command(epilog=with_examples("fadas init my-project", "fadas init my-method --template method"))(init)
