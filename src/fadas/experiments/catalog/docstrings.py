"""Docstrings as data, for the reference pages and for help at the prompt.

The docstrings of fadas have Google's style: a summary, a description, and sections such as `Args:`.
"""

import inspect
import re
from functools import partial
from typing import Any, NamedTuple

_SECTION = re.compile(r"(Args|Attributes|Returns|Yields|Raises|Example|Examples):")


class Docstring(NamedTuple):
    """A docstring in parts.

    Attributes:
        summary: The first paragraph, on one line.
        description: The text between the summary and the first section.
        arguments: What each parameter means, from `Args`.
        examples: The lines of `Example`, without the prompt. A statement may span several lines.
    """

    summary: str
    description: str
    arguments: dict[str, str]
    examples: list[str]


def read_docstring(thing: Any) -> Docstring:
    """Return the docstring of a class, a function, a partial or a callable object.

    The parameters of an object that is called may be described in its class or in `__call__`.

    Args:
        thing: What has the docstring, such as an entry of a registry.

    Example:
        >>> read_docstring(fadas.Checks).arguments["norm"]
        'The largest norm that a delta may have. None: no limit.'
    """
    while isinstance(thing, partial):
        thing = thing.func
    kind = thing if inspect.isclass(thing) or inspect.isroutine(thing) else type(thing)
    text, sections = _split(kind.__doc__ or "")
    call = vars(kind).get("__call__") if inspect.isclass(kind) else None
    called = _split(getattr(call, "__doc__", None) or "")[1]
    bases = kind.__mro__[:0:-1] if inspect.isclass(kind) else ()  # a subclass describes its own arguments only
    inherited = {name: said for base in bases for name, said in _arguments_of(base).items()}
    summary, _, description = text.partition("\n\n")
    return Docstring(
        " ".join(summary.split()),
        description.strip(),
        inherited | _read_arguments(sections.get("Args") or called.get("Args", "")),
        _read_examples(sections.get("Example") or sections.get("Examples", "")),
    )


def _arguments_of(kind: type) -> dict[str, str]:
    return _read_arguments(_split(kind.__doc__ or "")[1].get("Args", ""))


def _split(docstring: str) -> tuple[str, dict[str, str]]:
    """Return the text before the first section, and the sections."""
    text, sections = "", {}
    name = ""
    for line in inspect.cleandoc(docstring).splitlines():
        if found := _SECTION.fullmatch(line):
            name = found[1]
            sections[name] = ""
        elif name:
            sections[name] += f"{line}\n"
        else:
            text += f"{line}\n"
    return text.strip(), {name: inspect.cleandoc("\n" + body) for name, body in sections.items()}


def _read_arguments(section: str) -> dict[str, str]:
    """Return the text of each `name: text`. Lines that are indented belong to the argument before."""
    arguments: dict[str, str] = {}
    name = ""
    for line in section.splitlines():
        if found := re.match(r"\*{0,2}(\w+): (.*)", line):
            name = found[1]
            arguments[name] = found[2].strip()
        elif name and line.strip():
            arguments[name] += f" {line.strip()}"
    return arguments


def _read_examples(section: str) -> list[str]:
    """Return the statements after `>>>`, without what they print."""
    examples: list[str] = []
    for line in section.splitlines():
        if line.startswith(">>> "):
            examples.append(line[4:])
        elif line.startswith("...") and examples:
            examples[-1] += f"\n{line[4:]}"
    return examples
