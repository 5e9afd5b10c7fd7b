"""fadas explain: what a setting or a name of an experiment file means."""

import textwrap
from typing import Annotated, Any

import typer

from fadas.cli.completion import complete_explain
from fadas.cli.options import with_examples

_WIDTH = 100


def explain(
    key: Annotated[
        str | None,
        typer.Argument(
            metavar="KEY",
            help="A setting, a section, a method, a task, a delay model, an executor, ... Default: list them.",
            autocompletion=complete_explain,
        ),
    ] = None,
) -> None:
    """Explain a setting or a name: what it does, its type and default, an example, and the page of the documentation.

    Without KEY: list the settings of each section, and the names of methods, tasks, delay models and executors.
    """
    from fadas.cli.terminal import print_line
    from fadas.experiments.catalog.lookup import explain_term, find_entries, list_names

    if key is None:
        for kind, names in list_names().items():
            for line in _wrap(", ".join(names), f"{kind}: ", "    ").splitlines():
                print_line(line)
        return
    if meaning := explain_term(key):
        print_line(f"{key}: term")
        for line in _wrap(f"{meaning}.", "  ", "  ").splitlines():
            print_line(line)
        print_line(f"  page: {_on_site('glossary.html')}")
        return
    texts = [_describe_setting(*found) if found[1] else _describe_group(found[0], key) for found in find_entries(key)]
    for text in "\n\n".join(texts).splitlines():
        print_line(text)


def _describe_setting(group: Any, setting: Any) -> str:
    from fadas.experiments.catalog.lookup import WHERE, page, show_example

    default = "required" if setting.required else f"default: {setting.default or 'not set'}"
    concerns = setting.concerns or WHERE[group.section]
    return "\n".join(
        [
            f"{setting.key.replace('*', 'NAME')}: {setting.type}, {default}",
            _wrap(setting.meaning, "  ", "  "),
            f"  example:  {show_example(group, setting)}",
            _wrap(concerns.replace("`", ""), "  concerns: ", "            "),
            f"  page:     {_on_site(page(group, setting))}",
        ]
    )


def _describe_group(group: Any, key: str) -> str:
    from fadas.experiments.catalog.lookup import KINDS, page

    lines = [f"{key}: {KINDS[group.section].lower()}" if group.names else f"[{group.section}]: section"]
    if group.summary:
        lines.append(_wrap(group.summary, "  ", "  "))
    if group.description:
        lines += ["", textwrap.indent(group.description, "  ")]
    for one in group.settings:
        default = "required" if one.required else f"default: {one.default or 'not set'}"
        name = one.key.replace("*", "NAME") if not group.names else one.name
        lines += ["", f"  {name}: {one.type}, {default}", _wrap(one.meaning, "    ", "    ")]
    return "\n".join([*lines, "", f"  example: {_example(group, key)}", f"  page:    {_on_site(page(group))}"])


def _on_site(page: str) -> str:
    return f"{page} on the site, which `make docs` builds"


def _example(group: Any, key: str) -> str:
    """Return TOML that names an entry, or that sets a section's first setting."""
    from fadas.experiments.catalog.lookup import LOCAL_PARTS, show_example
    from fadas.experiments.resolve import PART_FIELDS

    if not group.names:
        return show_example(group, group.settings[0])
    if group.section == "algorithms":
        return f"[algorithms.{key}]"
    if part := LOCAL_PARTS.get(group.section):
        needed = "".join(f", {one.name} = {one.example}" for one in group.settings if one.required)
        return f'local.{part} = {{name = "{key}"{needed}}}'
    if group.section == "sink":
        return f'run.sinks = ["{key}"]'
    place = f"algorithms.NAME.{group.section}" if group.section in PART_FIELDS else ""
    return f'{place} = "{key}"' if place else f'{group.section}.name = "{key}"'


def _wrap(text: str, first: str, rest: str) -> str:
    return textwrap.fill(
        text, _WIDTH, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False, break_long_words=False
    )


def add_to(app: typer.Typer) -> None:
    """Add this command to the app."""
    app.command(epilog=with_examples("fadas explain schedule.buffer", "fadas explain fadas-da"))(explain)
