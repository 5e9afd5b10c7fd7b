"""The layout: layers, packages, torch-free parts, old import paths, names in their registries, the wheel."""

import ast
import inspect
import os
import shutil
import subprocess
import sys
import zipfile
from collections import Counter
from importlib import import_module
from pathlib import Path

import pytest

from fadas.aliases import MOVED, RENAMED
from helpers.cli import ROOT, run_fadas
from helpers.forks import run_in_fork

SOURCE = ROOT / "src" / "fadas"
MODULES = sorted(SOURCE.rglob("*.py"))
TORCH_FREE = [
    "core.ledger",
    "core.records",
    "simulation.planner",
    "simulation.delays",
    "simulation.faults",
    "runs.reader",
    "runs.writer",
    "runs.follower",
    "runs.summary",
    "report.comparison",
    "report.figures",
    "report.html",
    "report.figures.timeline",
    "paper.page",
    "experiments.experiment_file",
    "cli",
]


def run_python(code: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)


# In a fork, where torch is loaded already, import fadas as if for the first time.
FIRST_IMPORT = """
import sys
for name in [name for name in sys.modules if name.startswith("fadas")]:
    del sys.modules[name]
sys.meta_path[:] = [finder for finder in sys.meta_path if not type(finder).__module__.startswith("fadas")]
"""


