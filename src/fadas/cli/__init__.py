"""The command line. Nothing heavy is imported before a command needs it, so that --help answers at once."""

import signal
import sys

import typer

from fadas.cli import data, experiments, tools

app = typer.Typer(
    help="Asynchronous federated learning: FADAS and its baselines, simulated in virtual time.",
    epilog="Example: `fadas run experiments/demo.toml`",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    add_completion=False,
)
experiments.add_to(app)
tools.add_to(app)
app.add_typer(data.app, name="data")


def main() -> None:
    """The entry point: a mistake of the user's is one line and exit code 2."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # so that helpers are ended too
    try:
        app()
    except KeyboardInterrupt:
        sys.stderr.write("fadas: interrupted\n")
        sys.exit(130)
    except Exception as error:
        from fadas.build import ConfigError

        if not isinstance(error, ConfigError):
            raise
        sys.stderr.write(f"fadas: {error}\n")
        sys.exit(2)
