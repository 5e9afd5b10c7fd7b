"""Commands that fetch data sets."""

from typing import Annotated

import typer

from fadas.cli.options import DataDir, set_environment

app = typer.Typer(help="Fetch the data sets.", no_args_is_help=True, rich_markup_mode="markdown")


@app.callback()
def _data() -> None:
    """Fetch the data sets."""


@app.command(epilog="Example: `fadas data get cifar10 --data-dir /data`")
def get(
    name: Annotated[str, typer.Argument(metavar="cifar10|cifar100")],
    data_dir: DataDir = None,
    url: Annotated[str | None, typer.Option(help="A mirror of the archive, instead of its home page.")] = None,
) -> None:
    """Download a data set from its home page, verify its checksum, unpack it.

    A download that broke off is continued. Nothing is fetched when the files are there and right.
    """
    from fadas.cli.terminal import Display, print_line
    from fadas.errors import unknown_name
    from fadas.tasks.cifar import ARCHIVES

    set_environment(data_dir)
    if name not in ARCHIVES:
        raise unknown_name("data set", name, ARCHIVES)
    archive = ARCHIVES[name]
    if archive.complete():
        print_line(f"{archive.path} is there already, and its checksums are right")
        return
    with Display(0, "bytes") as display:
        bar = display.add(name, 0)
        path = archive.fetch(lambda done, total: bar.update(done, total=total), url)
    print_line(f"{name}: {path}")
