"""The command line. Nothing heavy is imported before a command needs it, so that --help answers at once.

| file           | what it holds                                                              |
|----------------|----------------------------------------------------------------------------|
| `run.py`       | `fadas run`, `fadas plan`                                                  |
| `sweep.py`     | `fadas sweep`                                                              |
| `results.py`   | `fadas report`, `fadas watch`                                              |
| `reproduce.py` | `fadas reproduce`                                                          |
| `deploy.py`    | `fadas deploy init`                                                        |
| `data.py`      | `fadas data get`                                                           |
| `tools.py`     | `fadas list`, `fadas bench`                                                |
| `bench/`       | the benchmarks                                                             |
| `options.py`   | options that several commands share; the advice that commands add to errors |
| `signals.py`   | what Ctrl-C and SIGTERM do                                                 |
| `terminal.py`  | what is drawn on the terminal                                              |
"""

import os
import sys
import warnings
from typing import Annotated, Any, NoReturn, TextIO

from fadas.cli import signals

_INTERRUPTED = "interrupted; give the same command again"
_standard = warnings.showwarning


def main() -> None:
    """Run the command line. The exit code is 0, or:

    | code | meaning                                                                |
    |------|------------------------------------------------------------------------|
    | 2    | a mistake in the command or its files; one line says what it is        |
    | 3    | a run diverged                                                         |
    | 130  | interrupted by Ctrl-C, or a run was stopped and keeps a checkpoint     |
    | 143  | ended by SIGTERM while nothing was training                            |
    """
    signals.install()  # before the other imports, which take a while
    import typer

    warnings.showwarning = _show_warning
    try:
        code = make_app()(standalone_mode=False)
    except (KeyboardInterrupt, typer.Abort):
        code = 130
    except Exception as error:
        _end(error)
    if code == 130:  # typer's code for Ctrl-C
        _fail(_INTERRUPTED, signals.exit_code())
    signals.ignore()
    sys.exit(code)


def make_app() -> Any:
    """Return the command line as a typer app."""
    import typer

    import fadas
    from fadas.cli import data, deploy, reproduce, results, run, sweep, tools

    app = typer.Typer(
        help="Asynchronous federated learning: FADAS and its baselines, simulated in virtual time.",
        epilog="Example: `fadas run experiments/demo.toml`",
        no_args_is_help=True,
        rich_markup_mode="markdown",
        pretty_exceptions_enable=False,
        add_completion=False,
    )

    def show_version(wanted: bool) -> None:
        if wanted:
            sys.stdout.write(f"fadas {fadas.__version__}\n")
            raise typer.Exit

    @app.callback()
    def options(
        version: Annotated[
            bool, typer.Option("--version", help="Show the version and exit.", is_eager=True, callback=show_version)
        ] = False,
    ) -> None:
        pass

    for module in (run, sweep, results, reproduce, tools):
        module.add_to(app)
    app.add_typer(data.app, name="data")
    app.add_typer(deploy.app, name="deploy")
    return app


def _end(error: Exception) -> NoReturn:
    """End with one line for errors that are made for users. Others keep their traceback."""
    from fadas.errors import NO_SPACE, ConfigError, Diverged, Interrupted

    if isinstance(error, Interrupted):
        _fail(str(error), signals.exit_code())
    if signals.received():  # the interruption became another error, for example within an import
        _fail(_INTERRUPTED, signals.exit_code())
    if hasattr(error, "format_message"):  # the command line itself was wrong
        _fail(error.format_message(), 2)  # pyright: ignore[reportAttributeAccessIssue]
    if isinstance(error, Diverged):
        _fail(str(error), 3)
    if not isinstance(error, ConfigError | OSError):
        raise error
    if os.environ.get("FADAS_DEBUG") == "1":
        import traceback

        traceback.print_exc()
    full = isinstance(error, OSError) and error.errno in NO_SPACE
    _fail(f"{error}; free some space, then give the command again" if full else str(error), 2)


def _fail(message: str, code: int) -> NoReturn:
    signals.ignore()  # a second signal would cut this line
    sys.stderr.write(f"fadas: {' '.join(message.split())}\n")
    sys.stderr.flush()
    signals.use_defaults()
    sys.exit(code)


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    from fadas.errors import FadasWarning

    if issubclass(category, FadasWarning):
        sys.stderr.write(f"fadas: warning: {message}\n")
    else:
        _standard(message, category, filename, lineno, file, line)
