"""Make small changes to the code and see whether the tests notice them: `make test-mutants`.

A mutant is a copy of the code with one change, such as `<` instead of `<=`. It survives if the tests of the changed
file still pass. Then a test is missing, or the change makes no difference. mutants.toml lists the files to change, the
tests of each, and the known changes that make no difference.
"""

import argparse
import compileall
import gc
import importlib
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
import tomllib
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path
from py_compile import PycInvalidationMode
from typing import Any

from mutations import Mutant, find_mutants, take_sample

SURVIVED, TIMED_OUT, NOTICED = "survived", "timed out", "noticed"


def is_equivalent(mutant: Mutant, known: list[dict[str, str]]) -> bool:
    """Return whether a change is listed as one that makes no difference."""
    return any(
        all(getattr(mutant, key) == entry[key] for key in entry if key not in ("reason", "pattern"))
        and fnmatchcase(mutant.change, entry.get("pattern", "*"))
        for entry in known
    )


def tests_of(file: str, settings: dict[str, Any], root: Path) -> list[list[str]]:
    """Return the test files of a module: those of its name, and then those that the settings list."""
    package, _, name = file.removesuffix(".py").rpartition("/")
    own = sorted(path.relative_to(root).as_posix() for path in (root / "tests" / package).glob(f"test_{name}*.py"))
    return [tests for tests in (own, settings["tests"].get(file, settings["tests"].get(package))) if tests]


def copy_repository(root: Path, folder: Path, settings: dict[str, Any]) -> None:
    """Copy what the tests need. Compiled files are checked by content, as two changes may come within a second."""
    for name in settings["copy"]:
        if (root / name).is_dir():
            shutil.copytree(root / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        else:
            shutil.copy(root / name, folder / name)
    compileall.compile_dir(folder / "src", quiet=1, invalidation_mode=PycInvalidationMode.CHECKED_HASH)


def start_tests(folder: Path, tests: list[str], options: list[str], seconds: int) -> int:
    """Run tests until one fails, in a fork of this process that need not import torch. Return the fork's number."""
    if child := os.fork():
        return child
    try:
        os.setsid()
        os.chdir(folder)
        shutil.rmtree("tmp", ignore_errors=True)
        os.mkdir("tmp")
        output = os.open("output.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for stream in (1, 2):
            os.dup2(output, stream)
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, 2 * seconds))
        signal.alarm(5 * seconds)  # it may sleep, and other work may slow it down
        sys.path.insert(0, f"{folder}/src")
        os.environ |= {"PYTHONPATH": f"{folder}/src", "TMPDIR": f"{folder}/tmp"}
        tempfile.tempdir = f"{folder}/tmp"
        code = importlib.import_module("pytest").main(["-x", "-q", "-p", "no:cacheprovider", *options, *tests])
        sys.stdout.flush()
        os._exit(code)
    finally:
        os._exit(1)


def wait_for_tests() -> tuple[int, str]:
    """Wait until a fork ends. Return its number and the outcome."""
    child, status = os.wait()
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # what the tests have started
    code = os.waitstatus_to_exitcode(status)
    if code == 5:
        raise RuntimeError("mutants.toml names files or options that leave no test")
    return child, TIMED_OUT if code in (-signal.SIGXCPU, -signal.SIGALRM) else NOTICED if code else SURVIVED


def try_mutants(mutants: list[Mutant], settings: dict[str, Any], given: argparse.Namespace) -> dict[Mutant, str]:
    """Return the outcome of each mutant. Every job has a copy of the repository, and tries one after the other."""
    os.environ |= settings.get("environment", {})
    for name in settings.get("preload", []):
        importlib.import_module(name)
    gc.freeze()  # what is imported now is never garbage: the forks need not look through it
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # where syncing to the disk takes no time
    outcomes: dict[Mutant, str] = {}
    running: dict[int, tuple[Mutant, Path, bytes, list[list[str]]]] = {}
    left, options = mutants[::-1], settings.get("options", [])
    with tempfile.TemporaryDirectory(prefix="mutants", dir=memory, ignore_cleanup_errors=True) as place:
        for folder in (free := [Path(place) / f"{number}" for number in range(given.jobs)]):
            copy_repository(given.root, folder, settings)
        needed = {test for mutant in mutants for tests in tests_of(mutant.file, settings, folder) for test in tests}
        start_tests(free[0], sorted(needed), options, 1000)
        if wait_for_tests()[1] != SURVIVED:
            raise RuntimeError(f"{(free[0] / 'output.txt').read_text()[-3000:]}\nthe tests fail without any change")
        while left or running:
            if left and free:
                mutant, folder = left.pop(), free.pop()
                path = folder / settings["source"] / mutant.file
                whole = path.read_bytes()
                path.write_bytes(whole[: mutant.begin] + mutant.text + whole[mutant.end :])
                tests, *more = tests_of(mutant.file, settings, folder)
            else:
                child, outcome = wait_for_tests()
                mutant, folder, whole, more = running.pop(child)
                if outcome != SURVIVED or not more:
                    (folder / settings["source"] / mutant.file).write_bytes(whole)
                    free.append(folder)
                    outcomes[mutant] = outcome
                    print(f"{len(outcomes)}/{len(mutants)} {outcome}: {mutant}", flush=True)
                    continue
                tests, *more = more
            running[start_tests(folder, tests, options, given.timeout)] = mutant, folder, whole, more
    return outcomes


def main(arguments: list[str] | None = None) -> int:
    """Return 0 if the tests notice enough of the mutants, else 1."""
    parser = argparse.ArgumentParser(description="Make small changes to the code and see whether the tests notice.")
    parser.add_argument("--seed", type=int, default=0, help="which sample (default: 0)")
    parser.add_argument("--count", type=int, default=300, help="size of the sample; 0: all mutants (default: 300)")
    parser.add_argument("--only", metavar="FILES", help="files below src/fadas, such as 'core/ledger.py,runs/*.py'")
    parser.add_argument("--jobs", "-n", type=int, default=2, help="mutants at a time (default: 2)")
    parser.add_argument("--threshold", type=float, default=97.0, help="per cent to be noticed (default: 97)")
    parser.add_argument("--timeout", type=int, default=60, help="processor seconds per mutant (default: 60)")
    parser.add_argument("--list", action="store_true", help="list the mutants of the sample, and run nothing")
    parser.add_argument("--root", type=Path, default=Path(__file__).parents[1], help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    settings = tomllib.loads((options.root / "tests" / "mutants.toml").read_text())
    patterns = options.only.split(",") if options.only else settings["files"]
    mutants = find_mutants(options.root / settings["source"], patterns)
    possible = [mutant for mutant in mutants if not is_equivalent(mutant, settings.get("equivalent", []))]
    chosen = take_sample(possible, options.count, options.seed)
    if options.list or not chosen:
        print(*chosen, f"{len(chosen)} of {len(mutants)} mutants", sep="\n")
        return int(not chosen)
    begin = time.monotonic()
    outcomes = try_mutants(chosen, settings, options)
    survivors = [mutant for mutant in chosen if outcomes[mutant] == SURVIVED]
    score, minutes = 100 * (1 - len(survivors) / len(chosen)), (time.monotonic() - begin) / 60
    print("", "Survivors:" if survivors else "No mutant survived.", *survivors, sep="\n")
    slow = list(outcomes.values()).count(TIMED_OUT)
    print(f"\nNoticed {score:.1f} % of {len(chosen)} mutants ({slow} by the timeout) in {minutes:.0f} minutes.")
    return int(score < options.threshold)


if __name__ == "__main__":
    sys.exit(main())
