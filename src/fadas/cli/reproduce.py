"""fadas reproduce: the paper's tables and figures."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from fadas.cli import signals
from fadas.cli.options import (
    DataDir,
    Device,
    Executor,
    Set,
    check_option,
    flag,
    raise_if_diverged,
    set_environment,
    with_advice,
    with_examples,
)
from fadas.errors import (
    Busy,
    ConfigError,
    Damaged,
    DiskFull,
    Diverged,
    Foreign,
    Interrupted,
    OtherSettings,
    Stale,
)
from fadas.validate import MOST_SEEDS

_READ_ADVICE = {Damaged: "delete it to run the cell again", Interrupted: "run the same command again"}
_EXAMPLES = with_examples("fadas reproduce list", "fadas reproduce large-cifar100 --only fadas,fedbuff --device cuda")
_RUN = "run"  # the command behind `fadas reproduce ARTEFACT...`
Results = Annotated[Path, typer.Option(metavar="DIR", help="Where results are kept.")]


class _ArtefactGroup(TyperGroup):
    """Takes the names of artefacts where other groups take the name of a subcommand."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        asks_for_help = bool(args) and args[0] in ctx.help_option_names
        if args and args[0] not in self.commands and not asks_for_help:
            args = [_RUN, *args]
        return super().parse_args(ctx, args)

    def format_usage(self, ctx: Any, formatter: Any) -> None:
        formatter.write_usage(ctx.command_path, "ARTEFACT... [OPTIONS] | list | report")


app = typer.Typer(
    cls=_ArtefactGroup,
    help="Run the paper's tables and figures, and render what has been run.",
    epilog=_EXAMPLES,
    no_args_is_help=True,
    rich_markup_mode="markdown",
)


@app.command(
    _RUN,
    epilog=with_examples(
        "fadas reproduce large-cifar100 --device cuda",
        "fadas reproduce large-cifar100 --only fadas,fedbuff --rounds 20",
    ),
    short_help="Run cells that are missing: `fadas reproduce ARTEFACT...`",
)
@with_advice(
    {
        Foreign: "choose another folder with --work DIR",
        OtherSettings: "use the options the run began with, for example --device, or delete it to start over",
        Stale: "delete it to run the cell again",
        Busy: "wait for it",
        Damaged: "delete it to run the cell again",
        DiskFull: "free some space, then run the same command to continue",
        Interrupted: "run the same command to continue",
        Diverged: "the report says so; delete their results and runs to run them again",
    }
)
def run(
    artefacts: Annotated[list[str], typer.Argument(metavar="ARTEFACT...", help="Names from `fadas reproduce list`.")],
    only: Annotated[str | None, typer.Option(metavar="A,B", help="Only these methods.")] = None,
    seeds: Annotated[int | None, typer.Option(min=1, help="Run seeds 1 to N. Default: as in the paper.")] = None,
    rounds: Annotated[
        int | None, typer.Option(min=1, help="Shorten runs to N x M updates. Stored separately; not in the report.")
    ] = None,
    tune: Annotated[
        bool, flag("--tune", help="Search the grid of cells outside the paper's spread and run the best point.")
    ] = False,
    executor: Executor = None,
    device: Device = None,
    set_: Set = [],
    data_dir: DataDir = None,
    experiments: Annotated[Path, typer.Option(metavar="DIR", help="Where the experiment files are.")] = Path(
        "experiments"
    ),
    results: Results = Path("results"),
    work: Annotated[Path, typer.Option(metavar="DIR", help="Where the runs are kept.")] = Path("runs/reproduce"),
) -> None:
    """Run the cells of some of the paper's tables and figures that have not been run yet.

    A cell is one method on one data set with one seed. Each cell writes one JSON file to `results`: settings, learning
    curve, delays, device, versions, commit. Cells with a result are skipped, and interrupted cells continue. If a cell
    diverges, the others still run, and the exit code is 3. If another process is running one, it is tried again at the
    end and then skipped, and the exit code is 2. --set takes the executor's options only.

    With --tune, the grid in the experiment file is searched for every cell whose result is outside the paper's spread:
    by halving, on seed 100, with a tenth of the training data held out. The best point then runs on the artefact's own
    seeds. All tried points are saved beside the results.
    """
    from fadas.cli.terminal import Display, print_line
    from fadas.paper.artefacts import find_artefact
    from fadas.paper.results import find_result
    from fadas.paper.run_cells import CellRunner, HowToRun, Places, has_result, select_cells

    if words := {"list", "report"} & {*artefacts}:
        raise typer.BadParameter(f"{min(words)} is a command of its own: fadas reproduce {min(words)}")
    check_option(MOST_SEEDS, seeds=seeds)
    if tune and (seeds or rounds):
        raise typer.BadParameter("--tune takes the artefact's own seeds and rounds")
    _require_executor_options(set_)
    set_environment(data_dir)
    methods = None if only is None else [name.strip() for name in only.split(",")]
    places = Places(experiments, results, work)
    how = HowToRun({} if device is None else {"executor.device": device}, set_, executor)
    wanted = [find_artefact(name) for name in artefacts]
    all_cells = select_cells(wanted, methods, seeds, rounds)
    busy: list[str] = []
    signals.require_cleanup()
    if tune:
        all_cells, busy = _search_grids(wanted, {cell.method for cell in all_cells}, places, how)
    cells = [cell for cell in all_cells if not has_result(cell, places)]
    ran = 0
    with Display(0, "updates") as display:

        def watch(name: str, updates: int) -> Any:
            bar = display.add(name, updates)
            return lambda r: bar.update(r.updates, f"{r.metrics['accuracy']:.1%}" if r.metrics else None)

        runner = CellRunner(cells, places, how, watch, display.say)
        for cell, result in runner.run():
            text = f"diverged: {result.diverged}"
            if result.accuracy is not None:
                text = f"{result.accuracy:.1%} ± {100 * (result.accuracy_std or 0.0):.1f}"
            display.say(f"{cell.experiment} {cell.name}: {text}, {result.wall:.0f} s")
            ran += 1
    left = [cell for cell in cells if not find_result(cell, results)]
    then = "trials, which no report shows" if rounds else "fadas reproduce report renders them"
    print_line(f"{', '.join(artefacts)}: {ran} cells run, {len(left)} left; {then}")
    if busy or left:
        names = [*busy, *(f"{cell.experiment} {cell.name}" for cell in left)]
        number = f"{len(names)} of {len(cells) + len(busy)} cells"
        raise Busy(f"{number} skipped, because another process is running them: {', '.join(names)}")
    kept = [one for one in (find_result(cell, results) for cell in all_cells) if one]
    raise_if_diverged([f"{one.experiment} {one.cell.name}" for one in kept if one.diverged], len(kept))


