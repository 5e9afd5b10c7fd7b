"""What `fadas init` and `fadas deploy init` share: which folder they take, and what they say at the end."""

import re
from collections.abc import Mapping
from pathlib import Path
from shutil import rmtree

from fadas.cli import signals
from fadas.errors import ConfigError

_COMMANDS = re.compile(r"^```sh\n(.*?)^```$", re.M | re.S)


def project_name(folder: Path, default: str) -> str:
    """Return a name for what is in a folder: the folder's name in lower-case letters, digits and hyphens."""
    return re.sub(r"[^a-z0-9]+", "-", folder.resolve().name.lower()).strip("-")[:60] or default


def fill_in(text: str, **values: str) -> str:
    """Return a template's text with values in place of marks such as {{name}}."""
    for key, value in values.items():
        text = text.replace("{{" + key + "}}", value)
    return text


def write_project(folder: Path, texts: Mapping[str, str]) -> None:
    """Write a project's files. Say which, and which commands of its README.md come next.

    Args:
        folder: Where to write. It is created.
        texts: The files' texts, by path relative to the folder.

    Raises:
        ConfigError: The folder is not empty, or the path is a file.
    """
    from fadas.cli.terminal import print_line

    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{folder} exists and is not a folder; choose another folder")
    if folder.is_dir() and any(folder.iterdir()):
        raise ConfigError(f"{folder} is not empty; choose another folder")
    signals.require_cleanup()
    is_new = not folder.exists()
    try:
        for name, text in texts.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    except BaseException:  # no half of a project is left behind
        for path in [folder] if is_new else [folder / name.partition("/")[0] for name in texts]:
            rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        raise
    print_line(f"{folder}: {', '.join(texts)}")
    print_line("next, as README.md explains:")
    enter = [] if folder.resolve() == Path.cwd() else [f'cd "{folder}"' if " " in str(folder) else f"cd {folder}"]
    for command in [*enter, *"".join(_COMMANDS.findall(texts["README.md"])).splitlines()]:
        print_line(f"  {command}")
