"""Commands that take an experiment: run, plan."""

import time
from functools import partial
from importlib.resources import as_file, files
from pathlib import Path
from typing import Annotated, Any

import typer

from fadas.cli import signals
from fadas.cli.dry_run import preview_runs, without_writing
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
from fadas.cli.results import show_comparison
from fadas.cli.work import Bars, Item, ParallelWork, Work
from fadas.errors import Busy, Damaged, DiskFull, Diverged, Foreign, Interrupted, OtherSettings, Unfinished
from fadas.validate import MOST_WORKERS

Out = Annotated[Path | None, typer.Option(metavar="DIR", help="Where to keep the runs; default: runs/NAME.")]
Overwrite = Annotated[bool, flag("--overwrite", help="Rerun finished runs.")]
Resume = Annotated[bool, flag("--resume", help="Continue interrupted runs from their checkpoints.")]


@with_advice(
    {
        Foreign: "choose another folder with --out DIR",
        OtherSettings: "choose another folder with --out DIR, or replace the run with --overwrite",
        Busy: "wait for it, or choose another folder with --out DIR",
        Damaged: "delete the folder to run it again",
        Unfinished: "continue it with --resume, or start over with --overwrite",
        DiskFull: "free some space, then continue with --resume",
        Interrupted: "run the same command with --resume to continue",
        Diverged: "summary.json says why. Look for NaN in the data, or try smaller rates with --out DIR or --overwrite",
    }
)
def run(
    experiment: ExperimentFile,
    set_: Set = [],
    profile: Profile = None,
    only: Only = None,
    seed: Seed = None,
    executor: Executor = None,
    device: Device = None,
    data_dir: DataDir = None,
    allow_code: AllowCode = False,
    out: Out = None,
    overwrite: Overwrite = False,
    resume: Resume = False,
    jobs: Annotated[int, typer.Option("-j", "--jobs", min=1, help="Runs at a time, each in a process.")] = 1,
    report: Annotated[bool, flag(help="Compare the runs at the end and write report.html.")] = True,
    dry_run: DryRun = False,
    json_: Json = False,
) -> None:
    """Run the algorithms of an experiment with each seed, and compare them.

    Each run is kept in a folder of its own, `<algorithm>-<seed>`. Runs that have finished with the same settings are
    skipped. If a run diverges, the others still run, and the exit code is 3. If another process is running one, it is
    tried again at the end and then skipped, and the exit code is 2.

    With --json: one JSON object per run, on a line of its own, and no report.
    """
    from fadas.cli.terminal import Display, print_json
    from fadas.experiments.prepare import make_plan, make_task
    from fadas.experiments.queue import RunQueue

    check_option(MOST_WORKERS, jobs=jobs)
    if overwrite and resume:
        raise typer.BadParameter("--resume and --overwrite exclude each other")
    set_environment(data_dir, allow_code)
    mode = "overwrite" if overwrite else "resume" if resume else "new"
    find_runs = partial(_find_runs, experiment, set_, profile, only, seed, executor, device, out, mode)
    if dry_run:
        with without_writing():
            _, configs, root, _, finished = find_runs()
            signals.require_cleanup()
            preview_runs(configs, root, mode, finished, json_)
        return
    tables, configs, root, _, finished = find_runs()
    pending = [c for c in configs if root / c.id not in finished]
    signals.require_cleanup()  # a task may come from the user's code
    # Mistakes show here, before the first run begins. All methods of a seed share the data.
    tasks = {c.seed: make_task(c) for c in {c.seed: c for c in pending}.values()}
    plans = {c.id: make_plan(c, tasks[c.seed]) for c in pending}
    diverged: list[str] = []
    items = [Item(tables, c.label, c.seed) for c in configs]
    with Display(max(len(c.id) for c in configs), "updates") as display:
        bars = Bars(display, plans, {c.id for c in configs if c.algorithm.is_timeless})
        if jobs > 1 and len(pending) > 1:
            tasks.clear()  # each process makes its own
            attempt: Any = ParallelWork(root, mode, time.time())
        else:
            attempt = Work(root, mode, finished, {c.id: c for c in configs}, tasks, plans, bars)
        queue = RunQueue(items, lambda item: item.id, display.say)
        workers = min(jobs, max(1, len(pending)))
        for item, ended in queue.run(attempt, workers, lambda item, progress: bars.update(item.id, *progress)):
            bars.end(item.id, ended)
            summary = ended.summary
            if summary.diverged is not None:
                display.say(f"{item.id}: diverged after step {summary.step:,}: {summary.diverged}")
                diverged.append(item.id)
            if json_:
                print_json({**summary.as_dict(), "folder": str(root / item.id)})
    if report and not json_ and len(queue.skipped) < len(configs):
        show_comparison(root)
    queue.raise_if_skipped()
    raise_if_diverged(diverged, len(configs))