@app.command("list", epilog=with_examples("fadas reproduce list", "fadas reproduce list --results results"))
@with_advice(_READ_ADVICE)
def list_(results: Results = Path("results")) -> None:
    """List the paper's tables and figures, and how many of their cells have been run."""
    from fadas.cli.terminal import print_table
    from fadas.paper.artefacts import all_artefacts
    from fadas.paper.results import find_result

    rows: list[list[str]] = []
    for name, artefact in all_artefacts().items():
        cells = {cell.path(results): cell for cell in artefact.all_cells()}
        finished = sum(find_result(cell, results) is not None for cell in cells.values())
        rows.append([name, f"{finished} of {len(cells)}", artefact.title])
    print_table(["artefact", "cells run", ""], rows)


@app.command(epilog=with_examples("fadas reproduce report", "fadas reproduce report --page docs/reproduction.md"))
@with_advice(_READ_ADVICE)
def report(
    results: Results = Path("results"),
    page: Annotated[Path, typer.Option(metavar="FILE", help="The page; the HTML is written beside it.")] = Path(
        "docs/reproduction.md"
    ),
) -> None:
    """Render what has been run of all tables and figures, beside what the paper published."""
    from fadas.cli.terminal import print_line
    from fadas.paper.page import write_page

    signals.require_cleanup()
    for path in write_page(page, results):
        print_line(f"written: {path}")


def _require_executor_options(overrides: Sequence[str]) -> None:
    others = [text for text in overrides if not text.startswith("executor.") or text.startswith("executor.name")]
    if others:
        only_these = "only the executor's options can be set, and the executor with --executor"
        raise ConfigError(f"--set {others[0]}: {only_these}; the cells are the paper's")


def _search_grids(wanted: list[Any], methods: set[str], places: Any, how: Any) -> tuple[list[Any], list[str]]:
    """Search the grids of what is outside the paper's spread.

    Return the best points as cells, and the names of the grids that other processes are searching.
    """
    from fadas.cli.terminal import Display, print_line
    from fadas.experiments.queue import RunQueue
    from fadas.paper.grid_search import entries_outside_spread, search_grid
    from fadas.paper.results import tuned_cells

    entries = list(entries_outside_spread(wanted, methods, places))
    grids = {entry.cell.path(places.results): entry.cell for entry in entries}
    with Display(0, "runs") as display:
        queue = RunQueue(list(grids.values()), lambda cell: f"{cell.experiment} {cell.name}", display.say)
        watch = lambda name, total: display.add(name, total).update  # noqa: E731
        for cell, found in queue.run(lambda cell: search_grid(cell, places, how, watch)):
            best = "all diverged"
            if found.winner is not None:
                point = ", ".join(found.winner) or "the published settings"
                best = f"best {point}, {found.score:.1%} on held-out data"
            display.say(f"{cell.experiment} {cell.name}: {len(found.tried)} runs, {best}")
    print_line(f"{len(grids) - len(queue.skipped)} grids searched")
    free = [entry for entry in entries if entry.cell not in queue.skipped]
    cells = {cell.path(places.results): cell for entry in free for cell in tuned_cells(*entry, places.results)}
    return list(cells.values()), [f"{cell.experiment} {cell.name}" for cell in queue.skipped]


def add_to(app_: typer.Typer) -> None:
    """Add these commands to the app."""
    app_.add_typer(app, name="reproduce")
