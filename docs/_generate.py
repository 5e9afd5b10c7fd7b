"""The parts of the site that are made when it is built: settings, commands, the Python API, and the files it links to.

A page marks the place of such a part with a comment, for example `<!-- generated: settings -->`.
"""

import inspect
import re
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from docutils import nodes

from fadas.experiments.catalog.app import SECTION as APP, example_key
from fadas.experiments.catalog.lookup import HEADINGS, WHERE, anchor, heading

ROOT = Path(__file__).parent.parent

TITLES = {"name": "name", "faults": "[faults.NAME]", "algorithms": "[algorithms.NAME]"}
TITLES |= {"sweep": "[sweep.NAME]", "profiles": "[profiles.NAME]", **HEADINGS}
PARTS = {
    "rate_schedule": "## Rate schedules\n\nA rate schedule changes the clients' learning rate with the server's "
    'version. It is a table in `[local]`: `schedule = {name = "cosine", steps = 500}`.',
    "step_law": "## Step laws\n\nA step law gives each job its number of local steps. It is a table in `[local]`: "
    '`steps = {name = "uniform", low = 5, high = 50}`.',
    "combine": "## Combine rules\n\nA combine rule turns the M updates of a step into one pseudo-gradient. It is a "
    'name or a table in `[algorithms.NAME]`: `combine = "median"` or `combine = {name = "trimmed", trim = 2}`.',
    "optimizer": "## Server optimizers\n\nThe server optimizer turns the pseudo-gradient into the next model. It is a "
    'name or a table in `[algorithms.NAME]`: `optimizer = "yogi"` or `optimizer = {name = "yogi", beta1 = 0.8}`.',
    "step_size": "## Step sizes\n\nA step size gives the rate of each server step. It is a name or a table in "
    '`[algorithms.NAME]`: `step_size = {name = "cosine", steps = 500, eta = 0.01}`.',
    "sink": "## Sinks\n\nA sink is a tracker that also receives a run. `sinks` in `[run]` lists names or tables: "
    '`sinks = ["tensorboard", {name = "wandb", project = "x"}]`.',
    "companion": "## Companions\n\nA companion is what a method adds to local training. It is a name or a table in "
    '`[algorithms.NAME]`: `companion = "control-variates"` or `companion = {name = "proximal", mu = 0.1}`.',
}
# Public names of packages whose __init__.py has no __all__, beside those of `fadas` itself.
PUBLIC = {
    "core": "ledger.Job ledger.Step model.ServerState server.Received server_step.UpdateRule records.JobRecord",
    "simulation": "delays.DelayModel delays.Uniform delays.Lognormal delays.Exponential delays.Pareto "
    "delays.DelayTable faults.Fault planner.replan snapshot.take snapshot.restore",
    "tasks": "task.Subsets digits.digits names.names cifar.cifar glue.glue files.files files.from_huggingface "
    "partition.dirichlet partition.dirichlet_capped partition.by_shards partition.iid partition.natural partition.deal "
    "metrics.top_k metrics.macro_f1 metrics.auc metrics.rmse metrics.mae metrics.r2 metrics.perplexity",
    "experiments": "experiment_file.read_experiment experiment_file.select_algorithms resolve.resolve "
    "settings.RunConfig settings.RunSettings settings.ScheduleSettings prepare.make_task prepare.make_plan "
    "prepare.make_simulation run.execute catalog.list_settings catalog.Group catalog.Setting",
    "flower": "messages.job_seed",
    "runs": "reader.find_runs reader.read_run reader.read_records reader.Run summary.Summary summary.Outcome "
    "folder.claim folder.Claim sinks.Sink sinks.TensorBoard sinks.Wandb sinks.MLflow",
    "report": "comparison.compare comparison.Comparison comparison.Row comparison.join_folders html.write_report "
    "figures.save_figures figures.curves figures.delays figures.step_sizes figures.lost_work figures.timeline "
    "figures.served figures.participation figures.labels statistics.describe statistics.compare_paired "
    "statistics.find_best statistics.adjust_holm statistics.median_time statistics.Sample "
    "statistics.Difference statistics.Ranking frames.load_runs frames.load_steps frames.load_jobs "
    "frames.load_clients frames.load_labels export.export",
    "paper": "page.write_page artefacts.all_artefacts artefacts.find_artefact artefacts.Artefact artefacts.Cell "
    "results.read_result results.Result",
    "executors": "base.ExecutorTraits worker_pool.Pool",
}


