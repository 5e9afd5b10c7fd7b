"""fadas reproduce: the paper's tables and figures."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from fadas.cli.options import DataDir, Device, Executor, Set, raise_if_diverged, set_environment, with_advice


@with_advice(
    foreign="use --work DIR",
    settings="give the options it was begun with, --device for one, or delete it to run the cell anew",
    stale="delete it to run the cell anew",
    busy="wait for it",
    damaged="delete it to run the cell anew",
    full="free some space, then the same command goes on",
    interrupted="the same command goes on",
    diverged="the report says so; delete their results and runs to run them again",
)
def reproduce(
    what: Annotated[list[str], typer.Argument(metavar="ARTEFACT...|list|report")],
    only: Annotated[str | None, typer.Option(metavar="A,B", help="Only these methods.")] = None,
    seeds: Annotated[
        int | None, typer.Option(min=1, help="Seeds 1 to N; default: the paper's, which the report shows.")
    ] = None,
    rounds: Annotated[int | None, typer.Option(min=1, help="Trials of N x M client updates; kept apart.")] = None,
    tune: Annotated[
        bool, typer.Option("--tune", help="Search the paper's grids for what falls outside its spread; run the best.")
    ] = False,
    executor: Executor = None,
    device: Device = None,
    set_: Set = [],
    data_dir: DataDir = None,
    experiments: Annotated[Path, typer.Option(metavar="DIR", help="Where the experiment files lie.")] = Path(
        "experiments"
    ),
    results: Annotated[Path, typer.Option(metavar="DIR", help="Where results are kept.")] = Path("results"),
    work: Annotated[Path, typer.Option(metavar="DIR", help="Where the runs are kept.")] = Path("runs/reproduce"),
    page: Annotated[Path, typer.Option(metavar="FILE", help="The report.")] = Path("docs/reproduction.md"),
) -> None:
    """Run the cells of some of the paper's tables and figures that have not been run yet.

    `list` names the artefacts, `report` renders what has been run of all of them. A cell is one method on one data set
    with one seed. Each leaves a small JSON in `results`; what is there is not run again, and an interrupted cell goes
    on where it was. A cell that diverges is kept as that, and the others run; the exit code is 3 then. One that another
    process is at is tried once more at the end and, if that is still so, left out; the exit code is 2 then. --set is
    for the executor's options only.

    With --tune: for every cell that has a result outside the paper's spread, the grid in its experiment file is
    searched by halving, on seed 100 and a tenth of the training data held out; the best point then runs on the
    artefact's own seeds. What was tried is kept beside the results, and not tried again.
    """
    from fadas.cli.terminal import Display, print_line, print_table
    from fadas.paper.artefacts import artefact, artefacts, find_result

    if {"list", "report"} & {*what}:
        if len(what) > 1:
            raise typer.BadParameter("list and report stand alone")
        if only or seeds or rounds or tune or executor or device or set_:
            raise typer.BadParameter(f"{what[0]} takes no option that chooses cells or how to run them")
    if tune and (seeds or rounds):
        raise typer.BadParameter("--tune takes the artefact's own seeds and rounds")
    if what == ["report"]:
        from fadas.paper.page import write_page

        for path in write_page(page, results):
            print_line(f"written: {path}")
        return
    if what == ["list"]:
        rows = []
        for name, one in artefacts().items():
            cells = list(dict.fromkeys(one.all_cells()))
            run = sum(find_result(cell, results) is not None for cell in cells)
            rows.append([name, f"{run} of {len(cells)}", one.title])
        print_table(["artefact", "cells run", ""], rows)
        return
    from fadas.errors import ConfigError
    from fadas.paper.run_cells import Places, has_result, run_cells, select_cells

    if others := [text for text in set_ if not text.startswith("executor.") or text.startswith("executor.name")]:
        only_these = "only the executor's options can be set, and the executor with --executor"
        raise ConfigError(f"--set {others[0]}: {only_these}; the cells are the paper's")
    set_environment(data_dir)
    methods = None if only is None else [name.strip() for name in only.split(",")]
    places = Places(experiments, results, work)
    options = [*([] if device is None else [f"executor.device={json.dumps(device)}"]), *set_]
    wanted = [artefact(name) for name in what]
    all_cells = select_cells(wanted, methods, seeds, rounds)
    busy: list[str] = []
    if tune:
        all_cells, busy = _searched(wanted, {cell.method for cell in all_cells}, places, options, executor)
    cells = [cell for cell in all_cells if not has_result(cell, places)]
    ran = 0
    with Display(0, "updates") as display:

        def watch(name: str, updates: int) -> Any:
            bar = display.add(name, updates)
            return lambda r: bar.update(r.updates, f"{r.metrics['accuracy']:.1%}" if r.metrics else None)

        for cell, result in run_cells(cells, places, options, executor, watch, display.say):
            text = f"diverged: {result.diverged}"
            if result.accuracy is not None:
                text = f"{result.accuracy:.1%} ± {100 * (result.accuracy_std or 0.0):.1f}"
            display.say(f"{cell.experiment} {cell.name}: {text}, {result.wall:.0f} s")
            ran += 1
    left = [cell for cell in cells if not find_result(cell, results)]
    then = "trials, which no report shows" if rounds else "fadas reproduce report renders them"
    print_line(f"{', '.join(what)}: {ran} cells run, {len(left)} left; {then}")
    if busy or left:
        names = [*busy, *(f"{cell.experiment} {cell.name}" for cell in left)]
        number = f"{len(names)} of {len(cells) + len(busy)} cells"
        raise ConfigError(f"{number} left out, in use by another process: {', '.join(names)}", "busy")
    kept = [one for one in (find_result(cell, results) for cell in all_cells) if one]
    raise_if_diverged([f"{one.experiment} {one.cell.name}" for one in kept if one.diverged], len(kept))


def _searched(
    wanted: list[Any], methods: set[str], places: Any, options: list[str], executor: str | None
) -> tuple[list[Any], list[str]]:
    """Search the grids of what is outside the paper's spread: the best points, as cells; and what others are at."""
    from fadas.cli.terminal import Display, print_line
    from fadas.errors import ConfigError
    from fadas.paper.grid_search import entries_outside_spread, search_grid
    from fadas.paper.results import tuned_cells

    entries = list(entries_outside_spread(wanted, methods, places))
    busy: list[Any] = []
    with Display(0, "runs") as display:
        todo = list(dict.fromkeys(entry.cell for entry in entries))
        for cell in todo:
            try:
                found = search_grid(
                    cell, places, options, executor, lambda name, total: display.add(name, total).update
                )
            except ConfigError as error:
                if error.matter != "busy":
                    raise
                if cell not in busy:
                    busy.append(cell)
                    todo.append(cell)  # when all others are done, that process may be, too
                continue
            busy = [one for one in busy if one != cell]
            best = "all diverged"
            if found.winner is not None:
                point = ", ".join(found.winner) or "the published settings"
                best = f"best {point}, {found.score:.1%} on held-out data"
            display.say(f"{cell.experiment} {cell.name}: {len(found.tried)} runs, {best}")
    print_line(f"{len({entry.cell for entry in entries}) - len(busy)} grids searched")
    free = [entry for entry in entries if entry.cell not in busy]
    cells = [cell for entry in free for cell in tuned_cells(*entry, places.results)]
    return list(dict.fromkeys(cells)), [f"{cell.experiment} {cell.name}" for cell in busy]


def add_to(app: typer.Typer) -> None:
    app.command(epilog="Example: `fadas reproduce large-cifar100 --only fadas,fedbuff --device cuda`")(reproduce)
