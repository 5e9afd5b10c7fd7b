"""Options that several commands share."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from fadas.cli import completion
from fadas.errors import ConfigError, Diverged, Interrupted
from fadas.validate import Limit, at_most

# An option without a value. Typer 0.27 and newer show the type `<bool>` behind it unless it has a metavar.
flag = partial(typer.Option, metavar="")

ExperimentFile = Annotated[
    Path, typer.Argument(metavar="X.toml", help="The experiment file.", autocompletion=completion.complete_experiment)
]

Set = Annotated[
    list[str],
    typer.Option(
        "--set",
        metavar="A.B=C",
        help="Set A.B to the TOML value C, e.g. run.steps=50. May be repeated.",
        autocompletion=completion.complete_setting,
    ),
]

Only = Annotated[
    str | None,
    typer.Option(
        metavar="A,B",
        help="Only these algorithms of the experiment, e.g. fadas,fedbuff.",
        autocompletion=completion.complete_label,
    ),
]

Seed = Annotated[int | None, typer.Option(help="Use this seed instead of the experiment's seeds.")]

Json = Annotated[bool, flag("--json", help="Print JSON and nothing else.")]

Executor = Annotated[
    str | None,
    typer.Option(
        help="Where jobs are trained: the name of an executor, see `fadas list`.",
        autocompletion=completion.complete_executor,
    ),
]

Device = Annotated[str | None, typer.Option(help="The device to train on: cpu, cuda, cuda:1, ...")]

Profile = Annotated[
    str | None,
    typer.Option(
        help="Apply one of the experiment's profiles, e.g. smoke.", autocompletion=completion.complete_profile
    ),
]

AllowCode = Annotated[bool, flag("--allow-code", help="Allow the file to name your own code, as package.module:Name.")]

DryRun = Annotated[
    bool,
    flag("--dry-run", help="Show what would run, and estimate how long it would take. Nothing is written."),
]

DataDir = Annotated[
    Path | None, typer.Option(metavar="DIR", help="Where the data sets are; default: $FADAS_DATA, or data.")
]

Metric = Annotated[str | None, typer.Option(metavar="NAME", help="Compare by this metric, if not by the runs' own.")]

Columns = Annotated[
    str | None,
    typer.Option(metavar="NAMES", help="Further columns: metrics, train_loss, interval; separated by commas."),
]


def split_names(names: str | None) -> list[str]:
    """Return the names in an option such as "rmse, mae"."""
    return [name.strip() for name in names.split(",")] if names else []


def with_examples(*commands: str) -> str:
    """Return the end of a command's help: examples of it, one per line."""
    return "\n\n".join(["Examples:", *(f"- `{command}`" for command in commands)])


@contextmanager
def with_advice(advice: Mapping[type[Exception], str]) -> Iterator[None]:
    """Add a command's advice to errors. Errors from below state a fact; the remedy depends on the command.

    Args:
        advice: What to do, by the type of the error.
    """
    try:
        yield
    except KeyboardInterrupt:  # between runs, or for the second time
        raise Interrupted(f"interrupted; {advice[Interrupted]}") from None
    except (ConfigError, Diverged, Interrupted) as error:
        if type(error) in advice:
            error.args = (f"{error}; {advice[type(error)]}",)
        raise


def check_option(limit: Limit, **values: int | None) -> None:
    """Refuse an option above a limit. None is allowed."""
    try:
        at_most(limit, **{f"--{name}": value for name, value in values.items()})
    except ValueError as error:
        raise ConfigError(str(error)) from None


def raise_if_diverged(diverged: list[str], of: int) -> None:
    """End a command with an error if some of its runs diverged."""
    if diverged:
        raise Diverged(f"{len(diverged)} of {of} runs diverged: {', '.join(diverged)}")


def set_environment(folder: Path | None, allow_code: bool = False) -> None:
    """Set environment variables, which worker processes see too."""
    if folder is not None:
        os.environ["FADAS_DATA"] = str(folder)
    if allow_code:
        os.environ["FADAS_ALLOW_CODE"] = "1"


def read_tables(
    path: Path,
    overrides: list[str],
    seed: int | None,
    profile: str | None,
    executor: str | None = None,
    device: str | None = None,
) -> dict[str, Any]:
    """Return an experiment's tables, with the options of the command applied."""
    from fadas.experiments.experiment_file import read_experiment

    changes: dict[str, Any] = {}
    if device is not None:
        changes["executor.device"] = device
    if seed is not None:
        changes["run.seeds"] = [seed]
    return read_experiment(path, overrides, profile, executor, changes)


def select_labels(tables: dict[str, Any], only: str | None) -> list[str]:
    """Return the labels of the algorithms to run: those in "a,b", or all."""
    from fadas.experiments.experiment_file import select_algorithms

    return select_algorithms(tables, None if only is None else [name.strip() for name in only.split(",")])