def write_settings(section: str = "") -> str:
    """Return the settings of an experiment file: a table for each section and for each entry of a registry.

    Args:
        section: Only this section, such as "delays". Default: all.
    """
    from fadas.experiments.catalog import list_settings

    parts: list[str] = []
    before = ""
    for group in list_settings():
        if section and group.section != section:
            continue
        if group.section != before and group.section in PARTS:
            parts.append(PARTS[group.section])
        before = group.section
        if group.names:
            parts.append(f"### {heading(group)}")
        else:
            parts.append(f"## {TITLES.get(group.section, f'[{group.section}]')}")
        table = write_table(group) if group.settings else "No settings."
        where = "" if group.names else f"Applies to {WHERE[group.section]}."
        parts += [" ".join(filter(None, [group.summary, where])), group.description, table]
    if not parts:
        raise ValueError(f"there is no section {section!r}")
    return "\n\n".join(filter(None, parts))


def write_table(group: Any) -> str:
    """Return a group's settings as a table. The column "for" is there if the settings concern different things."""
    named = not group.names and any(one.concerns for one in group.settings)
    lines = ["{.settings}", f"| key | type | default | meaning | example |{' for |' if named else ''}"]
    lines.append("|---|---|---|---|---|" + "---|" * named)
    for one in group.settings:
        default = "required" if one.required else f"`{one.default}`" if one.default else "not set"
        is_short = group.section in (*PARTS, APP) or (group.section == "algorithms" and "*" not in one.key)
        name = one.name if is_short else one.key
        key = f"`{name.replace('*', 'NAME')}`"
        if not group.names:  # an identifier makes each key of a section linkable: settings.md#schedule-buffer
            key = f"[{key}]{{#{anchor(one)}}}"
        of_any = {"sweep.*.*": "eta", "profiles.*.*": "run"}
        key_shown = example_key(one) if group.section == APP else of_any.get(one.key, one.name)
        example = f"`{key_shown} = {one.example}`"
        example += "{.short}" * (len(example) < 26 and not named)  # stays on one line where there is room
        cells = [key, re.sub(r'("[^"]+")', r"`\1`", one.type), default, escape(one.meaning), example]
        lines.append(f"| {' | '.join([*cells, one.concerns or 'all methods'][: 5 + named])} |")
    return "\n".join(lines)


def escape(text: str) -> str:
    """Return text for a cell of a Markdown table. Numbers such as `alpha * s` keep their asterisks."""
    return re.sub(r"\s+", " ", text.replace("|", "\\|").replace("*", "\\*").replace("<", "&lt;"))


def write_commands() -> str:
    """Return the help of every command."""
    import typer

    from fadas.cli.app import app

    return "\n\n".join(write_command(typer.main.get_command(app), "fadas"))


def write_command(command: Any, name: str) -> Iterator[str]:
    """Yield the help of a command and of its subcommands, in Markdown."""
    import typer

    context = typer.Context(command, info_name=name)
    yield f"## {name}"
    yield inspect.cleandoc(command.help or "")
    pieces = command.collect_usage_pieces(context)
    yield f"```text\n{' '.join([name, *pieces])}\n```"
    rows = [param for param in command.params if param.name != "help"]
    if rows:
        yield "{.options}"
        lines = ["| option | meaning |", "|---|---|"]
        for param in rows:
            lines.append(write_option(param, context))
        yield "\n".join(lines)
    if command.epilog:
        yield inspect.cleandoc(command.epilog)
    for sub, child in getattr(command, "commands", {}).items():
        if not child.hidden:
            yield from write_command(child, f"{name} {sub}")


