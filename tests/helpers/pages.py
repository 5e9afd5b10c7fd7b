"""The examples of a Markdown page: find them, run them, compare what they print. Links of a page, and of the site.

A comment before a block says how it is run:

| comment                     | the block                                                                   |
|-----------------------------|-----------------------------------------------------------------------------|
| `<!-- not run: REASON -->`  | is not run. Of `fadas` commands, the options are checked all the same       |
| `<!-- run with: OPTIONS -->`| is run with these options added to each of its `fadas` commands             |
| `<!-- file: NAME -->`       | is written to this file of the current folder, for the blocks that follow   |
| `<!-- output -->`           | (text) is what the block before printed; `...` stands for anything          |
| `<!-- output: numbers vary -->` | (text) the same, but numbers may differ                                 |
| `<!-- setup: CODE -->`      | no block: Python that runs here and is not shown                            |
| `<!-- setup sh: COMMANDS -->` | no block: commands that run here and are not shown                        |
"""

import contextlib
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from fadas.errors import ConfigError
from fadas.experiments.experiment_file import read_experiment, select_algorithms
from fadas.experiments.resolve import experiment_seeds, resolve
from fadas.experiments.sweeps.points import read_grid, with_point
from fadas.runs.serialization import to_toml
from helpers.cli import ROOT
from helpers.forks import Fork, write_command

# Runs blocks of Python in one namespace. A request is a line of JSON: code and the name of its place.
PYTHON = """
import json, os, sys, traceback
requests, answers = sys.stdin, os.fdopen(3, "w")
sys.stdin = open(os.devnull)
names = {"__name__": "__main__"}
for line in requests:
    request, error = json.loads(line), None
    try:
        exec(compile(request["code"], request["place"], "exec"), names)
    except BaseException:
        error = traceback.format_exc()
    sys.stdout.flush()
    answers.write(json.dumps(error) + "\\n"); answers.flush()
"""
# What a TOML block that is only a part of an experiment is put into.
BASE = """
[task]
name = "digits"
clients = 30
[schedule]
concurrency = 10
buffer = 5
[run]
steps = 10
"""


# The functions of the task `names` are read once for all pages.
DATA = ROOT / "build" / "data"


class Block(NamedTuple):
    """A block of a page, or a hidden setup."""

    language: str
    code: str
    place: str
    marks: dict[str, str]


class ExampleError(AssertionError):
    """An example does not do what the page says."""


_MARK = re.compile(r"<!-- (not run|run with|file|output|setup|setup sh)(?::\s*(.*?))?\s*-->", re.S)


def read_blocks(path: Path) -> list[Block]:
    """Return the blocks and hidden setups of a page, in order."""
    text = path.read_text(encoding="utf-8")
    name = path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else path.name
    blocks: list[Block] = []
    marks: dict[str, str] = {}
    at = 0
    pattern = re.compile(rf"^(?:{_MARK.pattern}|```(\w*)[^\n]*\n(.*?)^```$|(\S[^\n]*))", re.S | re.M)
    while found := pattern.search(text, at):
        at = found.end()
        place = f"{name}:{text.count(chr(10), 0, found.start()) + 1}"
        mark, value, language, code, _ = found.groups()
        if mark in ("setup", "setup sh"):
            blocks.append(Block("python" if mark == "setup" else "sh", value, place, {}))
        elif mark:
            marks[mark] = value or ""
        elif code is not None:
            blocks.append(Block(language, code, place, marks))
            marks = {}
        elif marks:
            raise ExampleError(f"{place}: {', '.join(marks)} must stand before a block")
    return blocks


def run_page(path: Path, folder: Path) -> None:
    """Run the examples of a page in a folder.

    Raises:
        ExampleError: One fails, or prints something else than the page shows.
    """
    for name in ("experiments", "examples"):
        (folder / name).symlink_to(ROOT / name)
    with _Runner(folder) as runner:
        for block in read_blocks(path):
            runner.run(block)


