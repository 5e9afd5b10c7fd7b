"""The command line. Nothing heavy is imported before a command needs it, so that --help answers at once.

| file           | what it holds                                                              |
|----------------|----------------------------------------------------------------------------|
| `run.py`       | `fadas run`, `fadas demo`, `fadas plan`                                    |
| `sweep.py`     | `fadas sweep`                                                              |
| `results.py`   | `fadas report`, `fadas watch`                                              |
| `reproduce.py` | `fadas reproduce`                                                          |
| `projects/`    | `fadas init`, `fadas deploy init`                                          |
| `data.py`      | `fadas data get`                                                           |
| `tools.py`     | `fadas list`, `fadas bench`                                                |
| `help/`        | `fadas explain`, `fadas doctor`                                            |
| `bench/`       | the benchmarks                                                             |
| `app.py`       | the commands as one typer app; how errors end                              |
| `signals.py`   | what Ctrl-C and SIGTERM do                                                 |
| `options.py`   | options that several commands share; the advice that commands add to errors |
| `dry_run.py`   | what `--dry-run` shows                                                     |
| `completion.py` | what the shell proposes when the user presses the tab key                 |
| `demo.toml`    | the experiment of `fadas demo`: the same as `experiments/demo.toml`        |
| `terminal.py`  | what is drawn on the terminal                                              |
"""

from fadas.cli import signals


def main() -> None:
    """Run the command line. The exit code is 0, or:

    | code | meaning                                                            |
    |------|--------------------------------------------------------------------|
    | 2    | a mistake in the command or its files; one line says what it is    |
    | 3    | a run diverged                                                     |
    | 130  | interrupted by Ctrl-C, or a run was stopped and keeps a checkpoint |
    | 143  | ended by SIGTERM while nothing was training                        |
    """
    signals.install()
    from fadas.cli.app import run_app  # after the line above, because its imports take a while

    run_app()
