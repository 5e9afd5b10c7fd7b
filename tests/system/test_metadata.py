"""The package's metadata: one version, files that exist, dependencies with pins and reasons, workflows."""

import ast
import re
import sys
import tomllib
from pathlib import Path

import pytest

import fadas
from helpers.cli import ROOT

PACKAGE = ROOT / "src" / "fadas"
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = PYPROJECT["project"]
FOR_DEVELOPERS = {"dev", "docs", "test"}


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def names_of(requirements: list[str]) -> set[str]:
    """The normal names of the required distributions."""
    return {re.sub(r"[-_.]+", "-", re.split(r"[^\w.-]", one)[0]).lower() for one in requirements}


def test_version_is_the_same_everywhere():
    assert "version" in PROJECT["dynamic"]
    assert PYPROJECT["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "fadas.__version__"}
    assert re.findall(r"^version: (.+)$", read("CITATION.cff"), re.M) == [fadas.__version__]
    newest = "Unreleased" if ".dev" in fadas.__version__ else fadas.__version__
    assert re.findall(r"^## (\S+)", read("CHANGELOG.md"), re.M)[0] == newest


def test_every_data_file_is_packaged_and_every_pattern_finds_a_file():
    packaged = set()
    for package, patterns in PYPROJECT["tool"]["setuptools"]["package-data"].items():
        folder = ROOT / "src" / package.replace(".", "/")
        for pattern in patterns:
            found = {path for path in folder.glob(pattern) if path.is_file()}
            assert found, f"{package}: {pattern}"
            packaged |= found
    files = {path for path in PACKAGE.rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    assert {path for path in files if path.suffix != ".py"} == packaged


def test_every_extra_is_documented():
    text = read("docs/getting-started/install.md")
    assert [name for name in PROJECT["optional-dependencies"] if f"`{name}`" not in text] == []


def test_dev_extra_holds_all_others():
    held = {name for one in PROJECT["optional-dependencies"]["dev"] for name in re.findall(r"^fadas\[(.+)\]", one)}
    assert set(",".join(held).split(",")) == PROJECT["optional-dependencies"].keys() - {"dev"}


def test_every_direct_dependency_has_a_reason():
    rows = dict(re.findall(r"^\| `([\w-]+)` \| (.+) \|$", read("docs/contributing.md"), re.M))
    assert names_of(PROJECT["dependencies"]) <= rows.keys()
    for name, requirements in PROJECT["optional-dependencies"].items():
        if name not in FOR_DEVELOPERS:
            assert names_of(requirements) <= rows.keys(), name


def imported_names(path: Path) -> set[str]:
    """The packages that a module imports, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {name.name.partition(".")[0] for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.partition(".")[0])
    return found


def test_every_imported_package_is_declared():
    """A package that only another dependency brings disappears with a new version of that one, as click did."""
    extras = [one for requirements in PROJECT["optional-dependencies"].values() for one in requirements]
    declared = {name.replace("-", "_") for name in names_of([*PROJECT["dependencies"], *extras])}
    others = {"sklearn", "cycler", "PIL", "mlflow"}  # of scikit-learn, matplotlib (twice) and mlflow-skinny
    allowed = declared | sys.stdlib_module_names | others
    assert {name for path in PACKAGE.rglob("*.py") for name in imported_names(path)} - allowed == set()


def test_every_requirement_is_pinned():
    lines = [line for line in read("constraints.txt").splitlines() if not line.startswith("#")]
    assert [line for line in lines if not re.match(r"[\w.-]+==[\w.+]+( #.*)?$", line)] == []
    extras = [one for requirements in PROJECT["optional-dependencies"].values() for one in requirements]
    needed = names_of([*PROJECT["dependencies"], *extras])
    assert needed - {"fadas"} - names_of(lines) == set()


def load_workflows() -> dict:
    yaml = pytest.importorskip("yaml")
    folder = ROOT / ".github"
    if not folder.exists():
        pytest.skip("a source distribution has no .github")
    return {path.name: yaml.safe_load(path.read_text(encoding="utf-8")) for path in folder.rglob("*.yml")}


def test_workflows_have_few_rights_and_pinned_actions():
    flows = {name: flow for name, flow in load_workflows().items() if "jobs" in flow}
    assert flows.keys() == {"release.yml", "site.yml", "tests.yml"}
    for name, flow in flows.items():
        assert flow["permissions"] == {"contents": "read"}, name
        for job in flow["jobs"].values():
            assert job["timeout-minutes"] <= 60
            uses = [step["uses"] for step in job["steps"] if "uses" in step]
            assert [one for one in uses if not re.search(r"@(v\d+|release/v\d+)$", one)] == []
            assert "secrets." not in str(job)


def test_workflow_tests_every_python_that_the_metadata_names():
    versions = {one.rpartition(" ")[2] for one in PROJECT["classifiers"] if "Python ::" in one}
    jobs = load_workflows()["tests.yml"]["jobs"]
    matrices = {name: set(job["strategy"]["matrix"]["python"]) for name, job in jobs.items() if "strategy" in job}
    assert matrices == dict.fromkeys(("linux", "others"), versions)


def test_folders_that_workflows_test_exist():
    text = str(load_workflows()["tests.yml"])
    paths = re.findall(r"tests/[\w/.]+", text)
    assert len(paths) > 5
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_bug_report_asks_for_the_output_of_doctor():
    (field,) = (field for field in load_workflows()["bug.yml"]["body"] if field.get("id") == "doctor")
    assert "fadas doctor" in field["attributes"]["label"]
    assert field["validations"] == {"required": True}