class _Runner:
    """Runs blocks as if they were typed into one terminal: `cd` counts for the blocks that follow.

    Python runs in one process, which stays in the page's folder.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.printed, self.python = folder, "", None
        self.place = folder  # where the shell is
        commands = folder.parent / f"{folder.name}-bin"
        commands.mkdir()
        write_command(commands)
        self.environment = {
            **os.environ,
            "COLUMNS": "100",
            "CUDA_VISIBLE_DEVICES": "",  # the pages show a machine without a GPU
            "FADAS_ALLOW_CODE": "1",
            "FADAS_DATA": str(DATA),
            "NO_COLOR": "1",
            "OMP_NUM_THREADS": "1",
            "PATH": os.pathsep.join([str(commands), str(Path(sys.executable).parent), os.environ["PATH"]]),
            "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]),
            "TERM": "dumb",
        }

    def __enter__(self) -> "_Runner":
        return self

    def __exit__(self, *error: object) -> None:
        if self.python:
            self.requests.close()
            self.python.wait(30)

    def run(self, block: Block) -> None:
        if "file" in block.marks:
            path = self.place / block.marks["file"]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.code, encoding="utf-8")
        if "output" in block.marks:
            compare_output(block.code, self.printed, block.marks["output"] == "numbers vary", block.place)
        elif "not run" in block.marks:
            if not block.marks["not run"]:
                raise ExampleError(f"{block.place}: say why it is not run")
            if block.language == "sh":
                check_options(block)
        elif block.language == "python" and "file" not in block.marks:
            self.run_python(block.code, block.place)
        elif block.language in ("sh", "bash", "console"):
            self.run_shell(block)
        elif block.language == "toml":
            self.resolve(block)

    def run_python(self, code: str, place: str) -> None:
        """Run Python in the page's process, as if all blocks were one script."""
        if not self.python:
            self.output = (self.folder / ".printed").open("w+", encoding="utf-8")
            (takes, asks), (hears, tells) = os.pipe(), os.pipe()
            files = (takes, self.output, self.output, tells)
            self.python = Fork(code=PYTHON, cwd=self.folder, environment=self.environment, files=files)
            os.close(takes)
            os.close(tells)
            self.requests, self.answers = os.fdopen(asks, "w"), os.fdopen(hears)
        begin = self.output.seek(0, os.SEEK_END)
        self.requests.write(json.dumps({"code": code, "place": place}) + "\n")
        self.requests.flush()
        answer = self.answers.readline()
        self.output.seek(begin)
        self.printed = self.output.read()
        if error := json.loads(answer or '"the process ended"'):
            raise ExampleError(f"{place}: the Python block fails\n{self.printed}\n{error}")

    def run_shell(self, block: Block) -> None:
        code = block.code
        if options := block.marks.get("run with"):
            code = "\n".join(_with_options(line, options) for line in join_lines(code))
        left = self.folder / ".place"
        code = f"trap 'pwd > {shlex.quote(str(left))}' EXIT\n{code}"
        done = subprocess.run(
            ["bash", "-e", "-c", code], cwd=self.place, env=self.environment, capture_output=True, text=True
        )
        self.place = Path(left.read_text().removesuffix("\n"))
        self.printed = done.stdout + done.stderr
        if done.returncode:
            raise ExampleError(f"{block.place}: the commands end with {done.returncode}\n{self.printed}")

    def resolve(self, block: Block) -> None:
        """Resolve an experiment; what is only a part of one is put into a small one first."""
        path = self.place / block.marks.get("file", "shown.toml")
        whole = path.with_name(f".{path.name}")
        try:
            tables = {"name": "shown", **complete_experiment(tomllib.loads(block.code))}
            whole.write_text(to_toml(tables), encoding="utf-8")
            for own in self.place.glob("*.py"):
                sys.modules.pop(own.stem, None)  # of another test
            with contextlib.chdir(self.place):
                resolve_all(whole)
        except (ValueError, ConfigError) as error:
            raise ExampleError(f"{block.place}: {error}") from None
        finally:
            self._forget_modules()

    def _forget_modules(self) -> None:
        """Modules of the page's folder are not those of the next page with these names."""
        for name, module in list(sys.modules.items()):
            file = getattr(module, "__file__", None)
            if file and Path(file).resolve().is_relative_to(self.folder.resolve()):
                del sys.modules[name]


def complete_experiment(tables: dict[str, Any]) -> dict[str, Any]:
    """Return a part of an experiment with what it lacks."""
    base = tomllib.loads(BASE)
    limited = {"steps", "updates", "time"} & tables.get("run", {}).keys()
    for section, table in base.items():
        given = tables.setdefault(section, {})
        for key, value in table.items():
            if not (section == "run" and limited):
                given.setdefault(key, value)
    tables.setdefault("algorithms", {label: {} for label in tables.get("sweep", {"fadas": {}})})
    return tables


def resolve_all(path: Path) -> None:
    """Resolve an experiment for each of its algorithms and seeds, with each of its profiles, at each point to sweep."""
    profiles = tomllib.loads(path.read_text(encoding="utf-8")).get("profiles", {})
    for profile in [None, *profiles]:
        tables = read_experiment(path, profile=profile)
        for label in select_algorithms(tables):
            for seed in experiment_seeds(tables):
                resolve(tables, label, seed)
            for point in read_grid(tables, label, samples=200).points:  # all of a grid, some of a range
                resolve(with_point(tables, label, point), label, 0)


