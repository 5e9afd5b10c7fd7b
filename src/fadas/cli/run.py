"""Commands that take an experiment: run, plan."""

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
    flag,
    raise_if_diverged,
    read_tables,
    select_labels,
    set_environment,
    with_advice,
    with_examples,
)
from fadas.cli.results import show_comparison
from fadas.errors import Busy, Damaged, DiskFull, Diverged, Foreign, Interrupted, OtherSettings, Unfinished

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
    report: Annotated[bool, flag(help="Compare the runs at the end and write report.html.")] = True,
    dry_run: DryRun = False,
    json_: Json = False,
) -> None:
    """Run the algorithms of an experiment one after the other, and compare them.

    Each run is kept in a folder of its own, `<algorithm>-<seed>`. Runs that have finished with the same settings are
    skipped. If a run diverges, the others still run, and the exit code is 3. If another process is running one, it is
    tried again at the end and then skipped, and the exit code is 2.

    With --json: one JSON object per run, on a line of its own, and no report.
    """
    from fadas.cli.terminal import Display, print_json
    from fadas.experiments.prepare import make_plan, make_task
    from fadas.experiments.queue import RunQueue

    if overwrite and resume:
        raise typer.BadParameter("--resume and --overwrite exclude each other")
    set_environment(data_dir, allow_code)
    mode = "overwrite" if overwrite else "resume" if resume else "new"
    find_runs = partial(_find_runs, experiment, set_, profile, only, seed, executor, device, out, mode)
    if dry_run:
        with without_writing():
            found = find_runs()
            signals.require_cleanup()
            preview_runs(*found, json_)
        return
    configs, root, _, finished = find_runs()
    pending = [c for c in configs if root / c.id not in finished]
    signals.require_cleanup()  # a task may come from the user's code
    # Mistakes show here, before the first run begins. All methods of a seed share the data.
    tasks = {c.seed: make_task(c) for c in {c.seed: c for c in pending}.values()}
    plans = {c.id: make_plan(c, tasks[c.seed]) for c in pending}
    diverged: list[str] = []
    with Display(max(len(c.id) for c in configs), "updates") as display:
        work = _Work(root, mode, finished, tasks, plans, display)
        queue = RunQueue(configs, lambda config: config.id, display.say)
        for config, summary in queue.run(work.attempt):
            if summary.diverged is not None:
                display.say(f"{config.id}: diverged after step {summary.step:,}: {summary.diverged}")
                diverged.append(config.id)
            if json_:
                print_json({**summary.as_dict(), "folder": str(root / config.id)})
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
) -> tuple[list[Any], Path, Any, dict[Path, Any]]:
    """Return the runs' settings, their folder, the mode, and the summaries of those that have finished."""
    from fadas.experiments.queue import find_finished_runs
    from fadas.experiments.resolve import experiment_seeds, resolve

    tables = read_tables(experiment, overrides, seed, profile, executor, device)
    labels = select_labels(tables, only)
    configs = [resolve(tables, label, one) for one in experiment_seeds(tables) for label in labels]
    root = out or Path("runs") / tables["name"]
    return configs, root, mode, find_finished_runs({root / c.id: c.tables for c in configs}, mode)


class _Work:
    """What the command does with each run."""

    def __init__(self, root: Path, mode: Any, finished: Any, tasks: Any, plans: Any, display: Any) -> None:
        self.root, self.mode, self.finished = root, mode, finished
        self.tasks, self.plans, self.display = tasks, plans, display
        self.was_busy: set[str] = set()

    def attempt(self, config: Any) -> Any:
        """Run a configuration, unless it has finished. Return its summary."""
        folder = self.root / config.id
        if folder not in self.finished:
            try:
                return self._run(config, folder)
            except Busy:
                self.was_busy.add(config.id)
                raise
        self.display.say(_describe_skipped(config.id, folder))
        return self.finished[folder]

    def _run(self, config: Any, folder: Path) -> Any:
        from fadas.experiments.prepare import make_simulation
        from fadas.experiments.run import execute
        from fadas.runs.folder import Finished, claim

        # Another process finished it meanwhile: do not overwrite it.
        mode = "resume" if self.mode == "overwrite" and config.id in self.was_busy else self.mode
        claimed = claim(folder, config.tables, mode)
        if isinstance(claimed, Finished):
            self.display.say(_describe_skipped(config.id, folder))
            return claimed.summary
        with claimed:
            simulation = make_simulation(config, self.tasks[config.seed], self.plans[config.id])
            if each := simulation.kept_bytes:
                sizes = f"{_bytes(each)} between its jobs, all clients together {_bytes(each * config.clients)}"
                self.display.say(f"{config.id}: a client keeps {sizes}")
            bar = self.display.add(config.id, int(self.plans[config.id].statistics()["updates"]))
            on_record = lambda r: bar.update(r.updates, _accuracy(r.metrics))  # noqa: E731
            summary = execute(config, simulation, claimed, on_record, self.display.say)
        if summary.diverged is None:
            bar.finish(_describe(summary), summary.updates)
        return summary


def _bytes(count: int) -> str:
    unit, name = next((pair for pair in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")) if count >= pair[0]), (1, "bytes"))
    return f"{count / unit:,.3g} {name}"


def _accuracy(metrics: dict[str, float] | None) -> str | None:
    return f"accuracy {metrics['accuracy']:.1%}" if metrics and "accuracy" in metrics else None


def _describe_skipped(name: str, folder: Path) -> str:
    """Return what to say of a run that has finished."""
    advice = "data files are not compared; --overwrite runs it again"
    return f"{name}: skipped, it has finished in {folder} ({advice})"


def _describe(summary: Any) -> str:
    """Return a summary on one line."""
    parts = [f"{summary.step:,} steps", f"{summary.updates:,} updates", f"virtual time {summary.time:.1f}"]
    if accuracy := _accuracy(summary.metrics):
        parts.append(accuracy)
    if refused := sum(summary.refused.values()):
        parts.append(f"{refused:,} updates refused")
    if spent := summary.privacy:
        parts.append(f"epsilon {spent['epsilon']:.2f} at delta {spent['delta']:g}")
    return ", ".join([*parts, f"{summary.wall:.1f} s"])


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
    statistics: dict[int, dict[str, dict[str, float]]] = {}
    signals.require_cleanup()  # a task may come from the user's code
    for one in experiment_seeds(tables):
        for label in labels:
            config = resolve(tables, label, one)
            timeline = make_plan(config)
            warn_of_idle_cap(timeline, config.algorithm, label)
            statistics.setdefault(one, {})[label] = timeline.statistics()
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


def _number(value: float) -> str:
    return f"{value:,.2f}".removesuffix(".00")


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
            "fadas run experiment.toml --dry-run",
            "fadas run experiment.toml --only fadas,fadas-da --set run.updates=100 --out runs/short",
        )
    )(run)
    app.command(epilog=with_examples("fadas plan experiment.toml", "fadas plan experiment.toml --only fadas --json"))(
        plan
    )