def write_option(param: Any, context: Any) -> str:
    """Return a row of the table of options."""
    metavar = param.make_metavar(context)
    if param.param_type_name == "argument":
        shown = f"`{param.metavar or metavar}`"
    else:
        takes = "" if param.is_flag else f" {metavar}"
        shown = ", ".join(f"`{opt}{takes}`" for opt in [*param.opts, *param.secondary_opts])
    text = escape(getattr(param, "help", "") or "")
    if not (param.default in (None, [], (), False, True) or param.required):
        text += f" Default: `{param.default}`."
    return f"| {shown.replace('|', chr(92) + '|')} | {text} |"


def write_api(package: str = "") -> str:
    """Return the public names of a package; without one, those of `fadas` with links to their packages."""
    import fadas

    exported = {name: getattr(fadas, name) for name in [*fadas.__all__, "AsyncStrategy"]}
    exported = {name: thing for name, thing in exported.items() if callable(thing)}
    if not package:
        rows = [f"| {{py:obj}}`fadas.{name}` | {summarise(thing)} |" for name, thing in sorted(exported.items())]
        errors = [write_object(f"fadas.{n}", thing) for n, thing in exported.items() if home(thing) == "errors"]
        table = "\n".join(["| name | what it is |", "|---|---|", *rows])
        return "\n\n".join([table, "## Errors", *errors])
    module = import_module(f"fadas.{package}")
    found = {f"fadas.{name}": thing for name, thing in exported.items() if home(thing) == package}
    for name in getattr(module, "__all__", ()):
        thing = getattr(module, name)
        if (callable(thing)) and thing not in found.values():
            found[f"fadas.{package}.{name}"] = thing
    for name in PUBLIC.get(package, "").split():
        path, _, attribute = name.rpartition(".")
        thing = getattr(import_module(f"fadas.{package}.{path}"), attribute)
        if thing not in found.values():  # fadas.partition is public, fadas.tasks.partition is where it lies
            found[f"fadas.{name}" if path in fadas.__all__ else f"fadas.{package}.{name}"] = thing
    parts: list[str] = []
    for name, thing in found.items():
        parts += [f"## {name.rpartition('.')[2]}", write_object(name, thing)]
    return "\n\n".join(parts)


def home(thing: Any) -> str:
    """Return the package of fadas where something is defined."""
    return getattr(thing, "__module__", "").split(".")[1]


def summarise(thing: Any) -> str:
    """Return the first sentences of a docstring, for a table."""
    from fadas.experiments.catalog.docstrings import read_docstring

    return escape(read_docstring(thing).summary)


def write_object(name: str, thing: Any) -> str:
    """Return the directive that documents a class or a function."""
    kind = "class" if inspect.isclass(thing) else "function" if inspect.isroutine(thing) else "data"
    if inspect.isclass(thing) and issubclass(thing, Exception):
        kind = "exception"
    option = {"class": "\n   :members:", "data": "\n   :no-value:"}.get(kind, "")
    return f"```{{eval-rst}}\n.. auto{kind}:: {name}{option}\n```"


GENERATORS: dict[str, Callable[..., str]] = {"settings": write_settings, "cli": write_commands, "api": write_api}


def insert(app: Any, page: str, source: list[str]) -> None:
    """Replace each mark of a page by what its generator makes, and links to files of the repository by `source:...`."""
    # A line in italics above a mark is for readers of the Markdown file: it says where the generated part is.
    mark = re.compile(r"^(?:\*[^\n]+\*\n)?<!-- generated: (\w+) ?(\w*) -->$", re.M)
    text = mark.sub(lambda found: GENERATORS[found[1]](*filter(None, [found[2]])), source[0])
    folder, shown = Path(app.env.doc2path(page)).parent, set()

    def to_source(link: re.Match[str]) -> str:
        path = (folder / link[1]).resolve()
        if path.is_relative_to(app.srcdir) or not path.is_relative_to(ROOT) or not path.is_file():
            return link[0]
        name = path.relative_to(ROOT).as_posix()
        shown.add(name)
        return f"](source:{name})"

    source[0] = re.sub(r"\]\((\.\./[^)\s#]+)\)", to_source, text)
    app.env.metadata[page]["fadas_shown"] = sorted(shown)