def join_lines(code: str) -> list[str]:
    """Return the commands of a block, each on one line, without comments."""
    lines = code.replace("\\\n", " ").splitlines()
    return [re.sub(r"(^|\s)#\s.*", "", line).strip() for line in lines]


def _with_options(line: str, options: str) -> str:
    return f"{line} {options}" if line.startswith("fadas ") else line


def check_options(block: Block) -> None:
    """Check that the commands and options of fadas exist, without running anything."""
    import typer

    from fadas.cli.app import app

    for line in join_lines(block.code):
        if not line.startswith("fadas "):
            continue
        command, arguments = typer.main.get_command(app), shlex.split(line)[1:]
        try:
            while hasattr(command, "commands"):
                context = command.make_context("fadas", list(arguments))
                name, command, arguments = command.resolve_command(context, context._protected_args + context.args)
            command.make_context(name, list(arguments))
        except typer.Exit:
            pass  # of --help and --version
        except Exception as error:
            if not hasattr(error, "format_message"):  # typer's errors, which have no public base class
                raise
            raise ExampleError(f"{block.place}: {line}: {error.format_message()}") from None


def compare_output(shown: str, printed: str, numbers_vary: bool, place: str) -> None:
    """Compare what a page shows with what was printed. Trailing blanks and blank lines do not count."""

    def lines_of(text: str) -> list[str]:
        lines = (" ".join(line.split()) for line in text.splitlines())
        return [line for line in lines if line]

    pattern = []
    for line in lines_of(shown):
        if line == "...":
            pattern.append(r"(?:[^\n]*\n)*?")
            continue
        text = re.escape(line).replace(re.escape("..."), r"[^\n]*?")
        if numbers_vary:
            text = re.sub(r"\d+((\\\.|,)\d+)*", lambda m: r"\d[\d.,]*", text)
        pattern.append(f"{text}\n")
    if not re.fullmatch("".join(pattern), "".join(f"{line}\n" for line in lines_of(printed))):
        raise ExampleError(f"{place}: the output differs. Shown:\n{shown}\nPrinted:\n{printed}")


def slug(heading: str) -> str:
    """Return the anchor that GitHub makes of a heading."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


def find_dead_links(page: Path) -> list[str]:
    """Return the links of a Markdown file that lead to no file or to no heading."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.S | re.M)
    dead = []
    for link in re.findall(r"\]\(<?([^)>\s]+)>?[^)]*\)", text) + re.findall(r'(?:href|src)="([^"]+)"', text):
        target = urlsplit(link)
        if target.scheme or target.netloc:
            continue
        path = page if not target.path else page.parent / unquote(target.path)
        if not path.exists():
            dead.append(f"{page.name}: {link}: no such file")
        elif target.fragment and path.suffix == ".md" and target.fragment not in _anchors(path):
            dead.append(f"{page.name}: {link}: no such heading")
    return dead


def _anchors(page: Path) -> set[str]:
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.S | re.M)
    return {slug(heading) for heading in re.findall(r"^#+ (.+)$", text, re.M)} | set(re.findall(r'id="([^"]+)"', text))


class _Links(HTMLParser):
    """Collects the links and the identifiers of an HTML page."""

    def __init__(self) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.ids: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("href", "src") and value:
                self.links.add(value)
            elif name in ("id", "name") and value:
                self.ids.add(value)


def find_dead_html_links(site: Path) -> list[str]:
    """Return the links of a built site that lead to no file or to no place in it. Other sites are not asked."""
    pages: dict[Path, _Links] = {}
    for path in sorted(site.rglob("*.html")):
        pages[path] = _Links()
        pages[path].feed(path.read_text(encoding="utf-8"))
    return [dead for path, page in pages.items() for dead in _dead_links_of(path, page, pages, site)]


def _dead_links_of(path: Path, page: _Links, pages: dict[Path, _Links], site: Path) -> Iterator[str]:
    for link in sorted(page.links):
        target = urlsplit(link)
        if target.scheme or target.netloc:
            continue
        place = path if not target.path else Path(os.path.normpath(path.parent / unquote(target.path)))
        if not place.exists() or not place.is_relative_to(site):
            yield f"{path.relative_to(site)}: {link}: no such file"
        elif target.fragment and place in pages and unquote(target.fragment) not in pages[place].ids:
            yield f"{path.relative_to(site)}: {link}: no such place"
