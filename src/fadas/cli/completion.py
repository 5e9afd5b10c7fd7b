"""What the shell proposes when the user presses the tab key.

This must be fast, so nothing of fadas is imported that needs torch. Names are read from the source files that register
them.
"""

import ast
import tomllib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import typer

_SOURCE = Path(__file__).parents[1]
REGISTRIES = {
    "algorithms": ("algorithms/presets.py", "ALGORITHMS"),
    "combine": ("algorithms/combine.py", "COMBINES"),
    "optimizer": ("algorithms/optimizers.py", "OPTIMIZERS"),
    "step_size": ("algorithms/step_sizes.py", "STEP_SIZES"),
    "companion": ("algorithms/companions.py", "COMPANIONS"),
    "delays": ("simulation/delays.py", "DELAYS"),
    "task": ("tasks/__init__.py", "TASKS"),
    "local": ("training/optimizers.py", "LOCAL_TRAINERS"),
    "executor": ("executors/__init__.py", "EXECUTORS"),
    "data": ("tasks/cifar.py", "ARCHIVES"),
    "benchmarks": ("cli/bench/__init__.py", "BENCHES"),
}
SECTIONS = {
    "schedule": ("experiments/settings.py", "ScheduleSettings"),
    "run": ("experiments/settings.py", "RunSettings"),
    "local": ("training/sgd.py", "LocalSGD"),
    "checks": ("core/update_checks.py", "Checks"),
}


def registered_names(kind: str) -> list[str]:
    """Return the names of a registry, from its source file."""
    path, name = REGISTRIES[kind]
    for node in _statements(path):
        if isinstance(node, ast.AnnAssign | ast.Assign) and isinstance(node.value, ast.Dict):
            target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
            if isinstance(target, ast.Name) and target.id == name:
                return [str(key.value) for key in node.value.keys if isinstance(key, ast.Constant)]
    return []


def section_keys() -> list[str]:
    """Return the settings of the sections that are data classes, from their source files."""
    found: list[str] = []
    for section, (path, name) in SECTIONS.items():
        found += [f"{section}.name"] if section in REGISTRIES else []
        for node in _statements(path):
            if isinstance(node, ast.ClassDef) and node.name == name:
                fields = [
                    one.target
                    for one in node.body
                    if isinstance(one, ast.AnnAssign) and one.simple and not _is_class_variable(one)
                ]
                found += [f"{section}.{field.id}" for field in fields if isinstance(field, ast.Name)]
    return [key for key in found if key != "local.companion"]  # the algorithm sets it


def _is_class_variable(statement: ast.AnnAssign) -> bool:
    return "ClassVar" in ast.unparse(statement.annotation)


def _statements(path: str) -> list[ast.stmt]:
    with suppress(OSError, SyntaxError):
        return ast.parse((_SOURCE / path).read_text(encoding="utf-8")).body
    return []


def complete_explain(incomplete: str) -> list[str]:
    """Propose settings, sections and names for `fadas explain`."""
    named = [name for kind in REGISTRIES if kind not in ("data", "benchmarks") for name in registered_names(kind)]
    return _starting([*section_keys(), *SECTIONS, "task", "delays", "executor", "faults", *named], incomplete)


def complete_setting(incomplete: str) -> list[str]:
    """Propose keys for --set."""
    return _starting([f"{key}=" for key in section_keys()], incomplete)


def complete_executor(incomplete: str) -> list[str]:
    """Propose executors."""
    return _starting(registered_names("executor"), incomplete)


def complete_task(incomplete: str) -> list[str]:
    """Propose tasks."""
    return _starting(registered_names("task"), incomplete)


def complete_data_set(incomplete: str) -> list[str]:
    """Propose data sets that can be downloaded."""
    return _starting(registered_names("data"), incomplete)


def complete_benchmark(incomplete: str) -> list[str]:
    """Propose benchmarks."""
    return _starting(registered_names("benchmarks"), incomplete)


def complete_label(ctx: typer.Context, incomplete: str) -> list[str]:
    """Propose labels of the experiment's algorithms, after those that are chosen already."""
    before, comma, last = incomplete.rpartition(",")
    chosen = before.split(",")
    labels = [name for name in _table_of(ctx, "algorithms") if name not in chosen]
    return [f"{before}{comma}{name}" for name in _starting(labels or registered_names("algorithms"), last)]


def complete_profile(ctx: typer.Context, incomplete: str) -> list[str]:
    """Propose the experiment's profiles."""
    return _starting(list(_table_of(ctx, "profiles")), incomplete)


def complete_experiment(incomplete: str) -> list[str]:
    """Propose experiment files, and folders that may hold some."""
    return sorted(_files(incomplete))


def _files(incomplete: str) -> Iterator[str]:
    folder, slash, name = incomplete.rpartition("/")
    with suppress(OSError):
        for path in Path(f"{folder}{slash}" or ".").iterdir():
            if path.name.startswith(name) and (name or not path.name.startswith(".")):
                if path.is_dir():
                    yield f"{folder}{slash}{path.name}/"
                elif path.suffix == ".toml":
                    yield f"{folder}{slash}{path.name}"


def _table_of(ctx: typer.Context, section: str) -> dict[str, object]:
    """Return a section of the experiment file on the command line, if it can be read."""
    given = ctx.params.get("experiment") or next((word for word in ctx.args if word.endswith(".toml")), "")
    with suppress(OSError, ValueError, KeyError, TypeError):
        return dict(tomllib.loads(Path(given).read_text(encoding="utf-8-sig"))[section])
    return {}


def _starting(names: list[str], incomplete: str) -> list[str]:
    return [name for name in dict.fromkeys(names) if name.startswith(incomplete)]
