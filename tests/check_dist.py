"""Check the wheel and the source distribution in dist/ as a user gets them: `make dist`.

The wheel is installed without extras into an empty environment, outside the checkout. There the commands run, and a
type checker looks at the package. At the end the script prints what the installation brought, with sizes.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from contextlib import contextmanager
from email.message import Message
from email.parser import BytesParser
from pathlib import Path

ROOT = Path(__file__).parents[1]
BIN = "Scripts" if os.name == "nt" else "bin"
GENERATED = {"PKG-INFO", "setup.cfg"}  # by setuptools, in every source distribution
INDIRECT = {"pyarrow", "ray", "flwr", "transformers", "peft"}  # large, and never needed without an extra
SMALL = 2e6  # bytes: smaller distributions share a row of the table
TEMPLATES = ("classification", "regression", "language", "method")

# Runs in the new environment.
LIST_DISTRIBUTIONS = """
import json
from importlib.metadata import distributions
print(json.dumps([
    [d.metadata["Name"], d.version, d.requires or [],
     sum(p.stat().st_size for f in d.files or [] if (p := f.locate()).is_file())]
    for d in distributions()
]))
"""
TYPED = """import fadas
schedule: fadas.Schedule = fadas.Schedule(8, 4)
wrong: str = fadas.plan(schedule, 30, steps=20)
"""


class Failed(Exception):
    """A check failed."""


def require(condition: object, message: str) -> None:
    """Raise `Failed` with this message unless the condition holds."""
    if not condition:
        raise Failed(message)


@contextmanager
def step(title: str):
    """Print a line for a check, with its seconds when it is done."""
    print(f"{title} ... ", end="", flush=True)
    begin = time.monotonic()
    yield
    print(f"ok ({time.monotonic() - begin:.0f} s)", flush=True)


def run(*command, cwd: Path, **environment: str) -> str:
    """Run a command without this project's own variables. Return its output, or fail with what it printed."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("FADAS_", "PYTHON")) and k != "VIRTUAL_ENV"}
    done = subprocess.run(list(map(str, command)), cwd=cwd, capture_output=True, text=True, env=kept | environment)
    shown = " ".join(map(str, command))
    require(done.returncode == 0, f"{shown}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def compare_names(what: str, found: set[str], expected: set[str]) -> None:
    """Fail if a distribution lacks a file, or holds one that git does not track."""
    missing, stray = sorted(expected - found), sorted(found - expected)
    require(not missing, f"{what} lacks {', '.join(missing[:10])}; see MANIFEST.in and package-data in pyproject.toml")
    require(not stray, f"{what} holds files that git does not track: {', '.join(stray[:10])}")


def check_wheel(wheel: Path, tracked: set[str]) -> Message:
    """Check that the wheel holds the files of src/ and nothing else. Return its metadata."""
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if not name.endswith("/")}
        (path,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        metadata = BytesParser().parsebytes(archive.read(path))
    info = path.removesuffix("METADATA")
    package = {name for name in names if not name.startswith(info)}
    compare_names(wheel.name, package, {name.removeprefix("src/") for name in tracked if name.startswith("src/")})
    require({"fadas/py.typed", "fadas/__init__.pyi"} <= package, f"{wheel.name} has no types")
    require({f"{info}licenses/LICENSE", f"{info}entry_points.txt"} <= names, f"{wheel.name}: no licence or command")
    return metadata


def check_sdist(sdist: Path, tracked: set[str]) -> None:
    """Check that the source distribution is the checkout without the files that start with a dot."""
    with tarfile.open(sdist) as archive:
        names = {member.name.partition("/")[2] for member in archive if member.isfile()}
    own = {name for name in names if name not in GENERATED and not name.startswith("src/fadas.egg-info/")}
    compare_names(sdist.name, own, {name for name in tracked if not name.startswith(".")})


def normal(name: str) -> str:
    """Return the normal form of a distribution's name."""
    return re.sub(r"[-_.]+", "-", name).lower()


def required_names(requirements: list[str], extra: bool = False) -> set[str]:
    """Return the names in requirements: those without an extra, or those with one."""
    return {
        normal(re.split(r"[^\w.-]", one)[0])
        for one in requirements
        if bool(re.search(r";.*\bextra\s*==", one)) == extra
    }


def check_installed(found: list, metadata: Message, version: str) -> None:
    """Check that the environment has what the metadata requires, and nothing that only an extra needs."""
    names = {normal(name): number for name, number, _, _ in found}
    require(names.get("fadas") == version, f"fadas {names.get('fadas')} is installed instead of {version}")
    requirements = metadata.get_all("Requires-Dist", [])
    base = required_names(requirements)
    require(base <= names.keys(), f"not installed: {', '.join(sorted(base - names.keys()))}")
    unwanted = (required_names(requirements, extra=True) | INDIRECT) - base - {"fadas"}
    extras = sorted(unwanted & names.keys())
    require(not extras, f"the base installation brought {', '.join(extras)}")


def check_commands(binaries: Path, work: Path, version: str) -> None:
    """Run what a new user runs, with an empty home folder."""
    (work / "home").mkdir()
    path = os.pathsep.join([str(binaries), os.environ.get("PATH", "")])
    home = {"HOME": str(work / "home"), "USERPROFILE": str(work / "home"), "PATH": path, "PYTHONUTF8": "1"}

    def fadas(*arguments, cwd: Path = work) -> str:
        with step(" ".join(["fadas", *map(str, arguments)])):
            return run(binaries / "fadas", *arguments, cwd=cwd, **home)

    require(fadas("--version").strip() == f"fadas {version}", "the command has another version than the wheel")
    place = run(binaries / "python", "-c", "import fadas; print(fadas.__file__)", cwd=work, **home).strip()
    require(Path(place).is_relative_to(binaries.parent), f"fadas is imported from {place}, not from the wheel")
    fadas("doctor")
    json.loads(fadas("doctor", "--json"))
    for template in TEMPLATES:
        fadas("init", template, "--template", template)
        text = (work / template / "README.md").read_text(encoding="utf-8")
        commands = re.findall(r"^fadas (.+)$", text, re.M)
        require(len(commands) >= 3, f"the README of the template {template} shows no three commands")
        for command in commands:
            fadas(*command.split(), cwd=work / template)
        require(list((work / template).glob("runs/*/report.html")), f"the template {template} made no report")
    fadas("demo")


def check_types(python: Path, work: Path) -> None:
    """Check that a type checker sees the installed package's types."""
    folder = work / "typed"
    folder.mkdir()
    (folder / "own_code.py").write_text(TYPED, encoding="utf-8")
    (folder / "pyproject.toml").write_text('[tool.basedpyright]\ntypeCheckingMode = "standard"\n', encoding="utf-8")
    checker = Path(sys.executable).parent / "basedpyright"
    command = [checker, "--outputjson", "--project", folder, "--pythonpath", python, folder / "own_code.py"]
    done = subprocess.run(list(map(str, command)), cwd=folder, capture_output=True, text=True)
    problems = [
        (one["range"]["start"]["line"] + 1, one.get("rule")) for one in json.loads(done.stdout)["generalDiagnostics"]
    ]
    require(problems == [(3, "reportAssignmentType")], f"the types are not seen: {done.stdout}")


def print_table(found: list) -> None:
    """Print what is installed, the largest first, as the table of docs/contributing.md."""
    rows = sorted((row for row in found if normal(row[0]) not in ("pip", "setuptools")), key=lambda row: -row[3])
    print("\n| distribution | MB | required by |\n|---|---:|---|")
    for name, _, _, size in rows:
        if size >= SMALL:
            users = sorted(row[0] for row in rows if normal(name) in required_names(row[2]))
            print(f"| {name} | {size / 1e6:.1f} | {', '.join(users)} |")
    small = [row for row in rows if row[3] < SMALL]
    names = ", ".join(f"{name} {size / 1e6:.2f}" for name, _, _, size in small)
    print(f"| {names} | {sum(row[3] for row in small) / 1e6:.1f} | |")
    print(f"\n{len(rows)} distributions, {sum(row[3] for row in rows) / 1e6:,.0f} MB")


def main() -> int:
    """Run all checks. Return 1 if one fails."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT / "dist", help="where the distributions are")
    folder = parser.parse_args().folder.resolve()
    constraints = ["-c", ROOT / "constraints.txt"]
    try:
        (wheel,), (sdist,) = folder.glob("fadas-*.whl"), folder.glob("fadas-*.tar.gz")
        tracked = set(run("git", "ls-files", "-z", cwd=ROOT).split("\0")) - {""}
        with step(f"files of {wheel.name}"):
            metadata = check_wheel(wheel, tracked)
            version = metadata["Version"]
        with step(f"files of {sdist.name}"):
            check_sdist(sdist, tracked)
        with tempfile.TemporaryDirectory(prefix="fadas-dist-") as made:
            work = Path(made).resolve()
            binaries = work / "environment" / BIN
            with step("install the wheel into an empty environment"):
                run(sys.executable, "-m", "venv", binaries.parent, cwd=work)
                run(binaries / "python", "-m", "pip", "install", "-q", *constraints, wheel, cwd=work)
                run(binaries / "python", "-m", "pip", "check", cwd=work)
            with step("only what the base installation needs"):
                found = json.loads(run(binaries / "python", "-c", LIST_DISTRIBUTIONS, cwd=work))
                check_installed(found, metadata, version)
            with step("types"):
                check_types(binaries / "python", work)
            check_commands(binaries, work, version)
            with step("all extras together"):
                every = f"{wheel}[{','.join(metadata.get_all('Provides-Extra', []))}]"
                run(binaries / "python", "-m", "pip", "install", "-q", "--dry-run", *constraints, every, cwd=work)
        print_table(found)
    except Failed as error:
        print(f"failed\n{error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