def test_import_contract_holds():
    done = subprocess.run([Path(sys.executable).parent / "lint-imports"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_top_level_holds_packages_and_seven_modules():
    modules = {path.stem for path in SOURCE.glob("*.py")} - {"__init__"}
    packages = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    assert modules == {"aliases", "errors", "metrics", "partition", "registry", "rng", "validate"}
    assert len(packages) == 12
    for package in packages:
        inside = SOURCE / package
        files = {path.stem for path in inside.glob("*.py")} - {"__init__", "__main__"}
        most = {
            "cli": 17,  # a file per command
            "core": 12,  # the engine
            "tasks": 14,  # a file per task, and the data of `names`
            "runs": 11,  # files of earlier versions
            "experiments": 12,  # all settings, and what Python can do
            "report": 13,  # a file per table and figure
            "flower": 11,
        }.get(package, 10)
        assert 4 <= len(files | {path.parent.name for path in inside.glob("*/__init__.py")}) <= most, package


@pytest.mark.parametrize("name", ["metrics", "partition"])
def test_short_name_is_the_module_itself(name):
    """Whether it is imported first by the short name or by the long one."""
    short, long = f"fadas.{name}", f"fadas.tasks.{name}"
    for first, second in ((short, long), (long, short)):
        code = f"{FIRST_IMPORT}import {first}, {second}; from {short} import *; assert {short} is {long}"
        done = run_in_fork([], code)
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(SOURCE).as_posix())
def test_module_is_short(path):
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 450
    assert count_code_lines(text) <= 300


def count_code_lines(text: str) -> int:
    """Lines without docstrings, comments and blank lines."""
    prose = {
        line
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    lines = enumerate(text.splitlines(), 1)
    return sum(bool(line.strip()) and not line.strip().startswith("#") and n not in prose for n, line in lines)


def test_function_names_explain_themselves():
    names = Counter()
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef):
                names[node.name] += 1
    assert not {"each", "there", "whole", "together", "lessons"} & set(names)
    assert max(names[name] for name in ("read", "check", "load")) <= 1


@pytest.mark.parametrize("module", TORCH_FREE)
def test_planning_and_reporting_load_no_torch(module):
    done = run_python(f"import sys, fadas.{module}; assert 'torch' not in sys.modules, 'torch'")
    assert done.returncode == 0, done.stderr


def test_tasks_load_no_pandas_before_a_table_is_read():
    code = "import sys, fadas; fadas.TASKS['digits'](clients=3); assert 'pandas' not in sys.modules, 'pandas'"
    done = run_python(code)
    assert done.returncode == 0, done.stderr


def test_plan_and_report_run_without_torch(tmp_path):
    """The planner plans, and the report reads, while torch cannot be imported."""
    code = """
import sys
sys.modules["torch"] = None
import fadas
plan = fadas.plan(fadas.Schedule(8, 4), 30, fadas.Large(), steps=20, seed=1)
assert plan.statistics()["steps"] == 20
from pathlib import Path
from fadas.report.html import write_report
from fadas.runs.reader import find_runs
write_report(find_runs(Path(sys.argv[1])), Path(sys.argv[2]))
"""
    data = ROOT / "tests" / "data" / "format-1" / "finished"
    done = subprocess.run([sys.executable, "-c", code, data, tmp_path / "report.html"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "<svg" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_flower_loads_no_simulation_and_simulation_no_flower():
    pytest.importorskip("flwr")
    code = "import sys, fadas.{}; bad = [m for m in sys.modules if m.startswith('fadas.{}')]; assert not bad, bad"
    for one, other in (("flower.strategy", "simulation"), ("simulation.simulator", "flower")):
        done = run_python(code.format(one, other))
        assert done.returncode == 0, done.stderr


OLD_NAMES = {
    "build": "ConfigError Diverged Interrupted lookup build convert",
    "client": "LocalSGD train lessons job_seed check draws",
    "ledger": "Job Ledger Schedule Step Refill whole TAUS tau_statistics",
    "model": "Model Update ServerState FlatModule",
    "combine": "Combine Mean ExampleWeighted StalenessWeighted Mixing Calibrated COMBINES weighted_sum mean",
    "optim": "SGD Adam AMSGrad Yogi Adagrad Torch OPTIMIZERS MOMENTS",
    "stepsize": "Constant DelayAdaptive Hinge Polynomial StepSize STEP_SIZES",
    "delays": "Large Mild Uniform Lognormal Exponential Pareto Table Delays DELAYS",
    "checks": "Checks finite",
    "task": "Task Subsets cross_entropy accuracy",
    "snapshot": "take restore",
    "planner": "plan replan Plan",
    "simulator": "simulate Simulation Record Progress",
    "server": "Server Received",
    "privacy": "Private Spending epsilon",
    "robust": "Median Trimmed Clipped",
    "faults": "Fault check",
    "records": "Record JobRecord",
    "experiment": "execute make_task make_plan make_simulation",
    "config": "resolve RunConfig RunSettings seeds",
    "tables": "load select",
    "tasks.data": "Archive root",
    "tasks.models": "MODELS cnn resnet18",
    "executors.precision": "threads use Precision",
}


@pytest.mark.parametrize("module", OLD_NAMES)
def test_old_import_path_works_with_a_warning(module):
    names = OLD_NAMES[module].split()
    code = (
        "import warnings\n"
        "with warnings.catch_warnings(record=True) as caught:\n"
        "    warnings.simplefilter('always')\n"
        f"    from fadas.{module} import {', '.join(names)}\n"
        "told = [w for w in caught if w.category is DeprecationWarning and 'has moved to' in str(w.message)]\n"
        f"assert {module in ('task', 'snapshot')} or len(told) == {len(names)}, told"
    )
    done = run_in_fork([], FIRST_IMPORT + code)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("build.ConfigError", "errors.ConfigError"),
        ("checkpoint.Interrupted", "errors.Interrupted"),
        ("ledger.whole", "validate.whole_number"),
        ("simulator.Record", "core.records.Record"),
        ("simulator.Progress", "core.progress.Progress"),
        ("config.RunConfig", "experiments.settings.RunConfig"),
        ("config.RunSettings", "experiments.settings.RunSettings"),
        ("client.LocalSGD", "training.sgd.LocalSGD"),
        ("executors.precision.Precision", "executors.torch_settings.Precision"),
    ],
)
def test_warning_of_old_import_path_names_where_the_name_is_defined(old, new):
    module, _, name = old.rpartition(".")
    with pytest.warns(DeprecationWarning, match=rf"^fadas\.{old} has moved to fadas\.{new}$"):
        getattr(import_module(f"fadas.{module}"), name)


def test_every_alias_leads_to_a_module():
    for old, targets in MOVED.items():
        assert not (SOURCE / f"{old.replace('.', '/')}.py").exists(), old
        assert [import_module(f"fadas.{target}") for target in targets.split()]
    for (old, name), new in RENAMED.items():
        assert any(hasattr(import_module(f"fadas.{target}"), new) for target in MOVED[old].split()), (old, name)


def test_unknown_name_of_old_module_is_an_attribute_error():
    done = run_in_fork([], FIRST_IMPORT + "import fadas.client; fadas.client.nothing")
    assert "AttributeError: module 'fadas.client' has no attribute 'nothing'" in done.stderr


REGISTERED = {  # names that could be meant for nothing else; the files where they may stand
    "executors": (
        {"auto", "inline", "batched", "processes", "cuda", "ray"},
        ("executors/", "cli/bench/", "runs/formats.py"),
    ),
    "tasks": (
        {"digits", "cifar10", "cifar100", "rte", "mrpc", "sst2"},
        ("tasks/", "cli/bench/", "cli/projects/"),
    ),
    "sinks": ({"tensorboard", "wandb", "mlflow"}, ("runs/",)),
}


@pytest.mark.parametrize("kind", REGISTERED)
def test_registered_names_stay_in_their_registry(kind):
    names, allowed = REGISTERED[kind]
    found = []
    for path in MODULES:
        place = path.relative_to(SOURCE).as_posix()
        if place.startswith(allowed):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and node.value in names - {"cuda"}:  # which is a device, too
                found.append(f"{place}:{node.lineno} {node.value}")
    assert not found


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """A wheel of this tree."""
    source = tmp_path_factory.mktemp("wheel") / "source"
    shutil.copytree(ROOT / "src", source / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    build = "from setuptools import build_meta; print(build_meta.build_wheel('.'))"
    done = subprocess.run([sys.executable, "-c", build], cwd=source, capture_output=True, text=True)
    if "No module named 'setuptools'" in done.stderr:
        pytest.skip("setuptools is not installed")
    assert done.returncode == 0, done.stderr
    (found,) = source.glob("*.whl")
    return found


def test_wheel_holds_types_data_and_templates(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    templates = {f"fadas/flower/template/{path.name}" for path in (SOURCE / "flower" / "template").iterdir()}
    projects = SOURCE / "cli" / "projects" / "templates"
    templates |= {f"fadas/{path.relative_to(SOURCE).as_posix()}" for path in projects.glob("*/*")}
    assert len(templates) >= 16
    shipped = {"fadas/py.typed", "fadas/__init__.pyi", "fadas/paper/paper.toml", "fadas/cli/demo.toml"}
    assert shipped | templates <= names
    assert {f"fadas/{path.relative_to(SOURCE).as_posix()}" for path in MODULES} <= names


def test_demo_and_init_run_from_wheel(wheel, tmp_path):
    zipfile.ZipFile(wheel).extractall(tmp_path / "installed")
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    # First on the path, so that this copy is found before the checkout.
    run = {"cwd": folder, "PYTHONPATH": str(tmp_path / "installed"), "FADAS_DATA": str(ROOT / "build" / "data")}
    where = [sys.executable, "-P", "-c", "import fadas; print(fadas.__file__)"]
    environment = {**os.environ, "PYTHONPATH": run["PYTHONPATH"]}
    found = subprocess.run(where, capture_output=True, text=True, cwd=folder, env=environment)
    assert found.stdout.startswith(run["PYTHONPATH"])
    said = run_fadas("init", "mine", fresh=True, **run).stdout
    assert "fadas explain" in said + (folder / "mine" / "README.md").read_text()
    assert "fedbuff" in run_fadas("demo", "--only", "fedbuff", "--seed", "1", fresh=True, **run).stdout
    assert (folder / "runs" / "demo" / "fedbuff-1" / "summary.json").exists()


def test_public_names_have_docstrings():
    command = [Path(sys.executable).parent / "ruff", "check", "--select", "D1", "--ignore", "D105,D107", SOURCE]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_what_users_construct_documents_arguments_and_an_example():
    import fadas
    from fadas.algorithms import ALGORITHMS, COMBINES, OPTIMIZERS, STEP_SIZES, Combine, Optimizer, StepSize
    from fadas.core.server_step import UpdateRule
    from fadas.executors import EXECUTORS
    from fadas.runs.sinks import SINKS, Sink
    from fadas.simulation.delays import DELAYS, DelayModel
    from fadas.training import LOCAL_TRAINERS, RATE_SCHEDULES

    public = [getattr(fadas, name) for name in fadas.__all__]
    registries = (ALGORITHMS, COMBINES, OPTIMIZERS, STEP_SIZES, DELAYS, fadas.TASKS, EXECUTORS, SINKS)
    registries += (LOCAL_TRAINERS, RATE_SCHEDULES)
    registered = [entry for registry in registries for entry in registry.values()]
    protocols = [Combine, Optimizer, StepSize, DelayModel, Sink, UpdateRule]
    lacking = []
    for thing in [*public, *registered, *protocols]:
        thing = getattr(thing, "func", thing)  # of a partial
        if inspect.ismodule(thing) or isinstance(thing, dict):
            continue
        text = describe(thing)
        parameters = parameters_of(thing)
        missing = [name for name in parameters if f"{name}:" not in text]
        if missing or "Example" not in text:
            lacking.append((getattr(thing, "__name__", thing), missing))
    assert not lacking


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(SOURCE).as_posix())
def test_protocols_document_arguments_and_an_example(path):
    lacking = []
    for protocol in find_protocols(ast.parse(path.read_text(encoding="utf-8"))):
        if "Example:" not in (ast.get_docstring(protocol) or ""):
            lacking.append(protocol.name)
        for method in protocol.body:
            if isinstance(method, ast.FunctionDef):
                parameters = [p.arg for p in (*method.args.posonlyargs, *method.args.args, *method.args.kwonlyargs)]
                text = ast.get_docstring(method) or ""
                lacking += [f"{protocol.name}.{method.name}: {p}" for p in parameters[1:] if f"{p}: " not in text]
    assert not lacking


def find_protocols(module: ast.Module) -> list[ast.ClassDef]:
    """The protocols of a module. Two of the server's are for its own algorithms only."""
    classes = [node for node in module.body if isinstance(node, ast.ClassDef)]
    protocols = [one for one in classes if any(isinstance(b, ast.Name) and b.id == "Protocol" for b in one.bases)]
    return [one for one in protocols if one.name not in ("UpdateRule", "Accountant")]


def describe(thing) -> str:
    """The docstrings of a class and its bases, a function or a callable object."""
    kind = thing if isinstance(thing, type) or hasattr(thing, "__name__") else type(thing)
    call = vars(kind).get("__call__") if isinstance(kind, type) else None
    bases = [base.__doc__ for base in kind.__mro__[1:-1]] if isinstance(kind, type) else []
    return "\n".join(filter(None, (thing.__doc__, getattr(call, "__doc__", ""), *bases)))


def parameters_of(thing) -> list[str]:
    if isinstance(thing, type) and (issubclass(thing, Exception) or getattr(thing, "_is_protocol", False)):
        return []
    try:
        return [p.name for p in inspect.signature(thing).parameters.values() if p.kind is not p.VAR_KEYWORD]
    except (TypeError, ValueError):
        return []
