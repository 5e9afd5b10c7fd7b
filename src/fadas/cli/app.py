"""The commands as one typer app. How errors end: with one line, and without a traceback."""

import io
import os
import sys
import traceback
import warnings
from functools import partial
from typing import Annotated, NoReturn, TextIO

import typer

import fadas
from fadas.cli import data, export, reproduce, results, run, signals, sweep, tools
from fadas.cli.help import doctor, explain
from fadas.cli.options import flag, with_examples
from fadas.cli.projects import deploy, init
from fadas.errors import NO_SPACE, ConfigError, Diverged, FadasWarning, Interrupted
from fadas.report.text import show_line, show_lines

_INTERRUPTED = "interrupted; run the command again"
_LONGEST = 2000  # characters of a message; a damaged file may hold much more

_standard = warnings.showwarning

app = typer.Typer(
    help="Asynchronous federated learning: FADAS and its baselines, simulated in virtual time.",
    epilog=with_examples("fadas demo", "fadas run experiment.toml"),
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)
init.add_to(app)
run.add_to(app)
sweep.add_to(app)
results.add_to(app)
export.add_to(app)
reproduce.add_to(app)
tools.add_to(app)
explain.add_to(app)
doctor.add_to(app)
app.add_typer(data.app, name="data")
app.add_typer(deploy.app, name="deploy")


def _show_version(wanted: bool) -> None:
    if wanted:
        sys.stdout.write(f"fadas {fadas.__version__}\n")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, flag("--version", help="Show the version and exit.", is_eager=True, callback=_show_version)
    ] = False,
) -> None:
    pass


def run_app() -> None:
    """Run the command of `sys.argv` and end the process."""
    warnings.showwarning = partial(_show_warning, set())
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # not every terminal can show every character
            stream.reconfigure(errors="backslashreplace")
    try:
        code = app(standalone_mode=False, prog_name="fadas")
    except (KeyboardInterrupt, typer.Abort):
        code = 130
    except Exception as error:
        _end(error)
    if code == 130:  # typer's code for Ctrl-C
        _fail(_INTERRUPTED, signals.exit_code())
    signals.ignore()
    sys.exit(code)


def _end(error: Exception) -> NoReturn:
    """End with one line for errors that are made for users. Others keep their traceback."""
    if isinstance(error, Interrupted):
        _fail(str(error), signals.exit_code())
    if signals.received():  # the interruption became another error, for example within an import
        _fail(_INTERRUPTED, signals.exit_code())
    if hasattr(error, "format_message"):  # the command line itself was wrong
        message = error.format_message()  # pyright: ignore[reportAttributeAccessIssue]
        if not message:  # `fadas` alone has shown its help
            sys.exit(2)
        _fail(message.replace(": Value error, ", ": "), 2)  # as typer 0.29 begins what pydantic says
    if isinstance(error, Diverged):
        _fail(str(error), 3)
    if not isinstance(error, ConfigError | OSError):
        raise error
    if os.environ.get("FADAS_DEBUG") == "1":
        sys.stderr.write(show_lines(traceback.format_exc()))
    full = isinstance(error, OSError) and error.errno in NO_SPACE
    _fail(f"{error}; free some space, then run the command again" if full else str(error), 2)


def _fail(message: str, code: int) -> NoReturn:
    signals.ignore()  # a second signal would cut this line
    _print_error(message)
    sys.stderr.flush()
    signals.use_defaults()
    sys.exit(code)


def _print_error(message: str) -> None:
    sys.stderr.write(f"fadas: {show_line(' '.join(message.split()), _LONGEST)}\n")


def _show_warning(
    shown: set[str],
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Show our own warnings on one line, and each text once. `shown` holds the texts so far."""
    if not issubclass(category, FadasWarning):
        _standard(show_lines(str(message)), category, filename, lineno, file, line)  # pyright: ignore[reportArgumentType]
    elif str(message) not in shown:
        shown.add(str(message))
        _print_error(f"warning: {message}")