def link_sources(app: Any, tree: nodes.document, page: str) -> None:
    """Point `source:...` at the page of that file, relative to this page."""
    for link in tree.findall(nodes.reference):
        scheme, _, path = link.get("refuri", "").partition(":")
        if scheme == "source":
            link["refuri"] = app.builder.get_relative_uri(page, f"source/{path}")
            link["internal"] = True


def show_sources(app: Any) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Make a page of each file of the repository that a page links to."""
    languages = {".py": "python", ".toml": "toml", ".json": "json", ".md": "markdown"}
    for path in sorted({path for data in app.env.metadata.values() for path in data.get("fadas_shown", ())}):
        text = (ROOT / path).read_text(encoding="utf-8")
        code = app.builder.highlighter.highlight_block(text, languages.get(Path(path).suffix, "text"))
        yield f"source/{path}", {"title": path, "body": f"<h1>{path}</h1>{code}", "parents": []}, "page.html"


def adapt_docstring(app: Any, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """Turn the Markdown tables of a docstring into reStructuredText. Runs before napoleon."""
    if what in ("attribute", "property"):
        lines[:0] = ["..", ""]  # an empty comment: else napoleon takes the text before a colon for a type
    result: list[str] = []
    in_table = False
    for line in lines:
        if line.startswith("|") and not in_table:
            result += ["", ".. list-table::", "   :header-rows: 1", ""]
        elif in_table and not line.startswith("|"):
            result.append("")
        in_table = line.startswith("|")
        if not in_table:
            result.append(line)
        elif set(line) - set("|-: "):
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            result += [f"   {'  -' if k else '* -'} {cell}" for k, cell in enumerate(cells)]
    lines[:] = result


def skip_fields(app: Any, what: str, name: str, thing: Any, skip: bool, options: Any) -> bool | None:
    """Leave out fields that the class's docstring describes: those of a NamedTuple, and defaults that are functions."""
    is_default = what == "class" and inspect.isfunction(thing) and "." not in thing.__qualname__
    return True if type(thing).__name__ == "_tuplegetter" or is_default else None


def simplify_signature(
    app: Any, what: str, name: str, thing: Any, options: Any, arguments: str | None, returns: str | None
) -> tuple[str | None, str | None]:
    """Show defaults that are no literals by name: `loss=<function cross_entropy>` becomes `loss=cross_entropy`."""
    if arguments:
        arguments = re.sub(r"<function (?:\w+\.)*(\w+)>", r"\1", arguments)
        arguments = re.sub(r"<function <lambda>>|<factory>", "...", arguments)
    return arguments, returns


def find_type(app: Any, env: Any, node: Any, content: Any) -> Any:
    """Resolve a type of a signature, such as fadas.core.ledger.Schedule, by the name under which it is documented."""
    import fadas

    path, _, name = node.get("reftarget", "").rpartition(".")
    thing = getattr(fadas, name, None) if name in fadas.__all__ else None
    if not path.startswith("fadas.") or getattr(thing, "__module__", None) != path:
        return None
    domain = env.domains.python_domain
    return domain.resolve_xref(env, node["refdoc"], app.builder, node["reftype"], f"fadas.{name}", node, content)


def setup(app: Any) -> dict[str, bool]:
    """Register with Sphinx."""
    app.connect("source-read", insert)
    app.connect("doctree-resolved", link_sources)
    app.connect("html-collect-pages", show_sources)
    app.connect("autodoc-process-docstring", adapt_docstring, priority=400)
    app.connect("autodoc-process-signature", simplify_signature)
    app.connect("autodoc-skip-member", skip_fields)
    app.connect("missing-reference", find_type)
    return {"parallel_read_safe": True}
