"""fadas sweep: the grids of an experiment."""

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from fadas.cli import signals
from fadas.cli.dry_run import preview_points, without_writing
from fadas.cli.options import (
    AllowCode,
    DataDir,
    Device,
    DryRun,
    Executor,
    ExperimentFile,
    Json,
    Only,
    Profile,
    Seed,
    Set,
    check_option,
    flag,
    raise_if_diverged,
    read_tables,
    select_labels,
    set_environment,
    with_advice,
    with_examples,
)
from fadas.errors import Busy, Damaged, DiskFull, Diverged, Foreign, Interrupted, OtherSettings
from fadas.validate import MOST_WORKERS


@with_advice(
    {
        Foreign: "choose another folder with --out DIR",
        OtherSettings: "choose another folder with --out DIR, or delete this one",
        Busy: "wait for it, or choose another folder with --out DIR",
        Damaged: "delete the folder to run it again",
        DiskFull: "free some space, then run the same command to continue",
        Interrupted: "run the same command to continue",
        Diverged: "they are never the best; delete their folders to run them again",
    }
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
        flag(
            "--halving",
            help="Run all points an eighth of the way, the best quarter to half, its best quarter to the end.",
        ),
    ] = False,
    validation: Annotated[
        float | None, typer.Option(help="Share of the training data held out to tune on; default: the file's, or 0.2.")
    ] = None,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Instead of `runs/NAME-sweep`.")] = None,
    dry_run: DryRun = False,
    json_: Json = False,
) -> None:
    """Run the grids under [sweep] and mark the best point of each algorithm.

    Points are compared on data held out from the training set. The test set is never used. Points that have finished
    are skipped. A point that diverges is never the best; the others still run, and the exit code is 3.

    --halving takes about a quarter of the time, and misses points that begin slowly.

    With --json: one JSON object per point, from best to worst, on a line of its own.
    """
    from fadas.cli.terminal import Display, print_json, print_table
    from fadas.experiments.halving import HALVING, count_runs, rank_points, search_points

    check_option(MOST_WORKERS, jobs=jobs)
    set_environment(data_dir, allow_code)
    rungs = HALVING if halving else (1.0,)
    find_points = partial(_find_points, experiment, set_, profile, only, seed, executor, device, validation, out)
    if dry_run:
        with without_writing():
            _, root, todo = find_points()
            signals.require_cleanup()
            preview_points(todo, root, jobs, rungs, json_)
        return
    name, root, todo = find_points()
    signals.require_cleanup()
    results, total = {}, count_runs(todo, rungs)
    with Display(0, "runs") as display:
        bar = display.add("sweep", total)
        for done, (point, outcome) in enumerate(search_points(todo, jobs, rungs), 1):
            results[point.folder] = point, outcome
            total = max(total, done)  # if a point diverges, another one goes on
            bar.update(done, f"{point.label}: {point.name}{_mark(point.share)}", total)
        bar.finish(f"{len(todo)} runs in {root}", total)
    ranked = rank_points(list(results.values()))
    metric = next(outcome.judged_by for _, outcome in results.values())
    if json_:
        for row in ranked:
            print_json(vars(row))
    else:
        rows = [[r.label, r.name, _score(metric, r) + _mark(r.share), "best" if r.best else ""] for r in ranked]
        print_table(["algorithm", "point", f"validation {metric.name}", ""], rows, name)
    diverged = [
        str(point.folder.relative_to(root)) for point, outcome in results.values() if outcome.diverged is not None
    ]
    raise_if_diverged(sorted(diverged), len(todo))


def _find_points(
    experiment: Path,
    overrides: list[str],
    profile: str | None,
    only: str | None,
    seed: int | None,
    executor: str | None,
    device: str | None,
    validation: float | None,
    out: Path | None,
) -> tuple[str, Path, list[Any]]:
    """Return the experiment's name, the sweep's folder and all points."""
    from fadas.experiments.resolve import experiment_seeds
    from fadas.experiments.sweep import grid_points, sweep_points

    tables = read_tables(experiment, overrides, seed, profile, executor, device)
    root = out or Path("runs") / f"{tables['name']}-sweep"
    labels = select_labels(tables, only)
    if only is None:  # all that have a grid
        labels = [label for label in labels if grid_points(tables, label)] or labels
    held_out = tables.get("task", {}).get("validation") or 0.2 if validation is None else validation
    return tables["name"], root, sweep_points(tables, labels, experiment_seeds(tables), root, held_out)


def _score(metric: Any, row: Any) -> str:
    if row.diverged:
        return "diverged"
    return f"{row.score:.2%}" if metric.format == "percent" and row.score is not None else metric.text(row.score)


def _mark(share: float) -> str:
    return "" if share == 1 else f", after {share:.1%}"


def add_to(app: typer.Typer) -> None:
    """Add this command to the app."""
    app.command(
        epilog=with_examples(
            "fadas sweep experiment.toml --seed 100 --dry-run",
            "fadas sweep experiment.toml --seed 100 -j 2",
        )
    )(sweep)
