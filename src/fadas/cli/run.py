"""Commands that take an experiment: run, plan."""

from pathlib import Path
from typing import Annotated, Any

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
from fadas.cli.results import show_comparison
from fadas.errors import ConfigError
from fadas.runs.run_reader import finished


@with_advice(
    foreign="use --out DIR",
    settings="use --out DIR, or --overwrite",
    busy="wait for it, or use --out DIR",
    damaged="delete it to run it anew",
    unfinished="continue it with --resume, or begin anew with --overwrite",
    full="free some space, then --resume",
    interrupted="the same command with --resume continues",
    diverged="summary.json says why; smaller rates may help, in another --out DIR or with --overwrite",
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
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Instead of `runs/NAME`.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace runs that are there already.")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Continue interrupted runs from their checkpoints.")] = False,
    report: Annotated[bool, typer.Option(help="Compare the runs at the end and write report.html.")] = True,
    json_: Json = False,
) -> None:
    """Run the algorithms of an experiment, one after the other, and compare them.

    Each run is kept in a folder of its own, `<algorithm>-<seed>`; what is there already is not run again.
    One that diverges does not keep the others from running; the exit code is 3 then. Nor does one that another process
    is at: it is tried once more at the end and, if that is still so, left out; the exit code is 2 then.
    With --json: one object per run, on a line of its own, and no report.
    """
    from fadas.cli.terminal import Display, print_json
    from fadas.experiments.prepare import make_plan, make_simulation, make_task
    from fadas.experiments.resolve import resolve, seeds
    from fadas.experiments.run import execute

    if overwrite and resume:  # to go on with what is there, or not to: of other settings, something of both would come
        raise typer.BadParameter("--resume and --overwrite exclude each other")
    set_environment(data_dir, allow_code)
    tables = read_tables(experiment, set_, seed, profile, executor, device)
    labels = select_labels(tables, only)
    configs = [resolve(tables, label, one) for one in seeds(tables) for label in labels]
    root = out or Path("runs") / tables["name"]
    there = finished({root / c.id: c.tables for c in configs}, overwrite, resume)
    todo = [c for c in configs if root / c.id not in there]
    # Every mistake shows here, before the first run begins. All methods of a seed share the data.
    tasks = {c.seed: make_task(c) for c in {c.seed: c for c in todo}.values()}
    plans = {c.id: make_plan(c, tasks[c.seed]) for c in todo}
    root.mkdir(parents=True, exist_ok=True)
    diverged: list[str] = []
    busy: list[str] = []
    queue = list(configs)
    with Display(max(len(c.id) for c in configs), "updates") as display:
        for c in queue:
            folder = root / c.id
            try:
                anew = overwrite and c.id not in busy  # what another process has done meanwhile is new
                if folder not in there:  # by now, another process may be at it or have finished it
                    there |= finished({folder: c.tables}, anew, resume)
                if folder in there:
                    display.say(f"{c.id}: already there in {folder} (--overwrite runs it again)")
                    summary = there[folder]
                else:
                    simulation = make_simulation(c, tasks[c.seed], plans[c.id])
                    bar = display.add(c.id, int(plans[c.id].statistics()["updates"]))
                    on_record = lambda r, bar=bar: bar.update(r.updates, _accuracy(r.metrics))  # noqa: E731
                    summary = execute(c, simulation, folder, on_record, anew, resume, display.say)
                    if "diverged" not in summary:
                        bar.finish(_one_line(summary), summary["updates"])
            except ConfigError as error:
                if error.matter not in ("busy", "written"):
                    raise
                if c.id not in busy:
                    display.say(f"{c.id}: another process is at it")
                    busy.append(c.id)
                    queue.append(c)  # when all others are done, that process may be, too
                continue
            if c.id in busy:
                busy.remove(c.id)
            if "diverged" in summary:
                display.say(f"{c.id}: diverged after step {summary['step']:,}: {summary['diverged']}")
                diverged.append(c.id)
            if json_:
                print_json({**summary, "folder": str(folder)})
    if report and not json_ and len(busy) < len(configs):
        show_comparison(root)
    if busy:
        number = f"{len(busy)} of {len(configs)} runs"
        raise ConfigError(f"{number} left out, in use by another process: {', '.join(busy)}", "busy")
    raise_if_diverged(diverged, len(configs))


def _accuracy(metrics: dict[str, float] | None) -> str | None:
    return f"accuracy {metrics['accuracy']:.1%}" if metrics and "accuracy" in metrics else None


def _one_line(summary: dict[str, Any]) -> str:
    parts = [f"{summary['step']:,} steps", f"{summary['updates']:,} updates", f"virtual time {summary['time']:.1f}"]
    accuracy = _accuracy(summary["metrics"])
    if accuracy:
        parts.append(accuracy)
    if refused := sum(summary["refused"].values()):
        parts.append(f"{refused:,} updates refused")
    if spent := summary.get("privacy"):
        parts.append(f"epsilon {spent['epsilon']:.2f} at delta {spent['delta']:g}")
    return ", ".join([*parts, f"{summary['wall']:.1f} s"])


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
    """Show the delays of an experiment, for its first seed, without training anything.

    With --json: one object with the statistics of the first algorithm, and those of all under "algorithms".
    """
    from fadas.cli.terminal import print_json, print_table
    from fadas.experiments.prepare import make_plan
    from fadas.experiments.resolve import resolve, seeds

    set_environment(data_dir, allow_code)
    tables = read_tables(experiment, set_, seed, profile)
    one = seeds(tables)[0]
    labels = select_labels(tables, only)
    statistics = {label: make_plan(resolve(tables, label, one)).statistics() for label in labels}
    if json_:
        print_json({"algorithm": labels[0], "seed": one, **statistics[labels[0]], "algorithms": statistics})
        return
    keys = list(statistics[labels[0]])
    rows = [
        [label, *(f"{values[key]:,.2f}".removesuffix(".00") for key in keys)] for label, values in statistics.items()
    ]
    print_table(["algorithm", *(key.replace("_time", "\ntime") for key in keys)], rows, f"{tables['name']}, seed {one}")


def add_to(app: typer.Typer) -> None:
    app.command(
        epilog="Example: `fadas run experiments/demo.toml --only fadas,fadas-da --set run.steps=150 --out /tmp/try`"
    )(run)
    app.command(epilog="Example: `fadas plan experiments/demo.toml --only fadas --json`")(plan)
