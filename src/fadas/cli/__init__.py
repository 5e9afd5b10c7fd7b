"""The command line. Nothing heavy is imported before a command needs it, so that --help answers at once."""

import os
import signal
import sys
import traceback
from typing import Annotated

import typer

import fadas
from fadas.cli import data, deploy, reproduce, results, sweep, tools
from fadas.cli import run as experiments

app = typer.Typer(
    help="Asynchronous federated learning: FADAS and its baselines, simulated in virtual time.",
    epilog="Example: `fadas run experiments/demo.toml`",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    add_completion=False,
)
experiments.add_to(app)
sweep.add_to(app)
results.add_to(app)
reproduce.add_to(app)
tools.add_to(app)
app.add_typer(data.app, name="data")
app.add_typer(deploy.app, name="deploy")


def _show_version(wanted: bool) -> None:
    if wanted:
        sys.stdout.write(f"fadas {fadas.__version__}\n")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", is_eager=True, callback=_show_version)
    ] = False,
) -> None:
    pass


def main() -> None:
    """The entry point: a mistake of the user's is one line and exit code 2; runs that diverged are named, with 3."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # so that workers are ended too
    try:
        code = app(standalone_mode=False)
    except (KeyboardInterrupt, typer.Abort):
        code = 130
    except OSError as error:
        from fadas.errors import NO_SPACE

        _debug()
        _fail(f"{error}; free some space, then give the command again" if error.errno in NO_SPACE else str(error), 2)
    except Exception as error:
        from fadas.errors import ConfigError, Diverged, Interrupted

        if hasattr(error, "format_message"):  # the command line itself was wrong
            _fail(error.format_message(), 2)  # pyright: ignore[reportAttributeAccessIssue]
        if isinstance(error, Interrupted):
            _fail(str(error), 130)
        if isinstance(error, Diverged):
            _fail(str(error), 3)
        if not isinstance(error, ConfigError):
            raise
        _debug()
        _fail(str(error), 2)
    else:
        if code != 130:  # typer's word for Ctrl-C
            sys.exit(code)
    _fail("interrupted", 130)


def _debug() -> None:
    if os.environ.get("FADAS_DEBUG") == "1":
        traceback.print_exc()


def _fail(message: str, code: int) -> None:
    sys.stderr.write(f"fadas: {' '.join(message.split())}\n")
    sys.exit(code)
