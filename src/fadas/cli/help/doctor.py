"""fadas doctor: what works on this machine, for bug reports."""

import os
import platform
import re
import shutil
import tempfile
from collections.abc import Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, requires, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import typer

from fadas.cli.options import DataDir, Json, set_environment, with_examples

_WORKS = "works"
_REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+)(?:\[([^]]*)\])?\s*([^;]*)(?:;\s*extra\s*==\s*['\"]([^'\"]+)['\"])?\s*")
_LIMIT = re.compile(r"(>=|<=|==|!=|~=|<|>)\s*([0-9.]+)")


def doctor(data_dir: DataDir = None, json_: Json = False) -> None:
    """Show what works on this machine: versions, devices, executors, extras, data and write access.

    Paste the output into a bug report. It has no names of users and no settings of experiments.
    """
    from fadas.cli.terminal import print_json, print_table

    set_environment(data_dir)
    facts = {
        "versions": _find_versions(),
        "machine": _describe_machine(),
        "executors": _check_executors(),
        "extras": _check_extras(),
        "data": _find_data(),
        "writing": {name: _check_writing(path) for name, path in _folders().items()},
    }
    if json_:
        print_json(facts)
        return
    for title, rows in facts.items():
        print_table([title, ""], [[name, str(text)] for name, text in rows.items()])


def _find_versions() -> dict[str, str]:
    import fadas
    from fadas.experiments.provenance import commit

    found = {"fadas": fadas.__version__, "commit": commit(), "python": platform.python_version()}
    return found | {name: state for name, (_, state) in _requirements().get("", {}).items()}


def _describe_machine() -> dict[str, Any]:
    import torch

    gpus = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    no_gpu = "none: torch sees no GPU" if torch.version.cuda else "none: torch was built without CUDA"
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cores": os.cpu_count(),
        "cores of this process": usable,
        "torch threads": torch.get_num_threads(),
        "devices": ", ".join(["cpu", *(f"cuda:{index} ({name})" for index, name in enumerate(gpus))]),
        "cuda": torch.version.cuda if gpus else no_gpu,
    }


def _check_executors() -> dict[str, str]:
    from fadas.executors import EXECUTORS

    found: dict[str, str] = {}
    for name, make in EXECUTORS.items():
        extra = _check_extra(getattr(make, "extra", ""))
        obstacle = getattr(make, "find_obstacle", lambda: "")()
        found[name] = obstacle or (_WORKS if extra.startswith(_WORKS) else extra)
    return found


@cache
def _requirements() -> dict[str, dict[str, tuple[bool, str]]]:
    """Return for each extra ("": fadas itself) which packages it needs: whether they fit, and their state."""
    try:
        lines = requires("fadas") or []
    except PackageNotFoundError:  # a copy of the source that was never installed
        lines = []
    found: dict[str, dict[str, tuple[bool, str]]] = {}
    for line in lines:
        if (match := _REQUIREMENT.fullmatch(line)) and match[1] != "fadas":
            name, extra, limits = match[1], match[2], match[3].strip()
            shown = f"{name}[{extra}]" if extra else name
            found.setdefault(match[4] or "", {})[shown] = _check_package(name, limits, extra)
    return found


def _check_package(name: str, limits: str, extra: str | None = None) -> tuple[bool, str]:
    try:
        installed = version(name)
        needed = [line for line in requires(name) or [] if extra and f"extra == '{extra}'" in line.replace('"', "'")]
        for line in needed:
            version(re.split(r"[^\w.-]", line)[0])
    except PackageNotFoundError:
        return False, "not installed"
    fits = all(_fits(installed, sign, limit) for sign, limit in _LIMIT.findall(limits))
    return fits, installed if fits else f"{installed}, needs {limits}"


def _fits(installed: str, sign: str, limit: str) -> bool:
    """Compare the leading numbers of two versions: enough for the ranges that fadas declares."""
    one, two = ([int(part) for part in re.findall(r"\d+", re.split(r"[^\d.]", text)[0])] for text in (installed, limit))
    length = max(len(one), len(two))
    one, two = (numbers + [0] * (length - len(numbers)) for numbers in (one, two))
    return {">=": one >= two, "<=": one <= two, "<": one < two, ">": one > two, "!=": one != two}.get(sign, one == two)


def _check_extras() -> dict[str, str]:
    """Return for each extra whether it works, or what is missing."""
    found: dict[str, str] = {}
    for extra, packages in _requirements().items():
        if extra:
            works = all(fits for fits, _ in packages.values())
            shown = {name: state for name, (fits, state) in packages.items() if works or not fits}
            states = ", ".join(f"{name} {state}" for name, state in shown.items())
            advice = f"incomplete ({states}): run pip install '.[{extra}]' in a checkout"
            found[extra] = f"{_WORKS} ({states})" if works else advice
    return found or {"unknown": "fadas is not installed as a package, so its extras are not known"}


def _check_extra(name: str) -> str:
    """Return whether the extra of an executor works. It is named like the package that it brings."""
    if not name or (name not in _check_extras() and find_spec(name)):
        return _WORKS
    return _check_extras().get(name, f"needs {name}, which is not installed: run pip install {name}")


def _find_data() -> dict[str, str]:
    from fadas.tasks.cifar import ARCHIVES
    from fadas.tasks.downloads import data_folder
    from fadas.tasks.glue import LAYOUTS

    expected = {name: (archive.path, list(archive.files)) for name, archive in ARCHIVES.items()}
    for name, layout in LAYOUTS.items():
        expected[name] = data_folder() / layout.folder, ["train.tsv", "dev.tsv"]
    found: dict[str, str] = {}
    for name, (folder, files) in expected.items():
        there = [file for file in files if (folder / file).is_file()]
        place = f"put {' and '.join(files)} into {_without_home(folder)}"
        advice = f"run fadas data get {name}" if name in ARCHIVES else place
        state = "incomplete" if there else "not found"
        found[name] = "found" if len(there) == len(files) else f"{state}: {advice}"
    return found


def _folders() -> Mapping[str, Path]:
    from fadas.tasks.downloads import data_folder

    return {"current folder": Path(), f"data folder ({_without_home(data_folder())})": data_folder()}


def _without_home(path: Path) -> str:
    """Return a path without the name of the user."""
    home = Path.home()
    return str(Path("~") / path.relative_to(home)) if path.is_relative_to(home) else str(path)


def _check_writing(folder: Path) -> str:
    if not folder.is_dir():
        return "does not exist"
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        return f"cannot be written: {error.strerror}"
    return f"{_WORKS}, {shutil.disk_usage(folder).free / 2**30:,.1f} GiB free"


def add_to(app: typer.Typer) -> None:
    """Add this command to the app."""
    app.command(epilog=with_examples("fadas doctor", "fadas doctor --json"))(doctor)
