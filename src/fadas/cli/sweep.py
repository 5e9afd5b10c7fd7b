"""fadas sweep: the grids of an experiment."""

import warnings
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict
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
from fadas.errors import (
    Busy,
    ConfigError,
    Damaged,
    DiskFull,
    Diverged,
    FadasWarning,
    Foreign,
    Interrupted,
    OtherSettings,
    unknown_name,
)
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
    samples: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Draw N points of each grid at random. Ranges (low, high) need it."),
    ] = None,
    sample_seed: Annotated[int, typer.Option(min=0, help="The seed of these draws.")] = 0,
    widen: Annotated[
        bool, typer.Option("--widen", help="Extend a grid where its best point lies on an edge, until it does not.")
    ] = False,
    widen_limit: Annotated[int, typer.Option(min=1, metavar="N", help="Extend each grid N times at most.")] = 6,
    by: Annotated[
        str,
        typer.Option(metavar="mean|last", help="Judge a run by the mean of its last five evaluations, or by the last."),
    ] = "mean",
    validation: Annotated[
        float | None, typer.Option(help="Share of the training data held out to tune on; default: the file's, or 0.2.")
    ] = None,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Instead of `runs/NAME-sweep`.")] = None,
    apply: Annotated[
        bool, typer.Option("--apply", help="Write the best values into X.toml. Its comments and formatting stay.")
    ] = False,
    apply_to: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the best values into FILE, a new copy of X.toml.")
    ] = None,
    dry_run: DryRun = False,
    json_: Json = False,
) -> None:
    """Run the grids under [sweep] and mark the best point of each algorithm.

    Points are compared on data held out from the training set. The test set is never used. Points that have finished
    are skipped. A point that diverges is never the best; the others still run, and the exit code is 3.

    A warning names the algorithms whose best point lies on an edge of their grid. --widen adds the next value there,
    with every combination of the other values.

    --halving takes about a quarter of the time, and misses points that begin slowly.

    With several seeds, points are compared by the mean over the seeds, and the table shows the standard deviation.

    With --json: one JSON object per point, from best to worst, on a line of its own.
    """
    from fadas.cli.terminal import Display, print_json, print_line
    from fadas.experiments.sweeps.apply import WinnersFile
    from fadas.experiments.sweeps.halving import HALVING, count_runs, search_points
    from fadas.experiments.sweeps.search import Search

    check_option(MOST_WORKERS, jobs=jobs)
    judge: Any = by
    if judge not in ("mean", "last"):
        raise unknown_name("value of --by", by, ("mean", "last"))
    set_environment(data_dir, allow_code)
    rungs = HALVING if halving else (1.0,)
    file = WinnersFile(experiment, apply_to, profile) if apply or apply_to else None
    if apply and apply_to:
        raise ConfigError("--apply and --apply-to contradict each other; give one of them")
    options = experiment, set_, profile, only, seed, executor, device, validation, out, samples, sample_seed
    with without_writing() if dry_run else nullcontext():
        plan = _read_sweep(*options)
        if file is not None:
            file.require_usable({label: grid.points[0] for label, grid in plan.grids.items()})
        search = Search(plan.grids, plan.make_points, plan.why_invalid, judge, widen_limit if widen else 0)
        todo, root = search.next_points(), plan.root
        signals.require_cleanup()
        if dry_run:
            notes = [f"--widen may add points: at most {widen_limit} extensions of each grid"] if widen else []
            notes += [f"would write the best values into {file.target}"] if file else []
            preview_points(todo, root, jobs, rungs, json_, plan.grids, notes)
            return
    with Display(0, "runs") as display:
        name = "sweep"
        while todo:
            total = count_runs(todo, rungs)
            bar = display.add(name, total)
            for done, (point, _) in enumerate(
                search.record(search_points(todo, jobs, rungs, by=judge, say=display.say)), 1
            ):
                total = max(total, done)  # if a point diverges, another one goes on
                bar.update(done, f"{point.label}: {point.name}{_mark(point.share)}", total)
            bar.finish(f"{len(todo)} runs in {root}", total)
            todo, name = search.next_points(), "sweep, extended"
    ranked = search.ranked()
    if json_:
        for row in ranked:
            print_json({**asdict(row), "metric": search.metric.name, "better": search.metric.better})
    else:
        _print_ranked(search, ranked, plan.name, by)
    _warn_of_edges(search, widen)
    if file is not None:
        file.write({row.label: row.point for row in ranked if row.best})
        if not json_:
            print_line(f"best values written into {file.target}")
    diverged = [
        str(point.folder.relative_to(root)) for point, outcome in search.results if outcome.diverged is not None
    ]
    raise_if_diverged(sorted(diverged), len(search.results))


def _read_sweep(
    experiment: Path,
    overrides: list[str],
    profile: str | None,
    only: str | None,
    seed: int | None,
    executor: str | None,
    device: str | None,
    validation: float | None,
    out: Path | None,
    samples: int | None,
    sample_seed: int,
) -> Any:
    """Return the sweep that the options describe."""
    from fadas.experiments.resolve import experiment_seeds
    from fadas.experiments.sweeps.points import Sweep, has_grid, hold_out, read_grid

    tables = read_tables(experiment, overrides, seed, profile, executor, device)
    labels = select_labels(tables, only)
    if only is None:  # all that have a grid
        labels = [label for label in labels if has_grid(tables, label)] or labels
    share = tables.get("task", {}).get("validation") or 0.2 if validation is None else validation
    root = out or Path("runs") / f"{tables['name']}-sweep"
    grids = {label: read_grid(tables, label, samples, sample_seed) for label in labels}
    return Sweep(hold_out(tables, share), grids, experiment_seeds(tables), root)


def _print_ranked(search: Any, ranked: Sequence[Any], title: str, by: str) -> None:
    from fadas.cli.terminal import print_line, print_table

    metric = search.metric
    rows = [[row.label, row.name, row.score_text(metric), row.mark()] for row in ranked]
    head = f"validation {metric.name}" + ("\nlast evaluation" if by == "last" else "")
    head += f"\nmean of {ranked[0].seeds} seeds" if ranked[0].seeds > 1 else ""
    print_table(["algorithm", "point", head, ""], rows, title)
    for label, edges in search.extended.items():
        for key in dict.fromkeys(edge.key for edge in edges):
            print_line(f"extended: sweep.{label}.{key} {search.grids[label].axis_text(key)}")


def _warn_of_edges(search: Any, widen: bool) -> None:
    hint = "--widen-limit allows more" if widen else "--widen extends the grid there"
    for label, edges in search.edges_left():
        warnings.warn(f"{label} is {edges}; {hint}", FadasWarning, stacklevel=2)


def _mark(share: float) -> str:
    return "" if share == 1 else f", after {share:.1%}"


def add_to(app: typer.Typer) -> None:
    """Add this command to the app."""
    app.command(
        epilog=with_examples(
            "fadas sweep experiment.toml --seed 100 --dry-run",
            "fadas sweep experiment.toml --seed 100 -j 2 --widen",
            "fadas sweep experiment.toml --set run.seeds=[100,101,102] --halving --apply-to tuned.toml",
            "fadas sweep experiment.toml --seed 100 --samples 20 --by last",
        )
    )(sweep)
