"""Real deployments: `fadas deploy init` writes a Flower app."""

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from fadas.cli.completion import complete_experiment, complete_task
from fadas.cli.options import AllowCode, read_tables, select_labels, set_environment, with_examples
from fadas.cli.projects.from_experiment import fill_settings
from fadas.cli.projects.writing import fill_in, project_name, write_project
from fadas.errors import ConfigError, first_line, unknown_name

_FILES = ("README.md", "pyproject.toml", "app/task.py", "app/client_app.py", "app/server_app.py")
_EXAMPLES = with_examples(
    "fadas deploy init my-federation",
    "fadas deploy init my-federation --from experiment.toml --only fadas",
)
app = typer.Typer(help="Deploy with Flower.", epilog=_EXAMPLES, no_args_is_help=True, rich_markup_mode="markdown")


@app.callback()
def _group() -> None:
    """Deploy with Flower."""


@app.command(epilog=_EXAMPLES)
def init(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new or empty folder.")],
    task: Annotated[
        str,
        typer.Option(
            help="The task: a name of `fadas list`, or your own as in an experiment, such as mytask:blobs.",
            autocompletion=complete_task,
        ),
    ] = "digits",
    experiment: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="X.toml",
            help="Take task, rates, schedule and algorithm from this experiment.",
            autocompletion=complete_experiment,
        ),
    ] = None,
    only: Annotated[str | None, typer.Option(metavar="A", help="The algorithm of the experiment to deploy.")] = None,
    allow_code: AllowCode = False,
) -> None:
    """Write a small, complete Flower app: README.md, pyproject.toml and three files in app/.

    A task or a method of your own is looked for in the current folder. Its module is copied into the app, with the
    modules of the folder that it imports.
    """
    from importlib.resources import files
    from importlib.util import find_spec

    from fadas.cli.terminal import print_line

    if not find_spec("flwr"):
        raise ConfigError("fadas deploy needs Flower: run pip install '.[flower]' in a checkout")
    settings: dict[str, Any] = {}
    if experiment:
        if task != "digits":
            raise ConfigError("--task and --from cannot be used together: the experiment names the task")
        set_environment(None, allow_code)
        settings = _read_experiment(experiment, only)
        task = settings["task"]
    elif only:
        raise ConfigError("--only needs --from, the experiment to take the algorithm from")
    own = _read_own("task", task) if ":" in task else {}
    if not own and not settings:
        _require_known(task)
    rows = "".join(f"| `{path}` | your own data and model |\n" for path in own)
    method = {path: text for kind, name in _methods(settings) for path, text in _read_own(kind, name).items()}
    rows += "".join(f"| `{path}` | your own method |\n" for path in method if path not in own)
    source = files("fadas") / "flower" / "template"
    texts = {path: (source / f"{path.removeprefix('app/')}.txt").read_text(encoding="utf-8") for path in _FILES}
    values = {"name": project_name(folder, "federation"), "task": task, "own": rows}
    filled = {path: fill_in(text, **values) for path, text in texts.items()}
    if settings:
        filled["pyproject.toml"] = fill_settings(filled["pyproject.toml"], settings)
        nodes = f"num-supernodes={settings['num-partitions']} "
        filled["README.md"] = filled["README.md"].replace("num-supernodes=8 ", nodes)
    write_project(folder, {**filled, **own, **method})
    print_line("first add [superlink.sim] to ~/.flwr/config.toml. flower-superlink needs a terminal of its own.")
    if own:
        print_line("data are not sent: the task must use absolute paths, or an environment variable")


def _read_experiment(path: Path, only: str | None) -> dict[str, Any]:
    """Return the app's settings for one algorithm of an experiment."""
    from fadas.cli.projects.from_experiment import app_settings

    tables = read_tables(path, [], None, None)
    labels = select_labels(tables, only)
    if len(labels) != 1:
        raise ConfigError(f"--only must choose one algorithm to deploy: {', '.join(labels)}")
    return app_settings(tables, labels[0])


def _require_known(task: str) -> None:
    """Refuse a task that fadas does not have, or that needs more than a number of clients."""
    from fadas.registry import parameters_of
    from fadas.tasks import TASKS

    ready = [name for name, make in TASKS.items() if _required(parameters_of(make, name)[0]) <= {"clients"}]
    if task not in ready:
        raise unknown_name("task", task, ready)


def _required(parameters: Any) -> set[str]:
    """Return the names of the parameters without a default."""
    return {name for name, parameter in parameters.items() if parameter.default is parameter.empty}


def _methods(settings: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the user's own code that the settings name as the method or its parts: kinds and names."""
    kinds = {"algorithm": "algorithm", "algorithm-combine": "combine rule"}
    kinds |= {"algorithm-optimizer": "optimizer", "algorithm-step-size": "step size"}
    return [(kind, settings[key]) for key, kind in kinds.items() if ":" in settings.get(key, "")]


def _read_own(kind: str, name: str) -> dict[str, str]:
    """Return the files of the module that has the user's own code, by path relative to the current folder.

    Nothing is imported: the app runs the code, not this command.
    """
    module, _, function = name.partition(":")
    path = Path(*module.split(".")).with_suffix(".py")
    try:
        text = path.read_text(encoding="utf-8")
        defined = [name for node in ast.parse(text).body for name in _names(node)]
    except (OSError, ValueError, SyntaxError) as error:
        raise ConfigError(f"{kind} {name!r}: cannot read {path} in the current folder: {first_line(error)}") from None
    if function not in defined:
        raise unknown_name("function", f"{module}:{function}", [f"{module}:{name}" for name in defined])
    found: dict[str, str] = {}
    _add_module(path, found)
    if any(Path(file).parts[0] in ("app", "app.py") for file in found):
        raise ConfigError(f"{kind} {name!r}: the app has a package called app; choose another name for yours")
    return found


def _add_module(path: Path, found: dict[str, str]) -> None:
    """Add a module, the packages around it, and what they import from the current folder."""
    packages = [parent / "__init__.py" for parent in path.parents if (parent / "__init__.py").is_file()]
    for file in (*packages, path):
        if file.as_posix() not in found:
            text = found[file.as_posix()] = file.read_text(encoding="utf-8")
            for imported in _imported_files(file, text):
                _add_module(imported, found)


def _imported_files(path: Path, text: str) -> Iterator[Path]:
    """Yield the files of the current folder that a module imports, wherever in it."""
    try:
        nodes = list(ast.walk(ast.parse(text)))
    except SyntaxError as error:
        raise ConfigError(f"cannot read {path}: {first_line(error)}") from None
    for node in nodes:
        if isinstance(node, ast.Import):
            names = [name.name.split(".") for name in node.names]
        elif isinstance(node, ast.ImportFrom):
            around = [] if not node.level else list(path.parts[: len(path.parts) - node.level])
            module = [*around, *(node.module or "").split(".")] if node.module else around
            names = [module, *([*module, name.name] for name in node.names)]
        else:
            continue
        for parts in filter(None, names):
            for file in (Path(*parts).with_suffix(".py"), Path(*parts) / "__init__.py"):
                if file.is_file():
                    yield file


def _names(node: ast.stmt) -> list[str]:
    """Return the names that a statement of a module defines: a function, a class, or what is assigned to."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else []
    return [target.id for target in targets if isinstance(target, ast.Name)]
