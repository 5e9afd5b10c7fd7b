"""fadas sweep: the grids of an experiment."""

from pathlib import Path
from typing import Annotated

import typer

from fadas.cli.options import (
    AllowCode,
    DataDir,
    Device,
    Executor,
    ExperimentFile,
    Json,
    Only,
    Profile,
    Seed,
    Set,
    raise_if_diverged,
    read_tables,
    select_labels,
    set_environment,
    with_advice,
)


@with_advice(
    foreign="use --out DIR",
    settings="use --out DIR, or delete it",
    busy="wait for it, or use --out DIR",
    damaged="delete it to run it anew",
    full="free some space, then the same command goes on",
    interrupted="the same command goes on",
    diverged="they are never the best; delete their folders to run them again",
)
def sweep(
    experiment: ExperimentFile,
    set_: Set = [],
    profile: Profile = None,
    only: Only = None,
    seed: Seed = None,
    executor: Executor = None,
    device: Device = None,
    data_dir: DataDir = None,
    allow_code: AllowCode = False,
    jobs: Annotated[int, typer.Option("-j", "--jobs", min=1, help="Runs at a time.")] = 1,
    halving: Annotated[
        bool,
        typer.Option(
            "--halving",
            help="Run all points an eighth of the way, the best quarter to half, its best quarter to the end.",
        ),
    ] = False,
    validation: Annotated[
        float | None, typer.Option(help="Share of the training data held out to tune on; default: the file's, or 0.2.")
    ] = None,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Instead of `runs/NAME-sweep`.")] = None,
    json_: Json = False,
) -> None:
    """Run the grids under [sweep] and mark the best point of each algorithm.

    Points are compared on data held out from the training set; the test set is not looked at. What is there
    already is not run again. A point that diverges does not end the sweep, but is never the best; the exit code is
    3 then. --halving takes about a quarter of the time, and misses a point that begins slowly. With --json: one
    object per point, from best to worst, on a line of its own.
    """
    from fadas.cli.terminal import Display, print_json, print_table
    from fadas.experiments.halving import HALVING, count_runs, rank_points, search_points
    from fadas.experiments.resolve import seeds
    from fadas.experiments.sweep import grid_points, sweep_points

    set_environment(data_dir, allow_code)
    tables = read_tables(experiment, set_, seed, profile, executor, device)
    root = out or Path("runs") / f"{tables['name']}-sweep"
    labels = select_labels(tables, only)
    if only is None:  # all that have a grid
        labels = [label for label in labels if grid_points(tables, label)] or labels
    held_out = tables.get("task", {}).get("validation") or 0.2 if validation is None else validation
    todo = sweep_points(tables, labels, seeds(tables), root, held_out)
    rungs = HALVING if halving else (1.0,)
    results, total = {}, count_runs(todo, rungs)
    with Display(0, "runs") as display:
        bar = display.add("sweep", total)
        for done, (point, summary) in enumerate(search_points(todo, jobs, rungs), 1):
            results[point.folder] = point, summary
            total = max(total, done)  # for a point that diverges another one goes on
            bar.update(done, f"{point.label}: {point.name}{_mark(point.share)}", total)
        bar.finish(f"{len(todo)} runs in {root}", total)
    ranked = rank_points(list(results.values()))
    if json_:
        for row in ranked:
            print_json(vars(row))
    else:
        rows = [
            [r.label, r.name, _score(r.score, r.diverged) + _mark(r.share), "best" if r.best else ""] for r in ranked
        ]
        print_table(["algorithm", "point", "validation accuracy", ""], rows, tables["name"])
    diverged = [str(point.folder.relative_to(root)) for point, summary in results.values() if "diverged" in summary]
    raise_if_diverged(sorted(diverged), len(todo))


def _score(score: float | None, diverged: int) -> str:
    return "diverged" if diverged else "-" if score is None else f"{score:.2%}"


def _mark(share: float) -> str:
    return "" if share == 1 else f", after {share:.1%}"


def add_to(app: typer.Typer) -> None:
    app.command(epilog="Example: `fadas sweep experiments/demo.toml --only fadas -j 2`")(sweep)
