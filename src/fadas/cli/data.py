"""Commands that download data sets."""

from typing import Annotated

import typer

from fadas.cli import signals
from fadas.cli.completion import complete_data_set
from fadas.cli.options import DataDir, set_environment, with_advice, with_examples
from fadas.errors import Interrupted

_EXAMPLES = with_examples("fadas data get cifar10", "fadas data get cifar100 --data-dir /data")
app = typer.Typer(help="Download data sets.", epilog=_EXAMPLES, no_args_is_help=True, rich_markup_mode="markdown")


@app.callback()
def _data() -> None:
    """Download data sets."""


@app.command(epilog=_EXAMPLES)
@with_advice({Interrupted: "run the same command to continue"})
def get(
    name: Annotated[
        str, typer.Argument(metavar="cifar10|cifar100", help="The data set.", autocompletion=complete_data_set)
    ],
    data_dir: DataDir = None,
    url: Annotated[str | None, typer.Option(help="Download the archive from this URL; default: its home page.")] = None,
) -> None:
    """Download a data set from its home page, verify its checksum and unpack it.

    An interrupted download resumes. If all files exist and their checksums match, nothing is downloaded.
    """
    from fadas.cli.terminal import Display, print_line
    from fadas.errors import unknown_name
    from fadas.tasks.cifar import ARCHIVES

    set_environment(data_dir)
    if name not in ARCHIVES:
        raise unknown_name("data set", name, ARCHIVES)
    archive = ARCHIVES[name]
    if archive.complete():
        print_line(f"{name}: already in {archive.path}, all checksums match")
        return
    signals.require_cleanup()
    with Display(0, "bytes") as display:
        bar = display.add(name, 0)
        path = archive.fetch(lambda done, total: bar.update(done, total=total), url)
    print_line(f"{name}: {path}")