def _find_runs(
    experiment: Path,
    overrides: list[str],
    profile: str | None,
    only: str | None,
    seed: int | None,
    executor: str | None,
    device: str | None,
    out: Path | None,
    mode: Any,
) -> tuple[Any, list[Any], Path, Any, dict[Path, Any]]:
    """Return the experiment, the runs' settings, their folder, the mode, and the summaries of finished runs."""
    from fadas.experiments.queue import find_finished_runs
    from fadas.experiments.resolve import experiment_seeds, resolve

    tables = read_tables(experiment, overrides, seed, profile, executor, device)
    labels = select_labels(tables, only)
    configs = [resolve(tables, label, one) for one in experiment_seeds(tables) for label in labels]
    root = out or Path("runs") / tables["name"]
    return tables, configs, root, mode, find_finished_runs({root / c.id: c.tables for c in configs}, mode)


def plan(
    experiment: ExperimentFile,
    set_: Set = [],
    profile: Profile = None,
    only: Only = None,
    seed: Seed = None,
    data_dir: DataDir = None,
    allow_code: AllowCode = False,
    json_: Json = False,
) -> None:
    """Show the delays of an experiment, for all its seeds, without training anything.

    With --json: one object with the statistics of the first algorithm and seed, those of all algorithms with the first
    seed under "algorithms", and those of all seeds under "seeds".
    """
    from fadas.cli.terminal import print_json, print_table
    from fadas.experiments.prepare import make_plan
    from fadas.experiments.resolve import experiment_seeds, resolve
    from fadas.simulation.preflight import warn_of_idle_cap

    set_environment(data_dir, allow_code)
    tables = read_tables(experiment, set_, seed, profile)
    labels = select_labels(tables, only)
    statistics: dict[int, dict[str, dict[str, float | None]]] = {}
    signals.require_cleanup()  # a task may come from the user's code
    for one in experiment_seeds(tables):
        for label in labels:
            config = resolve(tables, label, one)
            timeline = make_plan(config)
            warn_of_idle_cap(timeline, config.algorithm, label)
            known: dict[str, float | None] = {**timeline.statistics()}
            if config.algorithm.is_timeless:
                known["virtual_time"] = None
            statistics.setdefault(one, {})[label] = known
    first = next(iter(statistics))
    if json_:
        by_seed = {str(one): by_label for one, by_label in statistics.items()}
        head = {"algorithm": labels[0], "seed": first, **statistics[first][labels[0]]}
        print_json({**head, "algorithms": statistics[first], "seeds": by_seed})
        return
    keys = list(statistics[first][labels[0]])
    columns = ["algorithm", *(key.replace("_time", "\ntime") for key in keys)]
    for one, by_label in statistics.items():
        rows = [[label, *(_number(values[key]) for key in keys)] for label, values in by_label.items()]
        print_table(columns, rows, f"{tables['name']}, seed {one}")


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.2f}".removesuffix(".00")


def demo(
    only: Only = None,
    seed: Seed = None,
    data_dir: DataDir = None,
    out: Out = None,
    overwrite: Overwrite = False,
    resume: Resume = False,
    dry_run: DryRun = False,
) -> None:
    """Run the demo: four methods guess the first word of a function's name from the words in its body.

    Nothing is downloaded: the functions are those of Python's standard library. Runs go to runs/demo. It is the
    experiment `experiments/demo.toml` of the repository, and runs anywhere.
    """
    with as_file(files("fadas.cli") / "demo.toml") as path:
        run(
            path,
            only=only,
            seed=seed,
            data_dir=data_dir,
            out=out,
            overwrite=overwrite,
            resume=resume,
            dry_run=dry_run,
        )


def add_to(app: typer.Typer) -> None:
    """Add these commands to the app."""
    app.command(epilog=with_examples("fadas demo", "fadas demo --only fadas-da,fedbuff --seed 1"))(demo)
    app.command(
        epilog=with_examples(
            "fadas run experiment.toml -j 2 --dry-run",
            "fadas run experiment.toml --only fadas,fadas-da --set run.updates=100 --out runs/short",
        )
    )(run)
    app.command(epilog=with_examples("fadas plan experiment.toml", "fadas plan experiment.toml --only fadas --json"))(
        plan
    )
